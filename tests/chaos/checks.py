"""What must hold in every run, whatever was done to it? Each check answers with what it found wrong, in words.

J1 to J13 are the invariants of the design; a check names the one it keeps.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from uuid import UUID

from tests.chaos.notes import Note
from tests.chaos.story import Move, Story, pid_of

FINISHED = ("COMPLETED", "DEAD_LETTERED", "CANCELLED")
TAKEN = ("COMPLETE:ACCEPTED", "COMPLETE:ALREADY")
EXPIRED = "worker lease expired"
SHOWN = 5


def hold(*found: list[str]) -> None:
    """Fail with everything that was found."""
    problems = [problem for problems in found for problem in problems]
    assert not problems, f"{len(problems)} kinds of problems\n" + "\n".join(problems)


def always(story: Story, expected: Mapping[UUID, str]) -> list[str]:
    """Everything below that need not know what was done; `expected` says how each job must have ended."""
    return [*sound(story, expected), *ran_after_completion(story), *ran_after_acknowledgement(story)]


def sound(story: Story, expected: Mapping[UUID, str]) -> list[str]:
    """What holds even for a process that stands still between two instructions."""
    return [
        *lost(story, expected),
        *moved_after_the_end(story),
        *claimed_out_of_turn(story),
        *ran_without_a_claim(story),
        *acknowledged_but_undone(story),
        *unexplained_charges(story),
        *miscounted(story),
    ]


def lost(story: Story, expected: Mapping[UUID, str]) -> list[str]:
    """J6: what was acknowledged is there and has ended, as it had to."""
    states = {job_id: story.jobs[job_id]["status"] if job_id in story.jobs else "gone" for job_id in expected}
    wrong = [
        f"{job_id} is {states[job_id]}, not {wanted}" for job_id, wanted in expected.items() if states[job_id] != wanted
    ]
    open_ends = [f"{job_id} is {job['status']}" for job_id, job in story.jobs.items() if job["status"] not in FINISHED]
    return [*say("jobs lost (J6)", wrong), *say("jobs never finished (J6)", open_ends)]


def moved_after_the_end(story: Story) -> list[str]:
    """J1, J2: an end is an end, and there is one."""
    wrong = [
        f"{job_id} was {move.was} and became {move.became}"
        for job_id, moves in story.moves.items()
        for move in moves
        if move.was in FINISHED
    ]
    return say("jobs moved after they had ended (J1)", wrong)


def claimed_out_of_turn(story: Story) -> list[str]:
    """J5: each claim raises the fence, and the count by one; no budget is overdrawn."""
    wrong: list[str] = []
    for job_id, moves in story.moves.items():
        claims = [move for move in moves if move.became == "RUNNING"]
        wrong += [
            f"{job_id}: claim {one.attempt} had fence {one.lease_id}, claim {two.attempt} has {two.lease_id}"
            for one, two in pairwise(claims)
            if two.lease_id <= one.lease_id or two.attempt != one.attempt + 1
        ]
        job = story.jobs.get(job_id)
        if job and job["attempt"] - job["refunded"] > job["max_attempts"]:
            wrong.append(f"{job_id}: {job['attempt']} - {job['refunded']} of {job['max_attempts']} attempts")
    return say("claims out of turn (J5)", wrong)


def ran_without_a_claim(story: Story) -> list[str]:
    """J7, J13: a handler runs once for each claim of its job, and not otherwise."""
    claims = {(job_id, move.lease_id) for job_id, moves in story.moves.items() for move in _claims(moves)}
    starts = Counter((note.job_id, note.lease_id) for note in story.starts)
    return [
        *say("handlers without a claim (J7)", [f"{job} with fence {lease}" for job, lease in starts.keys() - claims]),
        *say(
            "handlers started twice for one claim (J13)",
            [f"{job} with fence {lease}: {number} times" for (job, lease), number in starts.items() if number > 1],
        ),
    ]


def ran_after_completion(story: Story) -> list[str]:
    """J12: what is completed is never run again."""
    return say("completed jobs that ran again (J12)", begun_too_late(story))


def begun_too_late(story: Story) -> list[str]:
    ended = {job_id: move.at for job_id, moves in story.moves.items() for move in moves if move.became == "COMPLETED"}
    return [
        f"{note.job_id} began {note.at - ended[note.job_id]:.3f} s after its completion, in process {note.pid}"
        for note in story.starts
        if note.job_id in ended and note.at > ended[note.job_id]
    ]


def ran_after_acknowledgement(story: Story) -> list[str]:
    """J12 again, by what workers were told, in case the database does not remember."""
    first = {note.job_id: note.at for note in reversed(_taken(story))}
    wrong = [
        f"{note.job_id} began {note.at - first[note.job_id]:.3f} s after its result was taken, in process {note.pid}"
        for note in story.starts
        if note.at > first.get(note.job_id, math.inf)
    ]
    return say("results that were taken, and the job ran again (J12)", wrong)


def acknowledged_but_undone(story: Story) -> list[str]:
    """J4: a worker is told that its result is taken only with the newest claim, and then it is."""
    last_claim = {job_id: claims[-1].lease_id for job_id, moves in story.moves.items() if (claims := _claims(moves))}
    states = {job_id: job["status"] for job_id, job in story.jobs.items()}
    wrong = [
        f"{note.job_id} was {note.word} with fence {note.lease_id}; it is {states.get(note.job_id, 'gone')}, and its "
        f"newest claim has {last_claim.get(note.job_id)}"
        for note in _taken(story)
        if note.job_id and (states.get(note.job_id) != "COMPLETED" or last_claim[note.job_id] != note.lease_id)
    ]
    return say("results that were taken, and do not stand (J4)", wrong)


def unexplained_charges(story: Story) -> list[str]:
    """J10, J11: what is charged is the run that ended it and the failures on record."""
    failures = Counter(failure.job_id for failure in story.failures)
    wrong = []
    for job_id, job in story.jobs.items():
        charged, ending = job["attempt"] - job["refunded"], job["status"] == "COMPLETED"
        claims = len(_claims(story.moves[job_id]))
        if job["status"] in FINISHED and (charged != failures[job_id] + ending or claims != job["attempt"]):
            wrong.append(
                f"{job_id} is {job['status']}, charged {charged} ({job['attempt']} - {job['refunded']}) for "
                f"{failures[job_id]} failures on record and {claims} claims"
            )
    return say("charges without a reason (J10, J11)", wrong)


def miscounted(story: Story) -> list[str]:
    """The tallies, which no statement may forget."""
    rows = Counter(str(job["status"]) for job in story.jobs.values())
    return [] if rows == story.counts else [f"the counts say {dict(story.counts)}, the rows {dict(rows)}"]


def reaped_alive(story: Story, absences: Mapping[int, Sequence[tuple[float, float]]]) -> list[str]:
    """Nobody who lives is reaped: each lease that ended was that of a worker that was dead by then, or stood still."""
    wrong = [
        f"{failure.job_id} of {failure.worker}"
        for failure in story.failures
        if failure.error == EXPIRED
        and not any(since < failure.ended_at < until for since, until in absences.get(pid_of(failure.worker), ()))
    ]
    return say("jobs of healthy workers that were reaped", wrong)


def recoveries(story: Story, deaths: Mapping[int, float]) -> tuple[list[float], list[str]]:
    """How long after the death of its worker each job ran again; and those that did not."""
    seconds: list[float] = []
    never: list[str] = []
    for job_id, moves in story.moves.items():
        for number, move in enumerate(moves):
            died_at = deaths.get(move.pid) if move.became == "RUNNING" else None
            after = moves[number + 1 :]
            if died_at is None or (after and after[0].at < died_at):
                continue  # nobody died holding it
            back = next((later for later in after if later.became in ("RUNNING", *FINISHED)), None)
            if back is None:
                never.append(f"{job_id}, held by process {move.pid}")
            elif after[0].became != "COMPLETED":  # its last word was on the way, and arrived
                seconds.append(back.at - died_at)
    return seconds, say("jobs of dead workers that never ran again", never)


def charged_without_a_start(story: Story) -> list[str]:
    """J11: a claim whose handler never began is given back uncharged."""
    starts = {(note.job_id, note.lease_id) for note in story.starts}
    after: dict[tuple[UUID, int], Move | None] = {}
    for job_id, moves in story.moves.items():
        for one, two in pairwise([*moves, None]):
            if one is not None and one.became == "RUNNING":
                after[job_id, one.lease_id] = two
    wrong = [
        f"{job_id}: claim with fence {lease_id} never began, and became {move.became if move else 'nothing'}"
        for (job_id, lease_id), move in after.items()
        if (job_id, lease_id) not in starts and (move is None or move.became != "PENDING")
    ]
    return say("claims charged that were never started (J11)", wrong)


def twice_to_the_end(story: Story) -> int:
    """Jobs whose handler ran to its end more than once: at least once is the promise, and this is its price."""
    ends: dict[UUID | None, int] = defaultdict(int)
    for note in story.notes:
        ends[note.job_id] += note.kind == "end"
    return sum(number > 1 for number in ends.values())


def _taken(story: Story) -> list[Note]:
    return [note for note in story.notes if note.kind == "report" and note.word in TAKEN]


def _claims(moves: Iterable[Move]) -> list[Move]:
    return [move for move in moves if move.became == "RUNNING"]


def say(what: str, wrong: list[str]) -> list[str]:
    if not wrong:
        return []
    more = f"\n  and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    return [f"{len(wrong)} {what}:\n  " + "\n  ".join(wrong[:SHOWN]) + more]
