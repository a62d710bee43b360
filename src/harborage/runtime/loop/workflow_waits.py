"""The waits that a workflow may call beside tools: for a time, and for the answer of a person. Pure above `io`.

Each is a step of its own, which holds no memory while it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.errors import error_text
from harborage.runtime.loop.arrivals import StepInterruptedError
from harborage.runtime.loop.errors import PayloadInvalidError
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome, failed
from harborage.tools.errors import ToolInvalidArgsError
from harborage.tools.inputs import InputAction, InputAnswer, InputQuestion

if TYPE_CHECKING:
    from harborage.planner import CallTool
    from harborage.runtime.loop.seam import Durable

SLEEP: Final = "workflow.sleep"
"""The call that waits for a time; no tool can have its name, and no model can call it."""

ASK: Final = "workflow.ask"
"""The call that waits for the answer of a person."""

RECEIVE: Final = "workflow.receive"
"""The call that waits for a message of the user."""

WAITS: Final = frozenset({SLEEP, ASK, RECEIVE})

TIMER_STEP: Final = "timer"
ASK_STEP: Final = "ask"
RECEIVE_STEP: Final = "receive"
WAIT_STEPS: Final = frozenset({TIMER_STEP, ASK_STEP, RECEIVE_STEP})


class Sleep(msgspec.Struct, frozen=True):
    """Until when a workflow sleeps."""

    until: datetime


class Receive(msgspec.Struct, frozen=True, omit_defaults=True):
    """Until when a workflow waits for a message; None is for ever."""

    until: datetime | None = None


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a workflow asks a person. `schema` is the JSON schema of the answer, `expires` until when it may come.

    A question that comes from a peer, not from the program, says so: `server` and `tool` name it, and with a `url` the
    person goes there, and answers whether that is done.
    """

    question: str
    schema: dict[str, Any] = {}
    expires: datetime | None = None
    server: str = ""
    tool: str = ""
    url: str = ""

    @property
    def payload(self) -> dict[str, Any]:
        """What the pause shows."""
        asked: dict[str, Any] = {"question": self.question, "schema": self.schema}
        if self.server:
            asked |= {"server": self.server, "tool": self.tool, "message": self.question}
        return asked | ({"url": self.url} if self.url else {})


class Answered(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a question: the value of the answer, or that a person refused one, or that none came in time."""

    value: Any = None
    is_expired: bool = False
    is_rejected: bool = False
    reason: str = ""


def value_of_answer(schema: Mapping[str, Any], payload: Mapping[str, Any]) -> Any:
    """The value of an answer: an `answer` as it is, of a typed `message` the JSON that fits, else its text.

    Raises:
        PayloadInvalidError: there is none, or it does not fit the schema; the text says why.
    """
    if "answer" in payload:
        return _fitting(schema, payload["answer"])
    text = payload.get("message")
    if not isinstance(text, str):
        raise PayloadInvalidError("the question waits for a value: send it with answer(value)", bound="answer")
    try:
        return _fitting(schema, codec.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError, PayloadInvalidError) as error:
        try:
            return _fitting(schema, text)
        except PayloadInvalidError as misfit:
            raise (error if isinstance(error, PayloadInvalidError) else misfit) from None


def _fitting(schema: Mapping[str, Any], value: Any) -> Any:
    from harborage.tools.schema import schema_validator  # loaded by the first answer

    try:
        schema_validator(dict(schema), "answer")(value)
    except ToolInvalidArgsError as error:
        text = f"the answer does not fit the question: {error_text(error)}"
        raise PayloadInvalidError(text, bound="answer") from error
    return value


async def wait_in_workflow(call: CallTool, io: Durable) -> ToolOutcome:
    """Wait for what the call names; its observation is None after a sleep, whether there is a message after a
    wait for one, else an `Answered`."""
    try:
        if call.tool == SLEEP:
            return ToolOutcome(OutcomeStatus.DONE, await io.step(TIMER_STEP, codec.decode(call.args, Sleep)))
        if call.tool == RECEIVE:
            return ToolOutcome(OutcomeStatus.DONE, await io.step(RECEIVE_STEP, codec.decode(call.args, Receive)))
        answered: Answered = await io.step(ASK_STEP, codec.decode(call.args, Question))
    except StepInterruptedError as cut:
        return failed(f"cancelled: {cut.reason}", OutcomeStatus.CANCELLED)
    return ToolOutcome(OutcomeStatus.DONE, codec.to_plain(answered))


def input_answer(question: InputQuestion, answered: Answered) -> InputAnswer:
    """The answer to a question of a peer: none in time is a cancellation, a refusal declines it."""
    if answered.is_expired:
        return InputAnswer(question.key, InputAction.CANCEL)
    is_refused = answered.is_rejected or (bool(question.url) and answered.value is not True)
    if is_refused:
        return InputAnswer(question.key, InputAction.DECLINE)
    return InputAnswer(question.key, InputAction.ACCEPT, None if question.url else answered.value)
