"""How the body of a request is read: every check of its form, before any of its meaning.

One parse serves all checks, so that of a key that is sent twice one value counts everywhere. A known field that is null
is an absent one, and the year 1 is no time: clients in other languages send unset values so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar, get_args

import msgspec

from harborage.protocol.errors import Code, ProtocolError

T = TypeVar("T", bound=msgspec.Struct)

MAX_DEPTH: Final = 128
"""How deep a body may be nested."""

ZERO_TIME: Final = "0001-01-01T00:00:00Z"
"""What stands for no time on the wire, in requests and in answers."""

_LEAST, _MOST = -(2**63), 2**64 - 1


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the object that a body spells.

    Raises:
        ProtocolError: `invalid_request`: it is no JSON object, is nested too deeply, or has a number outside 64 bits or
            half a surrogate pair. Nothing of it is quoted.
    """
    try:
        value = msgspec.json.decode(body)
    except RecursionError as error:
        raise _refusal(f"nested beyond {MAX_DEPTH} levels") from error
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise _refusal("not one JSON object in UTF-8") from error
    if not isinstance(value, dict):
        raise _refusal("not a JSON object")
    _check(value)
    return value


def _check(value: dict[str, Any]) -> None:
    """Accept a value that every later check can hold; walked without recursion, level by level."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        if not level:
            return
        level = [inner for one in level for inner in _children(one)]
    if level:
        raise _refusal(f"nested beyond {MAX_DEPTH} levels")


def _children(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    if isinstance(value, dict):
        for key in value:
            _check_leaf(key)
    found = value.values() if isinstance(value, dict) else value
    for inner in found:
        if isinstance(inner, dict | list):
            yield inner
        else:
            _check_leaf(inner)


def _check_leaf(value: Any) -> None:
    if isinstance(value, str):
        if not value.isascii():
            _check_text(value)
    elif isinstance(value, int | float) and not _LEAST <= value <= _MOST:
        raise _refusal("a number outside 64 bits")


def _check_text(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _refusal("half a surrogate pair in a text") from error


def read_request(fields: dict[str, Any], type: type[T], *, refuses_unknown_fields: bool) -> T:
    """Return the request that a parsed body spells.

    Raises:
        ProtocolError: `invalid_request`: a field has another type, or is not known where that is refused. The message
            names the field; a value is never quoted.
    """
    given = _prepared(fields, _plan(type), "$", refuses_unknown_fields)
    try:
        return msgspec.convert(given, type)
    except msgspec.ValidationError as error:
        raise _refusal(_without_value(str(error))) from error


class _Plan(msgspec.Struct, frozen=True):
    """Which fields of a struct are known, which of them are times, and which hold structs of their own."""

    times: frozenset[str]
    inner: Mapping[str, _Plan | None]


@cache
def _plan(type: type[msgspec.Struct]) -> _Plan:
    fields = msgspec.structs.fields(type)
    kinds = {field.encode_name: list(_kinds(field.type)) for field in fields}
    times = frozenset(name for name, found in kinds.items() if datetime in found)
    return _Plan(times, {name: next(map(_plan, filter(_is_struct, found)), None) for name, found in kinds.items()})


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of: those of a union, and of what a list or a map holds."""
    arguments = get_args(annotation)
    if not arguments:
        yield annotation
    for argument in arguments:
        yield from _kinds(argument)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _prepared(value: Any, plan: _Plan, path: str, refuses_unknown: bool) -> Any:
    """`value` without the known fields that are null or no time; what a field without a shape holds stays as it is."""
    if isinstance(value, list):
        return [_prepared(inner, plan, f"{path}[…]", refuses_unknown) for inner in value]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    for key, inner in value.items():
        if key not in plan.inner:
            if refuses_unknown:
                raise _refusal(f"unknown field at {path}; known are {', '.join(sorted(plan.inner)) or 'none'}")
        elif inner is not None and not (key in plan.times and inner == ZERO_TIME):
            below = plan.inner[key]
            kept[key] = inner if below is None else _prepared(inner, below, f"{path}.{key}", refuses_unknown)
    return kept


def _without_value(text: str) -> str:
    """What msgspec says of a wrong field, without the value that it quotes."""
    said, at, place = text.rpartition(" - at ")
    if said.startswith("Invalid enum value"):
        said = "no such value"
    return f"{said}{at}{place}" if said else place


def _refusal(why: str) -> ProtocolError:
    return ProtocolError(Code.INVALID_REQUEST, f"invalid request: {why}")
