"""How do the schedules that code declares get into the database?

All schedules of an app are written in one transaction, and no other sync of the app runs at the same time. Schedules
that are gone from the code are disabled at the instant at which new ones appear, and the first occurrence of a new one
lies after that instant: so a schedule that was renamed never fires twice for one occurrence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from pulse.engine.schedules.fires import log_passed_over
from pulse.model.decisions.schedule_changes import differences, is_retimed, make_declared, redefine
from pulse.model.errors import InvalidSchedule, ScheduleExists, ScheduleOwned, StaleDeploy
from pulse.model.schedules import Declared, Schedule, ScheduleStatus, SyncReport
from pulse.store.installation import read_clock
from pulse.store.jobs.submits import compare_payloads
from pulse.store.schedules import changes

if TYPE_CHECKING:
    from datetime import datetime

    from pulse.store.connections.pool import Connection
    from pulse.store.schedules.changes import Deploy


class Sync:
    """One sync of one app."""

    def __init__(
        self,
        app: str,
        declared: Sequence[Declared],
        *,
        mint: Callable[[], UUID],
        bucket_of: Callable[[Schedule], int],
    ) -> None:
        self.written: list[Schedule] = []
        self._app = app
        self._declared = declared
        self._mint = mint
        self._bucket_of = bucket_of
        _check_names(declared)

    async def run(self, conn: Connection, *, deploy: int | None, prune: bool, dry_run: bool) -> SyncReport:
        self.written = []  # forget an earlier try: its decisions may rest on rows that have changed since
        if not dry_run:
            _check_order(self._app, deploy, await changes.note_deploy(conn, app=self._app))
        elif deploy is not None:  # a dry run without a number only asks what differs
            _check_order(self._app, deploy, await changes.find_deploy(conn, app=self._app))
        now = await read_clock(conn)
        names = [name for each in self._declared for name in (each.schedule.name, *each.aliases)]
        found = await changes.lock_schedules(conn, names, app=self._app)
        report = await self._plan(conn, found, now, prune=prune, dry_run=dry_run)
        if dry_run:
            self.written = []
            return report
        deleted = {*report.deleted}
        await changes.delete_schedules(conn, ids=[schedule.id for schedule in found if schedule.name in deleted])
        await self._write(conn, found, now)
        await changes.confirm_deploy(conn, app=self._app, deploy=deploy)
        return report

    async def _write(self, conn: Connection, found: Sequence[Schedule], now: datetime) -> None:
        """Write changed schedules before new ones, since a new one may have the old name of a changed one."""
        before = {schedule.id: schedule for schedule in found}
        changed = [schedule for schedule in self.written if schedule.id in before]
        new = [schedule for schedule in self.written if schedule.id not in before]
        moved = [before[each.id] for each in changed if before[each.id].next_run_at != each.next_run_at]
        await log_passed_over(conn, moved, "changed in code", now)
        await changes.update_schedules(conn, changed, buckets=[self._bucket_of(each) for each in changed])
        inserted = await changes.insert_schedules(conn, new, buckets=[self._bucket_of(each) for each in new])
        if taken := {each.name for each in new} - {each.name for each in inserted}:
            raise ScheduleExists(min(taken), "owner, since a moment ago")

    async def _plan(
        self, conn: Connection, found: Sequence[Schedule], now: datetime, *, prune: bool, dry_run: bool
    ) -> SyncReport:
        report = SyncReport(
            created=[], changed=[], renamed=[], enabled=[], disabled=[], deleted=[], unchanged=[], dry_run=dry_run
        )
        by_name = {schedule.name: schedule for schedule in found}
        known: list[tuple[Schedule, Declared]] = []
        for each in self._declared:
            schedule = self._known(each, by_name)
            if schedule is None:
                self.written.append(make_declared(each.schedule, self._mint(), now, app=self._app))
                report.created.append(each.schedule.name)
            else:
                known.append((schedule, each))
        payloads = [(schedule.job.payload, each.schedule.job.payload) for schedule, each in known]
        for (schedule, each), is_same in zip(known, await compare_payloads(conn, payloads), strict=True):
            self._plan_known(report, schedule, each, now, is_same_payload=is_same)
        kept = {schedule.id for schedule, _ in known}
        for schedule in found:
            if schedule.app == self._app and schedule.id not in kept:
                self._plan_gone(report, schedule, now, prune=prune)
        return report

    def _known(self, each: Declared, by_name: dict[str, Schedule]) -> Schedule | None:
        """Return the row of a declared schedule, under its name or an alias, or None if it is new."""
        for name in (each.schedule.name, *each.aliases):
            schedule = by_name.get(name)
            if schedule is None:
                continue
            if schedule.app == self._app:
                return schedule
            if name == each.schedule.name:
                raise ScheduleOwned(name, schedule.app, f"give the one in {self._app} another name")
        return None

    def _plan_known(
        self, report: SyncReport, schedule: Schedule, each: Declared, now: datetime, *, is_same_payload: bool
    ) -> None:
        new = each.schedule
        is_renamed, was_disabled = schedule.name != new.name, schedule.status is ScheduleStatus.DISABLED
        differs = differences(schedule, new, now, is_same_payload=is_same_payload)
        is_changed = bool(differs) or schedule.status is ScheduleStatus.BROKEN
        if is_renamed:
            report.renamed.append((schedule.name, new.name))
        if was_disabled:
            report.enabled.append(new.name)
        elif is_changed:
            report.changed.append(new.name)
        elif not is_renamed:
            report.unchanged.append(new.name)
            return
        if schedule.status is ScheduleStatus.COMPLETED and not is_changed:  # it stays completed
            self.written.append(msgspec.structs.replace(schedule, name=new.name, updated_at=now))
        else:
            self.written.append(redefine(schedule, new, now, retime=is_retimed(schedule, new, now)))

    def _plan_gone(self, report: SyncReport, schedule: Schedule, now: datetime, *, prune: bool) -> None:
        if prune:
            report.deleted.append(schedule.name)
        elif schedule.status is not ScheduleStatus.DISABLED:
            report.disabled.append(schedule.name)
            off = {"status": ScheduleStatus.DISABLED, "next_run_at": None, "buffered_for": None, "updated_at": now}
            self.written.append(msgspec.structs.replace(schedule, **off))


def _check_names(declared: Sequence[Declared]) -> None:
    seen: set[str] = set()
    for each in declared:
        for name in (each.schedule.name, *each.aliases):
            if name in seen:
                raise InvalidSchedule(f"two schedules are declared as {name!r}: give one of them another name")
            seen.add(name)


def _check_order(app: str, deploy: int | None, known: Deploy | None) -> None:
    """Refuse a deploy that is older than the last one: one that starts late must not undo what a newer declared."""
    if known is None or known.deploy is None:
        return
    if deploy is None:
        raise StaleDeploy(
            app, f"deploy {known.deploy} gave its number, so later ones must give theirs: --deploy NUMBER"
        )
    if deploy < known.deploy:
        raise StaleDeploy(
            app, f"deploy {known.deploy} declared them at {known.synced_at:%Y-%m-%d %H:%M}, and this is {deploy}"
        )
