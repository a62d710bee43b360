"""Reads the actions out of what a model wrote, however it wrapped them. Pure.

An action is a JSON object `{"tool": name, "args": object}`. The readers go from strict to lenient, and the first one
that finds an action wins: the whole text, an array, fenced code blocks, values scattered in prose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import msgspec

from harborage.planner.errors import PlannerError

LEGACY_FIELDS: Final = ("reasoning", "thought")
"""Fields that actions once had; they are ignored and reported."""


class NoActionsFoundError(PlannerError):
    """The text holds no action: write one JSON object with a non-empty string "tool" and an object "args"."""


class ToolAction(msgspec.Struct, frozen=True):
    """One action: the tool, and its arguments byte for byte as the model wrote them."""

    tool: str
    args: bytes = b"{}"


class Reading(msgspec.Struct, frozen=True):
    """Every action of a text in order, and the legacy fields that were dropped from them."""

    actions: tuple[ToolAction, ...] = ()
    dropped: tuple[str, ...] = ()


_Fields = dict[str, msgspec.Raw]


def parse(text: str) -> list[ToolAction]:
    """Return the actions in `text`, in order.

    Raises:
        NoActionsFoundError: there is none.
    """
    return list(read_actions(text).actions)


def dropped_extra_fields(text: str) -> list[str]:
    """Return the legacy fields of the actions in `text`, each once an action; empty without an action."""
    try:
        return list(read_actions(text).dropped)
    except NoActionsFoundError:
        return []


def read_actions(text: str) -> Reading:
    """Return the actions in `text` and the fields dropped from them, by the first reader that finds any.

    Raises:
        NoActionsFoundError: there is none.
    """
    stripped = text.strip()
    found = _read_value(stripped) or _read_fences(stripped) or _read_prose(stripped)
    if not found:
        raise NoActionsFoundError
    return Reading(
        actions=tuple(_to_action(fields) for fields in found),
        dropped=tuple(name for fields in found for name in LEGACY_FIELDS if name in fields),
    )


def _read_value(text: str) -> list[_Fields]:
    """Return the actions of one whole JSON value: an object that is one, or an array that holds some."""
    encoded = text.encode("utf-8", "replace")
    if encoded[:1] == b"[":
        return _read_array(encoded)
    fields = _decode_object(encoded)
    return [fields] if fields is not None and _decode_tool(fields) else []


def _read_array(encoded: bytes) -> list[_Fields]:
    """Return the entries of an array that are actions; none if one is no object, or its tool is no text."""
    try:
        items = _items.decode(encoded)
    except (msgspec.DecodeError, RecursionError):
        return []
    for fields in items:
        if "tool" in fields and _decode_tool(fields) is None:
            return []
    return [fields for fields in items if _decode_tool(fields)]


def _read_fences(text: str) -> list[_Fields]:
    return [fields for block in _FENCE.findall(text) for fields in _read_value(block.strip())]


def _read_prose(text: str) -> list[_Fields]:
    return [fields for value in _find_values(text) for fields in _read_value(value)]


def _find_values(text: str) -> Iterator[str]:
    """Yield every JSON value in `text`, but not those inside another one."""
    at = 0
    while (start := _VALUE_START.search(text, at)) is not None:
        try:
            _, at = _scanner.raw_decode(text, start.start())
        except ValueError:
            at = start.start() + 1
            continue
        except RecursionError:
            return  # nested too deeply; trying again at each bracket would take too long
        yield text[start.start() : at]


def _decode_object(encoded: bytes) -> _Fields | None:
    try:
        return _object_fields.decode(encoded)
    except (msgspec.DecodeError, RecursionError):
        return None


def _decode_tool(fields: _Fields) -> str | None:
    """Return the tool that an object names; empty when it names none, None when its `tool` is no text."""
    if "tool" not in fields:
        return ""
    try:
        return _text.decode(fields["tool"])
    except msgspec.DecodeError:
        return None


def _to_action(fields: _Fields) -> ToolAction:
    args = bytes(fields.get("args", b"{}"))
    return ToolAction(_decode_tool(fields) or "", b"{}" if args == b"null" else args)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_FENCE: Final = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_VALUE_START: Final = re.compile(r"[{\[\"\-0-9tfn]")
_object_fields: Final = msgspec.json.Decoder(_Fields)
_items: Final = msgspec.json.Decoder(list[_Fields])
_text: Final = msgspec.json.Decoder(str)
# The scanner only says where a value ends. Numbers are not converted: Python refuses very long ones.
_scanner: Final[Any] = json.JSONDecoder(parse_constant=_refuse, parse_int=str, parse_float=str)
