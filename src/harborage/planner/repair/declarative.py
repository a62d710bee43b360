"""Actions that a model wrote as text: how they are read, and `declarative_action`, the tool that runs one.

An action is a JSON object `{"tool": name, "args": object}`. The readers go from strict to lenient, and the first one
that finds an action wins: the whole text, an array, fenced code blocks, values scattered in prose. The tool is a way
out for models whose native calls go wrong, not a way around anything: it finds what the caller may call, it checks
arguments like every call, and it refuses what needs a person's approval. What goes wrong is in its result, never in an
exception, so that the model can correct it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NoReturn, NotRequired, TypeAlias, TypedDict

import msgspec

from harborage import codec
from harborage.identity import require_triple
from harborage.planner.errors import PlannerError
from harborage.planner.text import printable_name
from harborage.tools import (
    CallContext,
    Loading,
    SideEffect,
    Tool,
    ToolDescriptor,
    ToolInvalidArgsError,
    ToolPolicy,
    ToolResult,
    tool,
)

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


def find_json(text: str) -> Iterator[Any]:
    """Yield the JSON values that a model may have meant: all of the text, fenced blocks, objects and arrays in prose.

    The most likely one comes first; in prose that is the last one.
    """
    stripped = text.strip()
    prose = [value for value in _find_values(stripped) if value[0] in "{["]
    for one in (stripped, *(block.strip() for block in _FENCE.findall(stripped)), *reversed(prose)):
        try:
            yield codec.decode(one)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue


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


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_FENCE: Final = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_VALUE_START: Final = re.compile(r"[{\[\"\-0-9tfn]")
_object_fields: Final = msgspec.json.Decoder(_Fields)
_items: Final = msgspec.json.Decoder(list[_Fields])
_text: Final = msgspec.json.Decoder(str)
# The scanner only says where a value ends. Numbers are not converted: Python refuses very long ones.
_scanner: Final[Any] = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=str, parse_float=str)


DECLARATIVE_ACTION: Final = "declarative_action"

ToolInvoke: TypeAlias = Callable[[ToolDescriptor, bytes, CallContext], Awaitable[ToolResult]]
"""Calls a tool with these arguments the way its policy says: what `Invoker.invoke` does."""

_FINISH: Final = "_finish"
_TASK_CONTROLS: Final = frozenset({"_spawn_task", "_await_task"})


class RepairOutcome(TypedDict):
    """The mistakes of the model; a planner counts those that are true."""

    args_repaired: bool
    multi_action: bool
    finish_repair: bool


class DeclaredOutcome(TypedDict):
    """The outcome of the action: whether its tool was called, its result, or why it was not called."""

    dispatched: bool
    tool: NotRequired[str]
    observation: NotRequired[Any]
    error: NotRequired[str]
    repair_outcome: NotRequired[RepairOutcome]


def declarative_action(
    resolve: Callable[[str], ToolDescriptor | None],
    invoke: ToolInvoke,
    *,
    needs_approval: Callable[[str], bool],
) -> ToolDescriptor:
    """Return the tool over what `resolve` finds and `invoke` calls; it refuses what `needs_approval`.

    `resolve` returns None for what the caller may not call.
    """

    async def act(call: CallContext, tool: str = "", args: msgspec.Raw = _NO_ARGS, body: str = "") -> DeclaredOutcome:
        """Carry out one action written as JSON, when calling a tool directly does not work.

        Args:
            tool: the tool's exact name
            args: its arguments, as one object that matches the tool's schema
            body: instead of tool and args, text that holds one {"tool": …, "args": …}
        """
        require_triple(call.who, DECLARATIVE_ACTION)
        action = _parse_action(tool, bytes(args), body)
        if not isinstance(action, ToolAction):
            return action
        refusal = _check_reserved(action.tool)
        if refusal is not None:
            return refusal
        wanted = resolve(action.tool)
        if wanted is None:
            return _refuse(action.tool, f"there is no tool {printable_name(action.tool)!r}; use a name you were shown")
        if action.tool == DECLARATIVE_ACTION:
            return _refuse(action.tool, "an action cannot declare another one; name the tool itself")
        if needs_approval(action.tool):
            return _refuse(action.tool, f"{action.tool} needs a person's approval, so call it directly")
        return await _dispatch(wanted, action.args, call, invoke)

    return _open_args(tool(act, name=DECLARATIVE_ACTION, **_OPTIONS))


_NO_ARGS: Final = msgspec.Raw(b"{}")

_OPTIONS: Final[Any] = {
    "effects": SideEffect.STATEFUL,
    "loading": Loading.DEFERRED,
    "tags": ("builtin", "meta", "escape_hatch"),
    "source": "builtin",
    # The tool inside has a policy of its own; a second one around it would multiply attempts and cut deadlines.
    "policy": ToolPolicy(timeout_ms=0, max_retries=0),
}


def _open_args(descriptor: ToolDescriptor) -> ToolDescriptor:
    """Return the tool with `args` declared to models as an object; its body accepts anything and reports mistakes."""
    described: Tool = descriptor.tool
    properties = dict(described.args_schema["properties"])
    properties["args"] = {"type": "object", "description": properties["args"].get("description", ""), "default": {}}
    schema = {**described.args_schema, "properties": properties}
    return msgspec.structs.replace(descriptor, tool=msgspec.structs.replace(described, args_schema=schema))


def _parse_action(tool: str, args: bytes, body: str) -> ToolAction | DeclaredOutcome:
    """Return the one action, or why there is none; a tool that is named wins over the body."""
    if tool.strip():
        return ToolAction(tool.strip(), b"{}" if args.strip() in (b"", b"null") else args)
    if not body.strip():
        return _refuse_repairable(
            'name a tool with its args, or give a body with {"tool": …, "args": …}', "args_repaired"
        )
    try:
        actions = parse(body)
    except NoActionsFoundError as error:
        return _refuse_repairable(str(error), "args_repaired")
    if len(actions) > 1:
        return _refuse_repairable(
            f"the body holds {len(actions)} actions; none was carried out, send one", "multi_action"
        )
    return actions[0]


def _check_reserved(name: str) -> DeclaredOutcome | None:
    if name == _FINISH:
        return _refuse_repairable("to finish, answer in prose instead of calling a tool", "finish_repair", name)
    if name in _TASK_CONTROLS:
        return _refuse(name, f"{name} is a planner control and no tool; call it directly")
    return None


async def _dispatch(wanted: ToolDescriptor, args: bytes, call: CallContext, invoke: ToolInvoke) -> DeclaredOutcome:
    """Call the inner tool, under the same identity and an idempotency key of its own."""
    name = wanted.tool.name
    try:
        if wanted.validate_args is not None:
            wanted.validate_args(args)
    except ToolInvalidArgsError as error:
        return _refuse_repairable(f"the arguments of {name} are invalid: {error}", "args_repaired", name)
    key = f"{call.idempotency_key}/{name}" if call.idempotency_key else ""
    try:
        result = await invoke(wanted, args, msgspec.structs.replace(call, idempotency_key=key))
    except ToolInvalidArgsError as error:
        return _refuse_repairable(f"{name}: {error}", "args_repaired", name)
    except Exception as error:  # noqa: BLE001 - whatever the tool raises is shown to the model
        return _refuse(name, f"{name}: {str(error) or type(error).__name__}")
    value = {"meta": result.meta} if result.value is None and result.meta else result.value
    try:
        return DeclaredOutcome(dispatched=True, tool=name, observation=codec.to_plain(value, "observation"))
    except codec.UnserializableError as error:
        return DeclaredOutcome(dispatched=True, tool=name, error=f"{name} ran, but its result is not JSON: {error}")


def _refuse(name: str, error: str) -> DeclaredOutcome:
    return DeclaredOutcome(dispatched=False, tool=printable_name(name), error=error)


def _refuse_repairable(error: str, mistake: str, name: str = "") -> DeclaredOutcome:
    """Return a refusal that counts as a mistake of the model."""
    outcome = RepairOutcome(
        args_repaired=mistake == "args_repaired",
        multi_action=mistake == "multi_action",
        finish_repair=mistake == "finish_repair",
    )
    named = DeclaredOutcome(dispatched=False, tool=printable_name(name)) if name else DeclaredOutcome(dispatched=False)
    return {**named, "error": error, "repair_outcome": outcome}
