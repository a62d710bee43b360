"""`declarative_action`: the tool that runs an action which the model wrote as JSON, and reports what was wrong.

It is a way out for models whose native calls go wrong, not a way around anything: it finds what the caller may call, it
checks arguments like every call, and it refuses what needs a person's approval. What goes wrong is in its result,
never in an exception, so that the model can correct it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NotRequired, TypeAlias, TypedDict

import msgspec

from harborage import codec
from harborage.identity import require_triple
from harborage.planner.repair.parser import NoActionsFoundError, ToolAction, parse
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
    "side_effects": SideEffect.STATEFUL,
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
