"""What a run asks a person, as interrupts, and the answers that come back with a later request.

The id of an interrupt names the run, how far its events were sent, and the question. So the request that answers it
goes on where the one before ended, also on another server, and one that is sent again is sent the same. The id is no
secret: who may answer, the identity of the request says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from harborage.server.ag_ui.errors import RefusedError
from harborage.server.ag_ui.events import Interrupt
from harborage.server.questions import Dropped, Value, read_verdict, takes_verdict

if TYPE_CHECKING:
    from harborage.runtime.pending import Question
    from harborage.server.ag_ui.inputs import Resume
    from harborage.server.questions import Answer

_APPROVAL_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string"},
        "editedArgs": {"type": "object"},
        "remember": {"enum": ["run", "always"]},
    },
    "required": ["approved"],
}


class Mark(msgspec.Struct, frozen=True):
    """The run of an interrupt, the number of the last of its events that was sent, and the token of the question."""

    run_id: str
    sequence: int
    token: str

    def __str__(self) -> str:
        return f"{self.run_id}:{self.sequence}:{self.token}"


def read_mark(id: str) -> Mark:
    """Return what the id of an interrupt names.

    Raises:
        RefusedError: it was not given out here.
    """
    run_id, _, rest = id.partition(":")
    number, _, token = rest.partition(":")
    if not (run_id and token and number.isascii() and number.isdigit() and len(number) < 19):
        raise RefusedError(404, "not_found", "there is no such run or question of yours")
    return Mark(run_id, int(number), token)


def interrupt(question: Question, run_id: str, sequence: int, call: str) -> Interrupt:
    """Return a question as what a client is sent."""
    deadline, schema = question.deadline, (question.pause.payload or {}).get("schema")
    is_verdict = takes_verdict(question)
    said = question.question or (f"{question.tool} waits for your approval" if question.tool else "")
    return Interrupt(
        id=str(Mark(run_id, sequence, question.token)),
        reason=("tool_call" if question.tool else "confirmation") if is_verdict else "input_required",
        message=said or UNSET,
        tool_call_id=call or UNSET,
        response_schema=_APPROVAL_SCHEMA if is_verdict else schema if isinstance(schema, dict) else UNSET,
        expires_at=UNSET if deadline is None else deadline.isoformat(),
        metadata={
            "harborage": {
                "runId": question.run_id,
                "token": question.token,
                **({"tool": question.tool, "args": question.args} if question.tool else {}),
            }
        },
    )


def answer_of(question: Question, answer: Resume) -> Answer:
    """Return what a client answers to a question.

    Raises:
        RefusedError, AnswerUnfitError: it has no answer to it.
    """
    if answer.status == "cancelled":
        return Dropped()
    if takes_verdict(question):
        return read_verdict(answer.payload)
    if answer.payload is None:
        raise RefusedError(message="the payload of resume is missing: it is the answer to the question")
    return Value(answer.payload)
