"""Is every row of the source documents proved by one test, and does the page say what the tests say?"""

from __future__ import annotations

from collections import Counter

from tools.conformance import PAGE, ROOT, make_page, read_proofs

from tests.seeds.sayings import DOCUMENTS, Verdict

ROWS = {"000": 23, "003": 22, "001": 24, "002": 20, "004": 22}


def test_every_row_has_one_test() -> None:
    proofs = read_proofs()

    assert [proof.saying.row for proof in proofs] == [*map(str, range(1, 99)), "98b", *map(str, range(99, 111))]
    assert Counter(proof.saying.document for proof in proofs) == ROWS
    assert list(ROWS) == list(DOCUMENTS)


def test_every_file_is_about_one_document() -> None:
    files = {(proof.file, proof.saying.document) for proof in read_proofs()}

    assert len(files) == len(DOCUMENTS)


def test_every_deviation_names_a_decision_that_exists() -> None:
    deviating = [proof.saying for proof in read_proofs() if proof.saying.verdict is Verdict.DEVIATES]

    assert deviating
    for saying in deviating:
        assert list((ROOT / "docs" / "decisions").glob(f"{saying.decision}-*.md")), saying


def test_the_page_is_what_the_tests_say() -> None:
    assert PAGE.read_text() == make_page(read_proofs()), "run `python -m tools.conformance`"
