"""How is a retry policy drawn as the fields of a form, read from them, and described to people?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pulse.doors.dashboard import form_fields as fields
from pulse.model.errors import InvalidOption
from pulse.model.jobs import RetryPolicy
from pulse.timing.duration import format_duration

KINDS = {  # each kind, with the fields it uses beside the two that all kinds use
    "quadratic": ("base",),
    "exponential": ("base", "factor"),
    "fixed": ("base",),
    "list": ("delays",),
}


def draw_retry(policy: RetryPolicy | None) -> dict[str, str]:
    """Return the fields of a policy; None is the default policy."""
    known = policy or RetryPolicy()
    return {
        "retry_kind": known.kind,
        "retry_base": _length(known.base),
        "retry_factor": _number(known.factor),
        "retry_delays": ", ".join(map(_length, known.delays)),
        "retry_max_delay": _length(known.max_delay),
        "retry_jitter": _number(known.jitter),
    }


def read_retry(form: Mapping[str, str]) -> RetryPolicy | None:
    kind = fields.text_of(form, "retry_kind") or RetryPolicy().kind
    if kind not in KINDS:
        raise InvalidOption("retry kind", kind[:40], f"be one of {', '.join(KINDS)}")
    given: dict[str, Any] = {name: _read(form, name) for name in (*KINDS[kind], "max_delay", "jitter")}
    policy = RetryPolicy(kind=kind, **{name: value for name, value in given.items() if value is not None})
    return None if policy == RetryPolicy() else policy


def _read(form: Mapping[str, str], name: str) -> float | tuple[float, ...] | None:
    field = f"retry_{name}"
    if name in ("factor", "jitter"):
        return fields.decimal(form, field)
    if name == "delays":
        return tuple(_seconds({field: each}, field) or 0.0 for each in fields.values_of(form, field))
    return _seconds(form, field)


def _seconds(form: Mapping[str, str], name: str) -> float | None:
    found = fields.length(form, name)
    return None if found is None else found.total_seconds()


def describe_retry(policy: RetryPolicy) -> str:
    base = _length(policy.base)
    match policy.kind:
        case "list":
            text = ", ".join(map(_length, policy.delays)) + " from then on"
        case "fixed":
            text = f"{base} each time"
        case "exponential":
            text = f"{base}, then {_number(policy.factor)} times the previous wait"
        case _:
            text = f"{base} × the square of the attempt"
    return f"{text}; at most {_length(policy.max_delay)}, ± {policy.jitter:.0%}"


def _length(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))


def _number(value: float) -> str:
    return str(value).removesuffix(".0")
