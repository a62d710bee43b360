"""What runs ask a person, and the answers: one set of rules for every way in that asks and takes answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

import msgspec

from harborage import codec
from harborage.errors import HarborageError
from harborage.planner import PauseReason
from harborage.runtime.loop.controls import ControlType
from harborage.runtime.loop.pauses import PauseDecision
from harborage.runtime.loop.payload import body_for
from harborage.runtime.pending import Question

if TYPE_CHECKING:
    from harborage.runtime.loop.pauses import Pause
    from harborage.runtime.pending import Pending
    from harborage.runtime.run import Run

_YES: Final = re.compile(r"(approved?|yes|y|ok|okay|allow|confirm(ed)?|go ahead)[.!]*", re.IGNORECASE)
_NO: Final = re.compile(
    r"(?:(?:reject(?:ed)?|den(?:y|ied)|declined?)\b|no?(?=$|\s*[,.:;!–-]|\s+because\b))"
    r"[\s,.:;!–-]*(?:because\b\s*)?(?P<reason>.*)",
    re.IGNORECASE | re.DOTALL,
)
_BOOLEAN: Final = "boolean"


class AnswerUnfitError(HarborageError):
    """A question takes another kind of answer."""


class AnsweredBeforeError(HarborageError):
    """A question was answered otherwise before, or too late."""


class Verdict(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"approves": "approved", "args": "editedArgs"},
):
    """Yes or no to a question.

    With yes, `args` replace the arguments of the call, and `remember` lets later calls pass: `run` those of the run,
    `always` the same ones of the principal.
    """

    approves: bool
    reason: str = ""
    args: dict[str, Any] | None = None
    remember: str = ""


class Words(msgspec.Struct, frozen=True):
    """Words of a person, which are read as the type that a question takes."""

    text: str


class Value(msgspec.Struct, frozen=True):
    """The value that a question takes."""

    value: Any


class Dropped(msgspec.Struct, frozen=True):
    """Nobody will answer."""

    reason: str = "cancelled by the user"


Answer: TypeAlias = Verdict | Words | Value | Dropped


# ── Questions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_question(pause: Pause) -> bool:
    """Whether a pause asks something; one that a control opened does not."""
    return (pause.payload or {}).get("requested_by") != "steering"


async def open_questions(run: Run[Any]) -> list[Pending]:
    """Return what a run and those below it ask a person, oldest first."""
    return [one for one in reversed(await run.pending()) if is_question(one.pause)]


async def is_asking(run: Run[Any]) -> bool:
    """Whether a person must answer something before the run goes on."""
    return bool(await open_questions(run))


def is_approval(question: Question) -> bool:
    """Whether a call waits to be approved."""
    return _is_of_call(question.pause)


def takes_verdict(question: Question) -> bool:
    """Whether a question is an approval, of a call or of anything else."""
    pause = question.pause
    return _is_of_call(pause) or (schema_of(pause) is None and pause.reason is PauseReason.APPROVAL_REQUIRED)


def takes_yes_or_no(question: Question) -> bool:
    """Whether yes or no answers it: an approval, or a question whose value is true or false."""
    return takes_verdict(question) or (schema_of(question.pause) or {}).get("type") == _BOOLEAN


def schema_of(pause: Pause) -> dict[str, Any] | None:
    """Return the JSON Schema of the value that a question takes; None where it takes any, or a verdict."""
    schema = (pause.payload or {}).get("schema")
    return schema if isinstance(schema, dict) else None


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
    if takes_yes_or_no(question):
        return "Answer `approve`, or `reject because …`."
    return "Your next message answers it."


def _is_of_call(pause: Pause) -> bool:
    return {"tool", "fingerprint"} <= (pause.payload or {}).keys()


# ── Answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_words(text: str) -> Verdict | None:
    """Return what a text says to a question that takes yes or no; None where it says neither."""
    said = text.strip()
    if _YES.fullmatch(said):
        return Verdict(True)
    no = _NO.fullmatch(said)
    return None if no is None else Verdict(False, no["reason"].strip())


def read_verdict(payload: Any) -> Verdict:
    """Return a verdict that was sent as JSON: true or false, or an object with `approved`.

    Raises:
        AnswerUnfitError: it is neither.
    """
    if isinstance(payload, bool):
        return Verdict(payload)
    try:
        return msgspec.convert(payload, Verdict)
    except msgspec.ValidationError as error:
        text = f'the payload that answers an approval is {{"approved": true}}: {error}'
        raise AnswerUnfitError(text) from error


def check_answer(pause: Pause, answer: Answer) -> bool:
    """Accept an answer that fits its question; return False for one that was given before, as by a repeated request.

    Raises:
        AnswerUnfitError: the question takes words, not yes or no.
        AnsweredBeforeError: it was answered otherwise, or too late.
    """
    if isinstance(answer, Verdict) and not takes_yes_or_no(Question(pause)):
        raise AnswerUnfitError("this question takes words, not yes or no: send a message of the user")
    if pause.is_paused:
        return True
    if not _is_same(pause, answer):
        raise AnsweredBeforeError("this was answered before, or too late")
    return False


async def send_answer(run: Run[Any], pause: Pause, answer: Answer, *, event_id: str = "") -> bool:
    """Send an answer; return False for one that was sent before. `event_id` makes a repeated request known.

    Raises:
        AnswerUnfitError, AnsweredBeforeError: as of `check_answer`.
        Exception: as of `Run.approve`.
    """
    if not check_answer(pause, answer):
        return False
    if event_id:
        control, payload = _control(pause, answer)
        return await run.control(control, body_for(pause.payload, payload), event_id=event_id)
    match answer:
        case Dropped():
            return await run.reject(answer.reason, token=pause.token)
        case Verdict(approves=True) if schema_of(pause) is None:
            return await run.approve(pause.token, reason=answer.reason, args=answer.args, remember=answer.remember)
        case Verdict() if schema_of(pause) is None:
            return await run.reject(answer.reason, token=pause.token)
        case Verdict() | Words() | Value():
            return await run.resume({"token": pause.token, **_value(pause, answer)})
        case _:
            assert_never(answer)


def _control(pause: Pause, answer: Answer) -> tuple[ControlType, dict[str, Any]]:
    """The control that an answer is, with its payload."""
    named: dict[str, Any] = {"token": pause.token}
    match answer:
        case Dropped():
            return ControlType.REJECT, {**named, "reason": answer.reason}
        case Verdict() if schema_of(pause) is None:
            named |= {"reason": answer.reason} if answer.reason else {}
            if not answer.approves:
                return ControlType.REJECT, named
            named |= {"args": answer.args} if answer.args is not None else {}
            return ControlType.APPROVE, {**named, **({"remember": answer.remember} if answer.remember else {})}
        case Verdict() | Words() | Value():
            return ControlType.RESUME, {**named, **_value(pause, answer)}
        case _:
            assert_never(answer)


def _value(pause: Pause, answer: Verdict | Words | Value) -> dict[str, Any]:
    match answer:
        case Verdict():
            return {"answer": answer.approves}
        case Words():
            return {"answer" if schema_of(pause) is None else "message": answer.text}
        case Value():
            return {"answer": answer.value}
        case _:
            assert_never(answer)


def _is_same(pause: Pause, answer: Answer) -> bool:
    """Whether a pause was resolved by the very answer that comes again."""
    payload = pause.payload or {}
    match answer:
        case Dropped():
            return pause.decision is PauseDecision.REJECT
        case Words():
            return answer.text in (payload.get("answer"), payload.get("message"))
        case Value():
            return bool(payload.get("answer") == answer.value)
        case Verdict() if pause.decision is PauseDecision.RESUME:
            return payload.get("answer") is answer.approves
        case Verdict():
            wanted = PauseDecision.APPROVE if answer.approves else PauseDecision.REJECT
            return pause.decision is wanted
        case _:
            assert_never(answer)
