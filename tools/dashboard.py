"""Write deploy/grafana/pulse.json from tools/panels.py, or see whether it is: `python -m tools.dashboard [--check]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tools.panels import ROWS, Panel

FILE = Path(__file__).parents[1] / "deploy" / "grafana" / "pulse.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24  # of Grafana's grid
Json = dict[str, Any]


def make_dashboard() -> Json:
    panels: list[Json] = []
    top = 0
    for title, row in ROWS:
        panels.append(_row(title, top, len(panels)))
        top += 1
        for line in _lines(row):
            left = 0
            for panel in line:
                panels.append(_panel(panel, left, top, len(panels)))
                left += panel.width
            top += max(panel.height for panel in line)
    return {
        "uid": "pulse",
        "title": "Pulse",
        "description": "Jobs, schedules and alarms of one installation. The topic filters the panels about topics.",
        "tags": ["pulse"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,  # one crosshair for all
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": [_firing()]},
        "links": [],
        "panels": panels,
    }


def _lines(row: list[Panel]) -> list[list[Panel]]:
    """As many panels beside each other as fit."""
    lines: list[list[Panel]] = [[]]
    for panel in row:
        if sum(each.width for each in lines[-1]) + panel.width > WIDTH:
            lines.append([])
        lines[-1].append(panel)
    return lines


def _row(title: str, top: int, number: int) -> Json:
    place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
    return {"id": number + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(panel: Panel, left: int, top: int, number: int) -> Json:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend,
            "instant": panel.is_instant,
            "range": not panel.is_instant,
            "format": "table" if panel.kind == "table" else "time_series",
        }
        for index, query in enumerate(panel.queries)
    ]
    return {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"x": left, "y": top, "w": panel.width, "h": panel.height},
        "targets": targets,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _columns(panel)},
        "options": OPTIONS[panel.kind],
        **({"transformations": _joined(panel)} if panel.kind == "table" else {}),
    }


OPTIONS: dict[str, Json] = {
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background",
        "graphMode": "area",
        "textMode": "auto",
    },
    "timeseries": {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
}


def _defaults(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    steps += [{"color": color, "value": value} for value, color in panel.steps]
    shown: Json = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    shown["color"] = {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"}
    if panel.most is not None:
        shown |= {"min": 0, "max": panel.most}
    elif panel.kind == "timeseries":
        shown["min"] = 0
    if panel.kind == "timeseries":
        style = "dashed" if panel.steps else "off"
        shown["custom"] = {"lineWidth": 1, "fillOpacity": 10, "thresholdsStyle": {"mode": style}}
    if panel.words:
        options = {
            str(value): {"text": text, "index": index} for index, (value, text) in enumerate(panel.words.items())
        }
        shown["mappings"] = [{"type": "value", "options": options}]
    return shown


def _columns(panel: Panel) -> list[Json]:
    """Of a table: each query is a column, with a unit of its own."""
    if panel.kind != "table":
        return []
    return [
        {
            "matcher": {"id": "byName", "options": f"Value #{chr(ord('A') + index)}"},
            "properties": [{"id": "displayName", "value": query.legend}, {"id": "unit", "value": query.unit}],
        }
        for index, query in enumerate(panel.queries)
    ]


def _joined(panel: Panel) -> list[Json]:
    hidden: Json = {"Time": True}
    if len(panel.queries) == 1:
        return [{"id": "organize", "options": {"excludeByName": hidden | {"Value": True}}}]
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": {"excludeByName": hidden}}]


def _variables() -> list[Json]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0},
        _values("job", "Installation", "label_values(pulse_build_info, job)", several=False),
        _values("topic", "Topic", 'label_values(pulse_jobs{job="$job"}, topic)', several=True),
    ]


def _values(name: str, label: str, query: str, *, several: bool) -> Json:
    found: Json = {"name": name, "label": label, "type": "query", "datasource": SOURCE, "hide": 0, "sort": 1}
    found |= {"query": {"query": query, "refId": name}, "definition": query, "refresh": 2, "multi": several}
    if several:
        found |= {"includeAll": True, "allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}}
    return found


def _firing() -> Json:
    """Alerts of deploy/prometheus, drawn over every graph."""
    return {
        "name": "Alerts",
        "datasource": SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertname=~"Pulse.+", alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{topic}} {{instance}}",
        "step": "60s",
    }


def main() -> int:
    text = json.dumps(make_dashboard(), indent=2, ensure_ascii=False) + "\n"
    if "--check" not in sys.argv:
        FILE.write_text(text)
        return 0
    if FILE.read_text() != text:
        sys.stderr.write(f"{FILE.name} is not what tools/panels.py says: run `python -m tools.dashboard`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
