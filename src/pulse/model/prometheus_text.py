"""How are metrics written for Prometheus? In its text format, which every scraper reads (version 0.0.4).

The format needs only these lines, while its library would bring a registry, collectors and metrics of its own. Tests
parse the output with that library.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = Mapping[str, str]


class Sample(NamedTuple):
    labels: Labels
    value: float
    suffix: str = ""


class Family(NamedTuple):
    """All samples of one metric."""

    name: str
    kind: str  # counter, gauge or histogram
    help: str
    samples: Sequence[Sample]


def write(families: Iterable[Family]) -> str:
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def buckets(labels: Labels, bounds: Sequence[float], counts: Sequence[int], total: float) -> Iterator[Sample]:
    """Yield the samples of a histogram. The last of the counts is of values above all bounds."""
    cumulative = 0
    for bound, count in zip([*bounds, math.inf], counts, strict=True):
        cumulative += count
        yield Sample({**labels, "le": _number(bound)}, cumulative, "_bucket")
    yield Sample(labels, total, "_sum")
    yield Sample(labels, cumulative, "_count")


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    for labels, value, suffix in family.samples:
        pairs = ",".join(f'{name}="{text.translate(ESCAPES)}"' for name, text in labels.items())
        yield f"{family.name}{suffix}{f'{{{pairs}}}' if pairs else ''} {_number(value)}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) else repr(float(value))
