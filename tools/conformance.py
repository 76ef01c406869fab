"""Write docs/reference/conformance.md from tests/seeds, or see if it is: `python -m tools.conformance [--check]`."""

from __future__ import annotations

import re
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

from tests.seeds.sayings import DOCUMENTS, Proof, Verdict, collect

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "conformance.md"
MODULES = (
    "test_alarm_dispatch",
    "test_alarm_times",
    "test_recurring_jobs",
    "test_streaming_dispatch",
    "test_leases",
)

COLUMNS = "| # | it says | verdict | decision | test |"
RULE = "| --- | --- | --- | --- | --- |"
HEAD = """\
# Conformance

Pulse was built from five source documents. Each sentence of theirs that can be tried is a row here, in our words, with
the test that proves how Pulse stands to it: it **holds**; Pulse **deviates**, by a decision; or Pulse is **better**,
where the document accepts a cost or a limit that Pulse does not have. The tests are in `tests/seeds`, on a real
Postgres and on time that they move: `python -m pytest tests/seeds`.

This page is written by `python -m tools.conformance`; the words are those of the tests.
"""


def read_proofs() -> list[Proof]:
    return collect(import_module(f"tests.seeds.{name}") for name in MODULES)


def make_page(proofs: list[Proof]) -> str:
    parts = [HEAD, _counts(proofs)]
    for number, title in DOCUMENTS.items():
        rows = [_row(proof) for proof in proofs if proof.saying.document == number]
        parts.append("\n".join([f"## {title} ({number})", "", COLUMNS, RULE, *rows, ""]))
    return "\n".join(parts)


def _counts(proofs: list[Proof]) -> str:
    lines = [f"| document | {' | '.join(Verdict)} | rows |", "| --- |" + " --- |" * (len(Verdict) + 1)]
    for number, title in DOCUMENTS.items():
        verdicts = Counter(proof.saying.verdict for proof in proofs if proof.saying.document == number)
        counts = [str(verdicts[verdict]) for verdict in Verdict]
        lines.append(f"| {title} | {' | '.join(counts)} | {verdicts.total()} |")
    total = Counter(proof.saying.verdict for proof in proofs)
    lines.append(f"| all | {' | '.join(str(total[verdict]) for verdict in Verdict)} | {total.total()} |")
    return "\n".join([*lines, ""])


def _row(proof: Proof) -> str:
    saying = proof.saying
    verdict = f"{saying.verdict}: {saying.because}" if saying.because else saying.verdict
    decision = f"[{saying.decision}](../decisions/{_page_of(saying.decision)})" if saying.decision else ""
    name = proof.file.rpartition("/")[2].removesuffix(".py")
    return f"| {saying.row} | {_cell(saying.sentence)} | {_cell(verdict)} | {decision} | `{name}::{proof.test}` |"


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def _page_of(decision: str) -> str:
    [page] = (ROOT / "docs" / "decisions").glob(f"{decision}-*.md")
    return page.name


def main() -> int:
    written = make_page(read_proofs())
    if "--check" not in sys.argv:
        PAGE.write_text(written)
        return 0
    if PAGE.read_text() != written:
        sys.stderr.write(f"{PAGE.relative_to(ROOT)} is not what tests/seeds say: run `python -m tools.conformance`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
