"""The `hook.` effects: ask the hooks of an agent's capabilities, one after the other, and fold what they say.

A hook is code of a user that guards something, so whatever it does but answer is a refusal that says why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.callables import settled
from harborage.crashes import WorkCrashedError
from harborage.errors import HarborageError, error_reason
from harborage.events import EventType, RuntimeWarningPayload
from harborage.planner import CallTool, Finish, FinishReason
from harborage.runtime.durable.engine import RunLeftError
from harborage.runtime.durable.steps import Ask, Effect, StepCall
from harborage.runtime.effects.user_code import TimeLimitError
from harborage.runtime.loop.capabilities import (
    INSTRUCTIONS,
    OFFERED,
    AgentContext,
    Capability,
    Confirm,
    Deny,
    Ending,
    Guide,
    HookAnswer,
    Proceed,
    ToolCall,
    Transform,
    Verdict,
)
from harborage.runtime.loop.context import add_instructions
from harborage.runtime.loop.dispatch import Called
from harborage.tasks import TaskFailure
from harborage.tools import CatalogView
from harborage.tools.errors import failure_reason

if TYPE_CHECKING:
    from harborage.runtime.effects.hooks import Condition, Hooks
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.effects.services import AgentServices
    from harborage.runtime.loop.dispatch import Approval

HOOK_TIMEOUT_S: Final = 60.0
"""Seconds that a hook may take; one that takes longer has failed."""

_VERDICTS: Final = (Proceed, Deny, Guide, Confirm, Transform)
_NO_HOOKS: Final = (
    "a capability looked at it when the run started, and the agent that executes the run has none that does"
)


class InstructionsFailedError(HarborageError):
    """The function that gives an agent's instructions failed, took longer than 60 s, or gave no text; the run fails."""


class ConditionFailedError(HarborageError):
    """The `when=` of a tool failed, took longer than 60 s, or gave neither True nor False; the run fails."""


class HookFailedError(Exception):
    """A hook gave no verdict that can be followed; the text says which one and why."""


def hook_effects(
    services: AgentServices,
    live: Mapping[str, LiveRun],
    impossible: Callable[[LiveRun, CallTool], Approval | None],
) -> dict[str, Effect]:
    """The effects by name. `impossible` says why a call could not be made even if it were approved."""
    asking = _Asking(services, live, impossible)
    return {
        "hook.": Ask(run=asking.run, result=HookAnswer),
        INSTRUCTIONS: Ask(run=asking.instructions, result=str, recalled=asking.recall_instructions),
        OFFERED: Ask(run=asking.withheld, result=tuple[str, ...], recalled=asking.recall_withheld),
        "hook.after_run": Ask(run=asking.after_run, result=HookAnswer, is_interruptible=False),
    }


class _Asking:
    """Asks the hooks of one place after the other."""

    def __init__(
        self,
        services: AgentServices,
        live: Mapping[str, LiveRun],
        impossible: Callable[[LiveRun, CallTool], Approval | None],
    ) -> None:
        self._services = services
        self._live = live
        self._impossible = impossible

    async def run(self, call: StepCall) -> HookAnswer:
        """Ask the hooks that the name of the step says; what they fail with refuses."""
        live, hook = self._live[call.run_id], call.name.split(".", 2)[1]
        hooks = self._services.hooks
        if hooks is None or not hooks.having(hook):
            return HookAnswer(refusal=f"{hook}: {_NO_HOOKS}")
        try:
            match call.payload:
                case CallTool() as wanted:
                    return await self._before_tool(hooks, live, wanted)
                case Called() as called:
                    return await self._after_tool(hooks, live, called)
                case finish:
                    return await self._before_finish(hooks, live, finish)
        except HookFailedError as error:
            self._services.logger.warning("run %s: %s", call.run_id, error)
            return HookAnswer(refusal=str(error))

    async def _before_tool(self, hooks: Hooks, live: LiveRun, wanted: CallTool) -> HookAnswer:
        if (refused := self._impossible(live, wanted)) is not None:
            return HookAnswer(refusal=refused.refusal, code=refused.code)
        args, changed, questions = _arguments(wanted), False, list[str]()
        for capability in hooks.having("before_tool"):
            call = ToolCall(wanted.tool, args, wanted.call_id)
            match await ask_hook(self._services, hooks, live, capability, "before_tool", call):
                case Deny(reason):
                    return HookAnswer(refusal=f"the call was denied: {reason}")
                case Guide(advice):
                    return HookAnswer(advice=advice)
                case Confirm(question):
                    questions.append(question)
                case Transform(value):
                    args, changed = _plain(value, capability, "before_tool"), True
                    if not isinstance(args, dict):
                        raise _failed(capability, "before_tool", "Transform takes the arguments by name, as a dict")
                case Proceed():
                    pass
        return HookAnswer(value=args if changed else msgspec.UNSET, confirm="; ".join(questions))

    async def _after_tool(self, hooks: Hooks, live: LiveRun, called: Called) -> HookAnswer:
        seen, changed = called.outcome.seen, False
        if isinstance(seen, msgspec.Struct):
            seen = codec.to_plain(seen)
        call = ToolCall(called.call.tool, _arguments(called.call), called.call.call_id)
        for capability in hooks.having("after_tool"):
            match await ask_hook(self._services, hooks, live, capability, "after_tool", call, seen):
                case Deny(reason):
                    return HookAnswer(refusal=f"the result is withheld: {reason}")
                case Guide(advice):
                    return HookAnswer(advice=advice)
                case Transform(value):
                    seen, changed = _plain(value, capability, "after_tool"), True
                case Confirm():
                    raise _failed(capability, "after_tool", "only before_tool may return Confirm")
                case Proceed():
                    pass
        return HookAnswer(value=seen if changed else msgspec.UNSET)

    async def _before_finish(self, hooks: Hooks, live: LiveRun, finish: Finish) -> HookAnswer:
        changed = False
        for capability in hooks.having("before_finish"):
            try:
                output = hooks.output(finish)
            except Exception as error:
                raise _failed(capability, "before_finish", error_reason(error)) from error
            match await ask_hook(self._services, hooks, live, capability, "before_finish", output):
                case Deny(reason):
                    return HookAnswer(refusal=f"the answer was denied: {reason}")
                case Guide(advice):
                    return HookAnswer(advice=advice)
                case Transform(value):
                    try:
                        payload = hooks.payload(finish, value)
                    except Exception as error:
                        raise _failed(capability, "before_finish", f"Transform: {error_reason(error)}") from error
                    finish, changed = msgspec.structs.replace(finish, payload=payload), True
                case Confirm():
                    raise _failed(capability, "before_finish", "only before_tool may return Confirm")
                case Proceed():
                    pass
        return HookAnswer(value=finish.payload if changed else msgspec.UNSET)

    async def instructions(self, call: StepCall) -> str:
        """The instructions of the run that begins, added to what its planner is shown.

        Raises:
            InstructionsFailedError: the function gave none.
        """
        live, hooks = self._live[call.run_id], self._services.hooks
        if hooks is None or hooks.instructions is None:
            self._services.logger.warning("run %s: its agent has no function of instructions any more", call.run_id)
            return ""
        where = f"instructions: {getattr(hooks.instructions, '__name__', 'the function')}"
        text = await _guarded(self._services, live, where, partial(_instructions, hooks, live), InstructionsFailedError)
        if not isinstance(text, str):
            raise InstructionsFailedError(f"{where} failed: it returned {type(text).__name__}, not a text")
        self.recall_instructions(call, text)
        return text

    def recall_instructions(self, call: StepCall, text: str) -> None:
        """Let the planner of a run see its recorded instructions."""
        add_instructions(self._live[call.run_id].base, text)

    async def withheld(self, call: StepCall) -> tuple[str, ...]:
        """The tools that the run that begins is not offered, because they say so.

        Raises:
            ConditionFailedError: one did not say.
        """
        live, hooks = self._live[call.run_id], self._services.hooks
        names: list[str] = []
        if hooks is None:
            return ()
        for name, condition in hooks.conditions.items():
            where, ask = f"when= of the tool {name!r}", partial(_condition, hooks, live, condition)
            is_offered = await _guarded(self._services, live, where, ask, ConditionFailedError)
            if not isinstance(is_offered, bool):
                raise ConditionFailedError(
                    f"{where} failed: it returned {type(is_offered).__name__}, not True or False"
                )
            if not is_offered:
                names.append(name)
        self.recall_withheld(call, tuple(names))
        return tuple(names)

    def recall_withheld(self, call: StepCall, names: tuple[str, ...]) -> None:
        """Let the planner of a run see its tools without those that are not offered."""
        base = self._live[call.run_id].base
        if names and isinstance(base.catalog, CatalogView):
            base.catalog = base.catalog.without(names)

    async def after_run(self, call: StepCall) -> HookAnswer:
        """Tell every capability how the run ends; what one fails with is said, and keeps no other from hearing it."""
        live, hooks = self._live[call.run_id], self._services.hooks
        if hooks is None:
            return HookAnswer()
        failures: list[str] = []
        for capability in hooks.having("after_run"):
            try:
                await _called(self._services, hooks, live, capability, "after_run", _ending(hooks, call.payload))
            except HookFailedError as error:
                failures.append(str(error))
        if failures:
            text = "; ".join(failures)
            self._services.logger.warning("run %s: %s", call.run_id, text)
            warning = RuntimeWarningPayload(text, {"run_id": call.run_id})
            self._services.emit(EventType.RUNTIME_WARNING, live.base.quadruple, warning)
        return HookAnswer(refusal="; ".join(failures))


async def ask_hook(
    services: AgentServices, hooks: Hooks, live: LiveRun, capability: Capability, hook: str, *given: Any
) -> Verdict:
    """The verdict of one hook.

    Raises:
        HookFailedError: it gave none.
    """
    verdict = await _called(services, hooks, live, capability, hook, *given)
    if not isinstance(verdict, _VERDICTS):
        said = "None" if verdict is None else type(verdict).__name__
        names = ", ".join(one.__name__ for one in _VERDICTS)
        raise _failed(capability, hook, f"it returned {said}; return one of {names}")
    return verdict


async def _called(
    services: AgentServices, hooks: Hooks, live: LiveRun, capability: Capability, hook: str, *given: Any
) -> Any:
    """What one hook returned.

    Raises:
        HookFailedError: it raised, or took too long.
        RunLeftError: what the run depends on is not here.
    """

    async def call() -> Any:
        return await getattr(capability, hook)(await _context(hooks, live), *given)

    return await _guarded(services, live, f"{hook} of {type(capability).__name__}", call, HookFailedError)


async def _guarded(
    services: AgentServices, live: LiveRun, what: str, call: Callable[[], Awaitable[Any]], error_type: type[Exception]
) -> Any:
    """What code of the user returned, within its time.

    Raises:
        Exception: of the type `error_type`: it raised, or took too long.
        RunLeftError: what the run depends on is not here.
    """
    try:
        return await services.bounded(call(), HOOK_TIMEOUT_S, what, live.base.quadruple)
    except (RunLeftError, error_type):
        raise
    except (WorkCrashedError, TimeLimitError) as error:
        raise error_type(f"{what} failed: {error}") from error
    except Exception as error:
        raise error_type(f"{what} failed: {failure_reason(error)}") from error


async def _instructions(hooks: Hooks, live: LiveRun) -> object:
    assert hooks.instructions is not None
    return await settled(hooks.instructions(await _context(hooks, live)))


async def _condition(hooks: Hooks, live: LiveRun, condition: Condition) -> object:
    return await settled(condition(await _context(hooks, live)))


async def _context(hooks: Hooks, live: LiveRun) -> AgentContext[Any]:
    who, run = live.base.quadruple, live.state
    return AgentContext(
        who=who.identity,
        run_id=who.run_id,
        deps=await hooks.deps(who),
        goal=live.base.goal if run is None else run.goal,
        step=0 if run is None else run.steps,
    )


def _failed(capability: Capability, hook: str, why: str) -> HookFailedError:
    return HookFailedError(f"{hook} of {type(capability).__name__} failed: {why}")


def _arguments(call: CallTool) -> dict[str, Any]:
    """The arguments by name.

    Raises:
        HookFailedError: they are no JSON object, so that no hook can judge them.
    """
    try:
        decoded = codec.decode(call.args.strip() or b"{}")
    except msgspec.DecodeError as error:
        raise HookFailedError(f"the arguments of {call.tool!r} are no JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise HookFailedError(f"the arguments of {call.tool!r} are no JSON object")
    return decoded


def _plain(value: Any, capability: Capability, hook: str) -> Any:
    try:
        return codec.to_plain(value)
    except Exception as error:
        raise _failed(capability, hook, f"Transform: {error_reason(error)}") from error


def _ending(hooks: Hooks, end: Finish | TaskFailure) -> Ending:
    if isinstance(end, TaskFailure):
        return Ending(error=end.message)
    if end.reason is not FinishReason.GOAL:
        detail = (end.metadata or {}).get("detail")
        return Ending(error=str(detail or end.reason), reason=str(end.reason))
    return Ending(output=hooks.output(end), reason=str(end.reason))
