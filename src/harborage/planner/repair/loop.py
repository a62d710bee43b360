"""The repair loop for models that write their actions as text: ask, read, validate, and ask again within limits.

One loop serves any number of runs; what belongs to a step lives in its call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from harborage.callables import require_sync
from harborage.events import ActionExtraFieldDroppedPayload, EventType
from harborage.planner.context import publish, require_identity
from harborage.planner.decisions import CallParallel, CallTool, Decision, JoinSpec
from harborage.planner.errors import InvalidConfigError, PlannerError
from harborage.planner.repair.attempts import (
    Attempts,
    RepairLimits,
    RepairSignals,
    add_correction,
    call_model,
    reset_stream,
    with_stream,
)
from harborage.planner.repair.declarative import NoActionsFoundError, Reading, ToolAction, read_actions
from harborage.planner.text import printable_name

if TYPE_CHECKING:
    from harborage.llm import CompleteRequest, LLMClient
    from harborage.planner.context import RunContext

ActionValidator: TypeAlias = Callable[[ToolAction], None]
"""Raises when an action cannot be applied; the message goes to the model."""

_CONTRACT: Final = (
    'Answer with one JSON object and nothing else: {"tool": "<name>", "args": {…}}. '
    "`tool` is the name of an available tool; `args` matches that tool's schema exactly."
)


class RunResult(msgspec.Struct, frozen=True):
    """The result of a step: the decision, the reasoning of the last answer, and what had to be repaired."""

    decision: Decision
    reasoning: str = ""
    repair: RepairSignals = RepairSignals()


class RepairLoop:
    """Turns a model's text into a call of tools, and asks again, within `limits`, when it cannot be used."""

    def __init__(
        self, *, repair_attempts: int = 0, max_consecutive_arg_failures: int = 0, arg_fill_enabled: bool = True
    ) -> None:
        self.limits = RepairLimits(
            repair_attempts=repair_attempts,
            max_consecutive_arg_failures=max_consecutive_arg_failures,
            arg_fill_enabled=arg_fill_enabled,
        )

    async def run(
        self,
        run: RunContext,
        client: LLMClient | None,
        request: CompleteRequest,
        validator: ActionValidator | None = None,
    ) -> RunResult:
        """Return the decision that the model's answer to `request` means, after corrections within the limits.

        Several actions become a parallel call. When the limits are used up the decision is `Finish(no_path)` with
        `followup` in its metadata; nothing is raised for what the model wrote.

        Raises:
            InvalidConfigError: there is no client.
            CallbackKindError: the validator is async.
            IdentityMissingError: a part of the run's identity is empty.
            asyncio.CancelledError: the caller was cancelled, before or between calls of the model.
            Exception: what the client raised, as it is; a failed call is not repeated.
        """
        if client is None:
            raise InvalidConfigError("the repair loop needs a model client")
        require_sync(validator, "validator")
        require_identity(run, "the repair loop")
        original = asked = with_stream(request, run.on_chunk)
        attempts = Attempts(self.limits)
        reasoning = ""
        while attempts.may_ask:
            if attempts.attempts:
                reset_stream(run)
            response = await call_model(run, client, asked)
            attempts.attempts += 1
            reasoning = response.reasoning
            try:
                reading = read_actions(response.content)
                _publish_dropped(run, reading)
                self._validate(reading, validator)
            except (NoActionsFoundError, _ActionRefusedError) as error:
                is_unread = isinstance(error, NoActionsFoundError)
                attempts.note(f"parser failed: {error}" if is_unread else str(error))
                asked = add_correction(
                    original, response.content, f"Your last answer was not used: {error}\n{_CONTRACT}"
                )
                continue
            is_multi = len(reading.actions) > 1
            return RunResult(_to_decision(reading), reasoning, RepairSignals(attempts.signals.args_repaired, is_multi))
        return RunResult(attempts.give_up(run), reasoning, attempts.signals)

    def _validate(self, reading: Reading, validator: ActionValidator | None) -> None:
        if validator is None or not self.limits.arg_fill_enabled:
            return
        for action in reading.actions:
            try:
                validator(action)
            except Exception as error:
                text = str(error) or type(error).__name__
                raise _ActionRefusedError(f"tool={printable_name(action.tool)} arg-validation: {text}") from error


class _ActionRefusedError(PlannerError):
    """The validator refused an action; the text names it."""


def _to_decision(reading: Reading) -> Decision:
    calls = tuple(CallTool(action.tool, action.args) for action in reading.actions)
    return calls[0] if len(calls) == 1 else CallParallel(calls, JoinSpec())


def _publish_dropped(run: RunContext, reading: Reading) -> None:
    for field in reading.dropped:
        dropped = ActionExtraFieldDroppedPayload(identity=run.quadruple, field=field, occurred_at=run.now())
        publish(run, EventType.PLANNER_ACTION_EXTRA_FIELD_DROPPED, dropped)
