"""What a run asks a person, as the text of a chat, and how the words that come back answer it.

A question carries a marker that names its run and its pause. The next request that brings it back goes on with that
run. Who may answer, the identity of the request says; the marker is no secret.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.planner import PauseReason
from harborage.runtime.durable.pauses.errors import PauseNotFoundError, PauseScopeMismatchError
from harborage.runtime.loop.pauses import PauseDecision
from harborage.server.openai.errors import RequestRefusedError, bad_input

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.loop.pauses import Pause
    from harborage.runtime.pending import Question
    from harborage.runtime.run import Run
    from harborage.server.services import Services

_MARKER: Final = re.compile(r"<!-- harborage:pause (\S{1,200}) (\S{1,200}) -->")
_YES: Final = re.compile(r"(approved?|yes|y|ok|okay|allow|confirm(ed)?|go ahead)[.!]*", re.IGNORECASE)
_NO: Final = re.compile(
    r"(?:(?:reject(?:ed)?|den(?:y|ied)|declined?)\b|no?(?=$|\s*[,.:;!–-]|\s+because\b))"
    r"[\s,.:;!–-]*(?:because\b\s*)?(?P<reason>.*)",
    re.IGNORECASE | re.DOTALL,
)
_BOOLEAN: Final = "boolean"


class Mark(msgspec.Struct, frozen=True):
    """Which pause of which run a text asks about."""

    run_id: str
    token: str


class Verdict(msgspec.Struct, frozen=True):
    """Yes, or no with a reason."""

    approves: bool
    reason: str = ""


def find_mark(text: str) -> Mark | None:
    """Return the last marker in a text."""
    found = _MARKER.findall(text)
    return Mark(*found[-1]) if found else None


def without_marks(text: str) -> str:
    """Return a text without its markers: a model that is shown none can write none under a text of its own."""
    return _MARKER.sub("", text).rstrip() if _MARKER.search(text) else text


def ending_comment(text: str) -> str:
    """Return what ends a comment of HTML that a text leaves open, which would hide the question behind it."""
    return "-->\n\n" if text.rfind("<!--") > text.rfind("-->") else ""


def read_verdict(text: str) -> Verdict | None:
    """Return what a text says to a question that takes yes or no; None where it says neither."""
    said = text.strip()
    if _YES.fullmatch(said):
        return Verdict(True)
    no = _NO.fullmatch(said)
    return None if no is None else Verdict(False, no["reason"].strip())


def is_approval(question: Question) -> bool:
    """Whether a call waits to be approved."""
    return {"tool", "fingerprint"} <= (question.pause.payload or {}).keys()


def takes_verdict(pause: Pause) -> bool:
    """Whether yes or no answers it."""
    payload = pause.payload or {}
    schema = payload.get("schema")
    is_boolean = isinstance(schema, dict) and schema.get("type") == _BOOLEAN
    is_call = {"tool", "fingerprint"} <= payload.keys()
    return is_call or is_boolean or (schema is None and pause.reason is PauseReason.APPROVAL_REQUIRED)


def question_text(question: Question) -> str:
    """Return what a person is asked."""
    if is_approval(question):
        args = codec.encode(question.args).decode()
        return f"`{question.tool}` waits for your approval:\n\n```json\n{args}\n```"
    text = question.question or f"The run waits: {question.reason}."
    if question.tool and question.tool not in text:
        text = f"{text}: `{question.tool}`"
    return text


def how_to_answer(question: Question) -> str:
    """Return which words answer a question."""
    if takes_verdict(question.pause):
        return "Answer `approve`, or `reject because …`."
    return "Your next message answers it."


def asking(run_id: str, question: Question, problem: str = "") -> str:
    """Return a question as the text of a chat, with what answers it and the marker of its pause."""
    parts = [problem, question_text(question), how_to_answer(question)]
    return "\n\n".join([*filter(None, parts), f"<!-- harborage:pause {run_id} {question.token} -->"])


async def find_pause(services: Services, run: Run[Any], token: str) -> Pause:
    """Return a pause of a run or of one below it.

    Raises:
        RequestRefusedError: the caller has none of this token.
    """
    try:
        return await services.parts.pauses.status(token, who=run.who)
    except (PauseNotFoundError, PauseScopeMismatchError) as error:
        raise RequestRefusedError(404, "no run of yours asks this", code="pause_not_found") from error


async def send_answer(run: Run[Any], pause: Pause, answer: Verdict | str) -> bool:
    """Answer a pause; return False for one that was answered so before, as by a request that is sent again.

    Raises:
        RequestRefusedError: it was answered otherwise, or takes another kind of answer.
        Exception: as of `Run.approve`.
    """
    takes_yes = takes_verdict(pause)
    if isinstance(answer, Verdict) and not takes_yes:
        raise bad_input("this question takes words, not yes or no: send a message of the user", "input")
    if not pause.is_paused:
        if _is_same(pause, answer):
            return False
        raise RequestRefusedError(409, "this was answered before, or too late", code="already_answered")
    is_value = isinstance((pause.payload or {}).get("schema"), dict)
    match answer:
        case Verdict() if is_value:
            return await run.resume({"token": pause.token, "answer": answer.approves})
        case Verdict(approves=True):
            return await run.approve(pause.token, reason=answer.reason)
        case Verdict():
            return await run.reject(answer.reason, token=pause.token)
        case str():
            return await run.resume({"token": pause.token, "message" if is_value else "answer": answer})


def _is_same(pause: Pause, answer: Verdict | str) -> bool:
    """Whether a pause was resolved by the very answer that comes again."""
    payload = pause.payload or {}
    match answer:
        case str():
            return answer in (payload.get("answer"), payload.get("message"))
        case Verdict() if pause.decision is PauseDecision.RESUME:
            return payload.get("answer") is answer.approves
        case Verdict():
            wanted = PauseDecision.APPROVE if answer.approves else PauseDecision.REJECT
            return pause.decision is wanted


async def find_run(services: Services, who: Identity, run_id: str) -> Run[Any]:
    """Return the handle on a run of the caller.

    Raises:
        RunNotFoundError: there is none.
    """
    return await services.runtime.run(run_id, who=who)
