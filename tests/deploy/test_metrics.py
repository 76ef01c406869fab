"""Are the metrics that alerts and the dashboard ask for those that the reference lists?"""

from __future__ import annotations

import re

from tests.deploy.metrics import METRICS, Metric
from tests.deploy.programs import ROOT

PAGE = ROOT / "docs" / "reference" / "metrics.md"


def test_the_metrics_are_those_of_the_reference() -> None:
    everywhere, of_process = PAGE.read_text().split("\n## Of the process")

    assert _listed(everywhere, of_database=True) | _listed(of_process, of_database=False) == METRICS


def _listed(text: str, *, of_database: bool) -> dict[str, Metric]:
    rows = re.findall(r"^\| `(pulse_\w+)` \| (\w+) \|([^|]*)\|", text, re.MULTILINE)
    return {
        name: Metric(kind, tuple(re.findall(r"`(\w+)`", labels)), of_database=of_database)
        for name, kind, labels in rows
    }
