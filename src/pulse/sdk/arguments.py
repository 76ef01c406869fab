"""How do a function's arguments become JSON, and how are they read back as the types of its annotations?

A payload is one JSON object with an entry for each argument by name, so that SQL, a dashboard and other languages can
read and write it. It is read by the annotations when it is written, too: a wrong call fails where it is made.
"""

from __future__ import annotations

import inspect
import math
import re
from difflib import get_close_matches
from functools import cached_property
from inspect import Parameter
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from pulse.model.errors import InvalidArguments, InvalidResult, InvalidTask
from pulse.model.redaction import NO_REDACTION
from pulse.model.text import PAYLOAD_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from pulse.model.redaction import Redaction

_PLACE = re.compile(r" - at `(?:key in )?\$\.?(\w*)([^`]*)`$")
_SPREAD = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_UNNAMED = (Parameter.POSITIONAL_ONLY, *_SPREAD)
Call = tuple[tuple[Any, ...], dict[str, Any]]


class Arguments:
    """The parameters of one function, without the leading context."""

    def __init__(
        self,
        task: str,
        function: Callable[..., Any],
        *,
        takes_context: bool,
        redaction: Callable[[], Redaction] = lambda: NO_REDACTION,
    ) -> None:
        self._task = task
        self._redaction = redaction  # read when a payload is refused, since the error may quote a secret value
        self._function = function
        parameters = list(inspect.signature(function).parameters.values())[1 if takes_context else 0 :]
        self._signature = inspect.Signature(parameters)
        kinds = {parameter.kind for parameter in parameters}
        self._positional = [parameter.name for parameter in parameters if parameter.kind in _POSITIONAL]
        self._spread = next((p.name for p in parameters if p.kind is Parameter.VAR_POSITIONAL), None)
        self._extra = next((p.name for p in parameters if p.kind is Parameter.VAR_KEYWORD), None)
        self._has_only_names = kinds <= {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
        self._names = frozenset(parameter.name for parameter in parameters)
        self._is_empty = not parameters
        self._hint = "" if takes_context else _context_hint(parameters)
        self.required = [p.name for p in parameters if p.default is Parameter.empty and p.kind not in _SPREAD]

    # --- writing

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the payload of a call. A call that does not fit the function is refused, naming the parameter."""
        if self._is_empty and not args and not kwargs:
            return "{}"
        values = self._bind(args, kwargs)
        payload = write_json(values, lambda why: InvalidArguments(self._task, self._blame(values, why)))
        self._read(payload)
        return payload

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by name. The binding of `inspect` is several times slower, so plain calls avoid it."""
        is_plain = self._has_only_names and len(args) <= len(self._positional) and self._names.issuperset(kwargs)
        if is_plain and not (args and kwargs and not kwargs.keys().isdisjoint(self._positional[: len(args)])):
            return dict(zip(self._positional, args, strict=False)) | kwargs
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            why = self._name_unknown(len(args), kwargs) or f"{error};"
            raise InvalidArguments(self._task, self._with_hint(f"{why} it takes {self._signature}")) from None

    def _with_hint(self, why: str) -> str:
        return f"{why}{self._hint}" if why.startswith("missing a required") else why

    def _name_unknown(self, given: int, kwargs: dict[str, Any]) -> str | None:
        """Name an unknown argument, if any. A misspelt name also leaves a parameter without a value, but the name is
        the mistake to fix."""
        unknown = [name for name in kwargs if name not in self._names]
        if not unknown or self._extra:
            return None
        taken = {*self._positional[:given], *kwargs}
        parameters = self._signature.parameters.values()
        free = [p.name for p in parameters if p.kind not in _UNNAMED and p.name not in taken]
        near = get_close_matches(unknown[0], free, n=1)
        return f"unknown argument {unknown[0]!r};" + (f" did you mean {near[0]!r}?" if near else "")

    def _blame(self, values: dict[str, Any], why: str) -> str:
        for name, value in values.items():
            try:
                if complaint := _find_not_finite(value):
                    return f"argument {name!r} {complaint}"
                msgspec.json.encode(value, enc_hook=_write)
            except Exception:
                return f"argument {name!r} cannot be written as JSON: {why}"
        return why

    # --- reading

    def unpack(self, payload: str) -> Call:
        """Return the positional and keyword arguments to call the function with."""
        if self._is_empty and payload == "{}":
            return (), {}
        values: dict[str, Any] = msgspec.structs.asdict(self._read(payload))
        if msgspec.UNSET in values.values():
            values = {name: value for name, value in values.items() if value is not msgspec.UNSET}
        if self._has_only_names:
            return (), values
        return self._split(values)

    def _split(self, values: dict[str, Any]) -> Call:
        """Split the values by name into positional and keyword arguments."""
        extra = values.pop(self._extra, {}) if self._extra else {}
        spread = values.pop(self._spread, ()) if self._spread else ()
        if spread or not self._has_only_names:
            args = [values.pop(name) for name in self._positional if name in values]
            return (*args, *spread), values | extra
        return (), values | extra

    def _read(self, payload: str) -> msgspec.Struct:
        try:
            return self._decoder.decode(payload)
        except msgspec.ValidationError as error:
            raise InvalidArguments(
                self._task, self._redaction().text(self._with_hint(_explain(str(error))), payload)
            ) from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidArguments(self._task, f"the payload is not JSON: {error}") from None

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[msgspec.Struct]:
        """Build the decoder when it is first needed: an annotation may name a class defined further down the module."""
        hints = read_hints(self._task, self._function)
        fields = [
            _field(parameter, hints.get(parameter.name, Any)) for parameter in self._signature.parameters.values()
        ]
        try:
            kind = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
            return msgspec.json.Decoder(kind, dec_hook=_read_custom)
        except TypeError as error:
            raise InvalidTask(f"task {self._task!r} has a parameter that cannot be read from JSON: {error}") from None


class Result:
    """The return value of one function."""

    def __init__(
        self, task: str, function: Callable[..., Any], *, redaction: Callable[[], Redaction] = lambda: NO_REDACTION
    ) -> None:
        self._task = task
        self._function = function
        self._redaction = redaction

    def pack(self, value: object) -> str:
        if value is None:
            return "null"
        if value is True:
            return "true"
        text = write_json(value, lambda why: InvalidResult(f"its result cannot be written as JSON: {why}"))
        if len(text) > PAYLOAD_LIMIT:
            raise InvalidResult(
                f"its result is larger than {PAYLOAD_LIMIT >> 20} MiB: store it elsewhere and return a reference"
            )
        return text

    def unpack(self, text: str | None, job_id: UUID) -> Any:  # noqa: ANN401  its type is the function's
        """Return the result of a job as its annotation says. Workers store a result without checking it."""
        if text is None:
            return None
        try:
            return self._decoder.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            why = self._redaction().text(_plain(str(error)).replace(" - at $", " at "), text)
            raise InvalidResult(
                f"the result of job {job_id} must be what task {self._task!r} is annotated to return: {why}"
            ) from None

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        kind = read_hints(self._task, self._function).get("return", Any)
        try:
            return msgspec.json.Decoder(kind, dec_hook=_read_custom)
        except TypeError:  # the annotation cannot be read, but the result is JSON and can be returned as such
            return msgspec.json.Decoder(Any)


def read_hints(task: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        try:
            return get_type_hints(function, include_extras=True)
        except NameError as error:
            if error.name != "Context":
                raise
        # Context may be imported for type checkers only. That parameter is not in the payload, so any type will do.
        return get_type_hints(function, include_extras=True, localns={"Context": Any})
    except NameError as error:
        raise InvalidTask(f"an annotation of task {task!r} names something unknown: {error}") from None


def write_json(value: object, refuse: Callable[[str], Exception]) -> str:
    try:
        text = msgspec.json.encode(value, enc_hook=_write)
        complaint = _find_not_finite(value) if b"null" in text else None  # msgspec writes nan and inf as null
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise refuse(str(error)) from None
    if complaint:
        raise refuse(f"it {complaint}")
    return text.decode()


def _find_not_finite(value: object) -> str | None:
    """Return the complaint about the first nan or infinity in a value, or None if every number is finite."""
    left: list[tuple[str, Any]] = [("", msgspec.to_builtins(value, enc_hook=_write_or_skip))]
    while left:
        place, found = left.pop()
        if isinstance(found, float) and not math.isfinite(found):
            where = f"(in {place.lstrip('.')}) " if place else ""
            return f"{where}must be a finite number, not {found} (JSON has no such number)"
        if isinstance(found, dict):
            left += [(f"{place}.{key}", each) for key, each in found.items()]
        elif isinstance(found, list | tuple):
            left += [(f"{place}[{index}]", each) for index, each in enumerate(found)]
    return None


def _context_hint(parameters: Sequence[Parameter]) -> str:
    """Return a hint for a missing argument, if the first parameter was probably meant to be the context."""
    first = parameters[0] if parameters else None
    if first is None or first.name not in ("ctx", "context") or first.annotation is not Parameter.empty:
        return ""
    return f"; to be given the context, write `{first.name}: Context`"


def _field(parameter: Parameter, hint: Any) -> Any:  # noqa: ANN401
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return parameter.name, tuple[hint, ...] | msgspec.UnsetType, msgspec.UNSET
    if parameter.kind is Parameter.VAR_KEYWORD:
        return parameter.name, dict[str, hint] | msgspec.UnsetType, msgspec.UNSET
    if parameter.default is Parameter.empty:
        return parameter.name, hint
    return parameter.name, hint | msgspec.UnsetType if hint is not Any else Any, msgspec.UNSET


def _write(value: Any) -> Any:  # noqa: ANN401
    """Write a pydantic model as JSON, and refuse every other value that msgspec cannot write."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON, nor a type that can be written as JSON")


def _write_or_skip(value: Any) -> Any:  # noqa: ANN401
    """Write like `_write`, but skip raw JSON, in which every number is finite already."""
    return None if isinstance(value, msgspec.Raw) else _write(value)


def _read_custom(kind: type[Any], value: Any) -> Any:  # noqa: ANN401
    if hasattr(kind, "model_validate"):
        try:
            return kind.model_validate(value)
        except ValueError as error:
            raise ValueError(" ".join(str(error).split())) from None  # a message of pydantic has several lines
    raise ValueError(f"{kind.__name__} cannot be read from JSON: use a dataclass, or a msgspec or pydantic model")


def _explain(message: str) -> str:
    """Return the message of the parser, with the name of the parameter first."""
    if unknown := re.search(r"unknown field `(\w+)`$", message):
        return f"there is no parameter {unknown[1]!r}"
    if missing := re.search(r"missing required field `(\w+)`$", message):
        return f"missing a required argument: {missing[1]!r}"
    if (found := _PLACE.search(message)) and found[1]:
        rest = f" (in {found[2].lstrip('.')})" if found[2] else ""
        return f"argument {found[1]!r}{rest}: {_plain(message[: found.start()])}"
    return _plain(message)


def _plain(message: str) -> str:
    return message[:1].lower() + message[1:].replace("`", "")
