"""What a run asks a person, as interrupts, and the answers that come back with a later request.

The id of an interrupt names the run, how far its events were sent, and the question. So the request that answers it
goes on where the one before ended, also on another server, and one that is sent again is sent the same. The id is no
secret: who may answer, the identity of the request says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from harborage.planner import PauseReason
from harborage.runtime.loop.pauses import PauseDecision
from harborage.server.ag_ui.errors import RefusedError
from harborage.server.ag_ui.events import Interrupt

if TYPE_CHECKING:
    from harborage.runtime.loop.pauses import Pause
    from harborage.runtime.pending import Pending, Question
    from harborage.runtime.run import Run
    from harborage.server.ag_ui.inputs import Resume

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


def takes_verdict(question: Question) -> bool:
    """Whether yes or no answers a question."""
    payload = question.pause.payload or {}
    is_plain_approval = "schema" not in payload and question.reason is PauseReason.APPROVAL_REQUIRED
    return {"tool", "fingerprint"} <= payload.keys() or is_plain_approval


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


def is_question(pause: Pause) -> bool:
    """Whether a pause asks something; one that a control opened does not."""
    return (pause.payload or {}).get("requested_by") != "steering"


async def open_questions(run: Run[Any]) -> list[Pending]:
    """Return what a run and those below it ask a person, oldest first."""
    return [one for one in reversed(await run.pending()) if is_question(one.pause)]


def check_answer(question: Question, answer: Resume) -> None:
    """Accept an answer that fits its question.

    Raises:
        RefusedError: it does not, or the question was answered otherwise.
    """
    if answer.status == "resolved" and takes_verdict(question):
        _verdict(answer.payload)
    elif answer.status == "resolved" and answer.payload is None:
        raise RefusedError(message="the payload of resume is missing: it is the answer to the question")
    if not question.pause.is_paused and not _is_same(question, answer):
        raise RefusedError(409, "already_answered", "this interrupt was answered before, or too late")


async def send_answer(run: Run[Any], question: Question, answer: Resume) -> None:
    """Send an answer that was checked; a question that was answered so before is left as it is.

    Raises:
        Exception: as of `Run.approve`.
    """
    if not question.pause.is_paused:
        return
    if answer.status == "cancelled":
        await run.reject("cancelled by the user", token=question.token)
    elif takes_verdict(question):
        await _send_verdict(run, question.token, _verdict(answer.payload))
    else:
        await run.resume({"token": question.token, "answer": answer.payload})


class Verdict(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The payload that answers an approval."""

    approved: bool
    reason: str = ""
    edited_args: dict[str, Any] | None = None
    remember: str = ""


def _verdict(payload: Any) -> Verdict:
    if isinstance(payload, bool):
        return Verdict(payload)
    try:
        return msgspec.convert(payload, Verdict)
    except msgspec.ValidationError as error:
        raise RefusedError(message=f'the payload that answers an approval is {{"approved": true}}: {error}') from error


async def _send_verdict(run: Run[Any], token: str, said: Verdict) -> None:
    if said.approved:
        await run.approve(token, reason=said.reason, args=said.edited_args, remember=said.remember)
    else:
        await run.reject(said.reason, token=token)


def _is_same(question: Question, answer: Resume) -> bool:
    """Whether a question was answered by the very answer that comes again."""
    decision = question.pause.decision
    if answer.status == "cancelled":
        return decision is PauseDecision.REJECT
    if takes_verdict(question):
        wanted = PauseDecision.APPROVE if _verdict(answer.payload).approved else PauseDecision.REJECT
        return decision is wanted
    return bool((question.pause.payload or {}).get("answer") == answer.payload)
