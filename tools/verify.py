"""Which suites hold? Runs them one after another, goes on after a failure, and ends with one table.

`python -m tools.verify` runs every suite; `python -m tools.verify check test` only those.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import NamedTuple

SUITES = {
    "check": "format, lint, types, imports, generated code",
    "test": "every test, embedded Postgres",
    "test-system": "every test, the system's Postgres",
    "test-buckets": "every test, sixteen buckets",
    "test-user": "the fast tests, as an ordinary user",
    "test-long": "idle costs, orders of three, tries at random",
    "chaos": "workers, servers and schedulers killed by the hundred",
}
# The closing line of pytest: `12 passed, 1 skipped in 3.45s`. A suite may run pytest more than once.
COUNTS = re.compile(r"^(?=.* in [\d.]+s)(?:=+ )?(\d+ \w+(?:, \d+ \w+)*) in ", re.MULTILINE)
KINDS = ("passed", "failed", "error", "skipped", "xfailed")


class Ran(NamedTuple):
    suite: str
    exit_code: int
    counts: dict[str, int]
    seconds: float


def count(output: str) -> dict[str, int]:
    """Add up what every run of pytest in this output counted."""
    counts: dict[str, int] = {}
    for line in COUNTS.findall(output):
        for part in line.split(", "):
            number, kind = part.split()
            kind = kind.removesuffix("s") if kind.startswith("error") else kind
            counts[kind] = counts.get(kind, 0) + int(number)
    return counts


def run(suite: str) -> Ran:
    """Run one target of the Makefile, showing its output while it runs."""
    print(f"--- make {suite}: {SUITES[suite]}", flush=True)
    started = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(
        ["make", suite],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return Ran(suite, process.returncode, count("".join(lines)), time.monotonic() - started)


def table(results: list[Ran]) -> str:
    """Draw the suites as rows of a Markdown table."""
    rows = ["| suite | result | " + " | ".join(KINDS) + " | time |", "| --- " * (len(KINDS) + 3) + "|"]
    for ran in results:
        cells = [f"make {ran.suite}", "ok" if ran.exit_code == 0 else f"FAILED (exit {ran.exit_code})"]
        cells += [str(ran.counts.get(kind, 0)) if ran.counts else "–" for kind in KINDS]
        rows.append("| " + " | ".join([*cells, f"{int(ran.seconds) // 60}:{int(ran.seconds) % 60:02}"]) + " |")
    return "\n".join(rows)


def main(names: list[str]) -> int:
    if unknown := [name for name in names if name not in SUITES]:
        print(f"unknown suite {unknown[0]!r}; there are: {', '.join(SUITES)}", file=sys.stderr)
        return 2
    results = []
    for name in names or SUITES:
        results.append(run(name))
        print(f"--- make {name}: {'ok' if results[-1].exit_code == 0 else 'FAILED'}", flush=True)
    print("\n" + table(results))
    return int(any(ran.exit_code for ran in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
