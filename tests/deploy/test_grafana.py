"""Is the dashboard whole, does it ask for what there is, and does every panel show something?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.dashboard import FILE, SOURCE, make_dashboard

from tests.deploy.metrics import METRICS, labels_used, series, summed, used
from tests.deploy.programs import needs, run_program

BOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
MEANT = {"$__rate_interval": "5m", "$job": "pulse", "$topic": ".*"}
each_panel = pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])


def fill_in(expr: str) -> str:
    for variable, value in MEANT.items():
        expr = expr.replace(variable, value)
    assert "$" not in expr, f"a variable that is not one of the dashboard's: {expr}"
    return expr


def test_the_file_is_what_the_panels_say() -> None:
    assert make_dashboard() == BOARD, "run `python -m tools.dashboard`"


@each_panel
def test_a_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None


@each_panel
def test_a_panel_asks_for_metrics_that_there_are(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert used(target["expr"])
        assert used(target["expr"]) <= METRICS.keys()
        assert all(label in ("job", *METRICS[name].labels) for name, label in labels_used(target["expr"]))
        assert summed(target["expr"]) == []


def test_every_metric_is_shown() -> None:
    assert METRICS.keys() == {name for _, expr in EXPRESSIONS for name in used(expr)}


def test_nothing_is_bound_to_one_grafana() -> None:
    sources = {json.dumps(found) for found in _every(BOARD, "datasource")}

    assert sources == {json.dumps(SOURCE)}
    assert [variable["name"] for variable in BOARD["templating"]["list"]] == ["datasource", "job", "topic"]
    assert "id" not in BOARD


def _every(value: Any, key: str) -> list[Any]:
    if isinstance(value, list):
        return [found for each in value for found in _every(each, key)]
    if not isinstance(value, dict):
        return []
    own = [value[key]] if key in value else []
    return own + [found for each in value.values() for found in _every(each, key)]


def test_panels_do_not_overlap() -> None:
    taken = [
        (x, y)
        for panel in BOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


@needs("promtool", "Debian's prometheus")
def test_every_expression_finds_something(tmp_path: Path) -> None:
    """Each as a recording rule, over every series that two servers have: a wrong label would find nothing."""
    rules = [{"record": f"panel_{n}", "expr": fill_in(expr)} for n, (_, expr) in enumerate(EXPRESSIONS)]
    names = "count(count by (__name__) ({__name__=~'panel_.+'}))"
    check = {"expr": names, "eval_time": "20m", "exp_samples": [{"labels": "{}", "value": len(rules)}]}
    given = [{"series": name, "values": values} for name, values in series().items()]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": [check]}
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["panels.yml"], "tests": [test]}))

    run_program("promtool", "check", "rules", "panels.yml", cwd=tmp_path)
    run_program("promtool", "test", "rules", "test.yml", cwd=tmp_path)
