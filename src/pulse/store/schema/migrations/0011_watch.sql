-- When the fleet last looked at leases, and since when it has done so without a break.
-- works with code from: 1

-- Leases are judged by what this row remembers and not by the age of whoever judges, so a process that was just started
-- judges as well as an old one. Logged, so that a crash or a promoted standby keeps it.
create table if not exists pulse.watch (
    only_row boolean primary key default true check (only_row),
    seen_at timestamptz not null,            -- the last look of any process
    steady_since timestamptz not null,       -- the end of the last absence: nobody looked for longer than is safe
    judged_to timestamptz not null           -- leases that ended before this had their chance before that absence
);
