"""Are the alerts what Prometheus knows, does each fire when it must and only then, and does each say what to do?"""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.deploy.metrics import METRICS, labels_used, summed, used
from tests.deploy.programs import DEPLOY, ROOT, needs, run_program

FOLDER = DEPLOY / "prometheus"
PAGE = (ROOT / "docs" / "operations" / "alerts.md").read_text()
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
TESTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
needs_promtool = needs("promtool", "Debian's prometheus")
each_alert = pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])


@needs_promtool
def test_prometheus_knows_the_rules_and_their_tests_pass() -> None:
    run_program("promtool", "check", "rules", "alerts.yml", cwd=FOLDER)
    run_program("promtool", "test", "rules", "alerts_test.yml", cwd=FOLDER)


@needs_promtool
def test_prometheus_knows_how_to_find_us() -> None:
    run_program("promtool", "check", "config", "--syntax-only", "scrape.yml", cwd=FOLDER)


@each_alert
def test_an_alert_asks_for_metrics_that_there_are(rule: dict[str, Any]) -> None:
    assert used(rule["expr"]) <= METRICS.keys()
    assert all(label in METRICS[name].labels for name, label in labels_used(rule["expr"]))
    assert summed(rule["expr"]) == []


@each_alert
def test_an_alert_is_tested_both_ways(rule: dict[str, Any]) -> None:
    checks = [check for test in TESTS for check in test["promql_expr_test"] if f'"{rule["alert"]}"' in check["expr"]]

    assert {bool(check["exp_samples"]) for check in checks} == {True, False}


@each_alert
def test_an_alert_says_what_to_do_and_where_it_is_explained(rule: dict[str, Any]) -> None:
    said = rule["annotations"]

    assert said.keys() == {"summary", "description", "runbook"}
    assert said["runbook"] == f"docs/operations/alerts.md#{rule['alert'].lower()}"
    assert rule["labels"]["severity"] in ("critical", "warning")


def test_every_alert_has_its_section_and_no_other_is_there() -> None:
    assert re.findall(r"^## (Pulse\w+)$", PAGE, re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_summing_what_every_server_tells_would_be_found() -> None:
    assert summed("sum(pulse_jobs)") == ["pulse_jobs"]
    assert summed("sum(rate(pulse_jobs_submitted_total[5m]))") == ["pulse_jobs_submitted_total"]
    assert summed("sum by (job) (max by (topic) (rate(pulse_jobs_submitted_total[5m])))") == []
    assert summed("max(pulse_workers) + sum(pulse_database_up)") == []
