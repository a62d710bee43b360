"""How large and how deep a control's payload may be, and the check of it.

Pure. A payload that breaks a bound is refused whole: nothing here truncates, converts or changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harborage import codec
from harborage.runtime.loop.controls import Remember
from harborage.runtime.loop.errors import PayloadInvalidError, UnsupportedPayloadValueError

_REMEMBERED = frozenset(Remember)

MAX_PAYLOAD_DEPTH = 6
"""Levels of dicts and lists; the payload itself is the first."""
MAX_PAYLOAD_KEYS = 64
"""Keys of one dict."""
MAX_PAYLOAD_LIST_ITEMS = 50
"""Items of one list."""
MAX_PAYLOAD_STRING_LEN = 4096
"""Code points of one string value; keys are bounded by the total alone."""
MAX_PAYLOAD_TOTAL_BYTES = 16 * 1024
"""Bytes of the payload's canonical JSON."""


def validate_answer(payload: dict[str, Any] | None) -> None:
    """Accept the payload of an approval, rejection or RESUME, whose keys have these types where they are there.

    Raises:
        PayloadInvalidError: one has another type, or `args` and `args_patch` are both there.
    """
    body = {} if payload is None else payload
    token = body.get("token")
    if token is not None and not isinstance(token, str):
        raise _no_answer("token", "is the text that names a pause")
    for name in ("args", "args_patch"):
        if body.get(name) is not None and not isinstance(body[name], dict):
            raise _no_answer(name, "is a JSON object of arguments")
    if body.get("args") is not None and body.get("args_patch") is not None:
        raise _no_answer("args_patch", "changes some arguments and args replaces all; send one of them")
    if body.get("remember") is not None and body["remember"] not in _REMEMBERED:
        raise _no_answer("remember", "is run or always")


def body_for(asked: Mapping[str, Any] | None, body: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of an answer for the pause with the payload `asked`.

    `args` that name every argument of the call replace them; those that name some are sent as a change of these alone,
    each of which gets the whole new value.

    Raises:
        PayloadInvalidError: the tool does not take them; the text says why.
    """
    pause, args = asked or {}, body.get("args")
    if not isinstance(args, dict):
        return body
    schema, summary = pause.get("args_schema"), pause.get("args_summary")
    before = summary.get("args") if isinstance(summary, dict) else None
    is_part = isinstance(before, dict) and not before.keys() <= args.keys()
    if isinstance(schema, dict):
        _check_args(str(pause.get("tool")), args, {**schema, "required": []} if is_part else schema, is_part=is_part)
    if not is_part or not isinstance(before, dict):
        return body
    rest = {name: value for name, value in body.items() if name != "args"}
    return {**rest, "args_patch": {name: _replacing(value, before.get(name)) for name, value in args.items()}}


def _check_args(tool: str, args: dict[str, Any], schema: dict[str, Any], *, is_part: bool) -> None:
    from harborage.tools.errors import ToolInvalidArgsError, UnsupportedTypeError  # loaded by the first edit
    from harborage.tools.schema import schema_validator

    given = {name: value for name, value in args.items() if not (is_part and value is None)}
    try:
        schema_validator(schema, "args_schema")(given)
    except ToolInvalidArgsError as error:
        text = f"approve: args: {tool} does not take these arguments: {error}; nothing was sent"
        raise PayloadInvalidError(text, bound="args") from error
    except UnsupportedTypeError:
        return  # only the worker that makes the call can check them


def _replacing(value: Any, before: Any) -> Any:
    """A merge patch by which a value takes the place of another: what an object has no more is taken out."""
    if not isinstance(value, dict) or not isinstance(before, dict):
        return value
    gone = dict.fromkeys(name for name in before if name not in value)
    return {**gone, **{name: _replacing(one, before.get(name)) for name, one in value.items()}}


def _no_answer(name: str, fix: str) -> PayloadInvalidError:
    return PayloadInvalidError(f"control payload: {name} {fix}, or is left out", bound=name)


def validate_payload(payload: dict[str, Any] | None) -> None:
    """Accept a payload within its bounds; None and the empty payload are within them.

    The total is checked first, then the values in document order.

    Raises:
        PayloadInvalidError: a bound is broken; the message names it.
        UnsupportedPayloadValueError: something inside is not None, bool, int, float, str, list, or dict keyed by str.
    """
    if payload is None:
        return
    _bound("total", "bytes of canonical JSON", _total(payload), MAX_PAYLOAD_TOTAL_BYTES)
    if not isinstance(payload, dict):
        raise _unsupported(payload)
    _check(payload, 1)


def _total(payload: dict[str, Any]) -> int:
    try:
        return codec.canonical_size(payload, "payload")
    except codec.UnserializableError as error:
        if not isinstance(error.__cause__, RecursionError):
            raise UnsupportedPayloadValueError() from error
        # JSON could hold it, but it is nested so far beyond the bound that measuring it takes too much stack.
        raise PayloadInvalidError(
            f"control payload: nested too deeply to measure, at most {MAX_PAYLOAD_DEPTH} levels are allowed",
            bound="depth",
            limit=MAX_PAYLOAD_DEPTH,
        ) from error


def _check(value: Any, depth: int) -> None:
    """Walk `value`, whose level is `depth` if it is a container; the size check before has excluded cycles."""
    if isinstance(value, str):
        _bound("string", "characters in one string", len(value), MAX_PAYLOAD_STRING_LEN)
    elif isinstance(value, dict):
        _bound("depth", "levels of nesting", depth, MAX_PAYLOAD_DEPTH)
        _bound("keys", "keys in one dict", len(value), MAX_PAYLOAD_KEYS)
        for key, inner in value.items():
            if not isinstance(key, str):
                raise _unsupported(key)
            _check(inner, depth + 1)
    elif isinstance(value, list):
        _bound("depth", "levels of nesting", depth, MAX_PAYLOAD_DEPTH)
        _bound("items", "items in one list", len(value), MAX_PAYLOAD_LIST_ITEMS)
        for inner in value:
            _check(inner, depth + 1)
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise _unsupported(value)


def _bound(name: str, unit: str, actual: int, limit: int) -> None:
    if actual > limit:
        raise PayloadInvalidError(
            f"control payload: {actual} {unit}, at most {limit} are allowed", bound=name, limit=limit, actual=actual
        )


def _unsupported(value: Any) -> UnsupportedPayloadValueError:
    return UnsupportedPayloadValueError(
        f"control payload: {type(value).__name__} is not accepted; "
        "use None, bool, int, float, str, list, and dict with string keys"
    )
