"""`harborage approve`, `reject`, `answer`, `message` and `cancel`: controls that are sent to a kept run.

Any terminal can send them, whether a worker executes the run or not. Reading help must stay cheap, so what sends them
is imported when a command is used.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter

from harborage.cli.storage import Debug, RunId, ServerUrl, StorageUrl, flag, place_of, run_command

if TYPE_CHECKING:
    from harborage.runtime.pauses import Pause

QuestionId: TypeAlias = Annotated[
    str,
    Parameter(
        help=(
            "The token of the question. In a terminal also the id of the run, or the beginning of an id or token: the "
            "question is shown then, and you confirm the answer before it is sent."
        )
    ),
]
Reason: TypeAlias = Annotated[str, Parameter(help="Why, for the journal and the agent.", show_default=False)]
_REMEMBER = "Allow the tool for the rest of the run (run), or always with these arguments (always)."
_ARGS = "Change these arguments of the call, a JSON object; the others stay."
_ANSWER = "The answer; for an interrupted call, its result."
_RESULT = "The result of an interrupted call, as JSON."


def approve(
    run: QuestionId,
    /,
    *,
    reason: Reason = "",
    args: Annotated[str, Parameter(help=_ARGS, show_default=False)] = "",
    remember: Annotated[str, Parameter(help=_REMEMBER, show_default=False)] = "",
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Approve the tool call, or the pause, that a run waits for.

    The answer is stored with the run. The worker that executes the run applies
    it at once; without one it is applied when the run is resumed. It counts
    once, and only for the arguments that were shown. An interrupted call, whose
    outcome is unknown, is made again.

    Exit codes:
      0  the answer is stored
      1  the answer was refused, another came first, or the database failed
      2  wrong use: no such run, nothing to answer, not confirmed, no JSON object
    """
    if remember not in {"", "run", "always"}:
        return _wrong_use(f"--remember: {remember!r} is neither run nor always")
    where = partial(place_of, storage, url, os.environ)
    return run_command(lambda: _approve(where(), run.strip(), reason, args.strip(), remember), debug=debug)


def _part_of(args: str, shown: Any) -> dict[str, Any] | None:
    """The arguments, where they name some of those of the call and not all; None for any other text."""
    try:
        given = msgspec.json.decode(args)
    except msgspec.DecodeError:
        return None
    is_some = isinstance(given, dict) and bool(given)
    return given if is_some and isinstance(shown, dict) and not shown.keys() <= given.keys() else None


async def _approve(place: str, run: str, reason: str, args: str, remember: str) -> int:
    from harborage.cli.answers import Approve, parse_arguments
    from harborage.cli.control_target import describe_question, next_step, open_target
    from harborage.cli.questions import is_approval, schema_of, shown_args
    from harborage.runtime.loop.controls import ControlType
    from harborage.runtime.loop.errors import PayloadInvalidError
    from harborage.runtime.loop.payload import body_for

    async with open_target(place, run) as target:
        question = target.only_question("approve")
        payload: dict[str, Any] = {"token": question.token, "reason": reason}
        changed: dict[str, Any] | None = None
        shown = shown_args((question.payload or {}).get("args_summary")) if args else None
        if args and is_approval(question) and (part := _part_of(args, shown)) is not None:
            try:
                payload = body_for(question.payload, {**payload, "args": part})
            except PayloadInvalidError as error:
                return _wrong_use(f"--{str(error).removeprefix('approve: ')}")
            args, changed = "", {**(shown or {}), **part}
        if args:
            parsed = parse_arguments(args, shown, schema_of(question))
            if not isinstance(parsed, Approve) or not is_approval(question):
                return _wrong_use(
                    f"--args: {'only a call has arguments' if isinstance(parsed, Approve) else parsed.message}"
                )
            changed = parsed.args
            if changed is not None:
                payload["args"] = changed
        if remember:
            if not is_approval(question):
                return _wrong_use("--remember: only the approval of a call is remembered")
            payload["remember"] = remember
        target.confirm(question, "harborage approve")
        await target.sender.answer(question, ControlType.APPROVE, payload)
        sys.stdout.write(f"approved: {describe_question(question, changed)}; {next_step(target.record)}\n")
    return 0


def reject(
    run: QuestionId, /, *, reason: Reason = "", storage: StorageUrl = "", url: ServerUrl = "", debug: Debug = False
) -> int:
    """Reject the tool call, or the pause, that a run waits for.

    A rejected call is not made, and the agent gets the reason. A run whose pause
    is rejected ends. An interrupted call is not made again, and the agent gets
    that its outcome is unknown. The answer is stored and applied as with
    'approve'.

    Exit codes:
      0  the answer is stored
      1  the answer was refused, another came first, or the database failed
      2  wrong use: no such run, nothing or too much to answer, not confirmed
    """
    where = partial(place_of, storage, url, os.environ)
    return run_command(lambda: _reject(where(), run.strip(), reason), debug=debug)


async def _reject(place: str, run: str, reason: str) -> int:
    from harborage.cli.control_target import describe_question, next_step, open_target
    from harborage.runtime.loop.controls import ControlType

    async with open_target(place, run) as target:
        question = target.only_question("reject")
        target.confirm(question, "harborage reject")
        await target.sender.answer(question, ControlType.REJECT, {"token": question.token, "reason": reason})
        sys.stdout.write(f"rejected: {describe_question(question)}; {next_step(target.record)}\n")
    return 0


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer on the command line. `result` is JSON, "" where none is given."""

    text: str
    result: str
    has_no_result: bool


def answer(
    run: QuestionId,
    /,
    *text: Annotated[str, Parameter(help=_ANSWER)],
    result: Annotated[str, Parameter(help=_RESULT, show_default=False)] = "",
    done: Annotated[bool, flag("The interrupted call acted and has no result.")] = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Answer a run's question, or resolve an interrupted call.

    A run that asked a question continues with the text. An interrupted call, one
    whose process died before the result was recorded, is resolved with its
    result: as text, with --result as JSON, or with --done for none. 'approve'
    makes such a call again, 'reject' leaves its outcome unknown. The answer is
    stored and applied as with 'approve'.

    Exit codes:
      0  the answer is stored
      1  the answer was refused, another came first, or the database failed
      2  wrong use: no such run, nothing to answer, not confirmed, no JSON
    """
    reply = _Reply(text=" ".join(text).strip(), result=result, has_no_result=done)
    if sum((bool(reply.text), bool(reply.result), reply.has_no_result)) != 1:
        return _wrong_use("give one answer: harborage answer RUN TEXT, or --result JSON, or --done")
    where = partial(place_of, storage, url, os.environ)
    return run_command(lambda: _answer(where(), run.strip(), reply), debug=debug)


async def _answer(place: str, run: str, reply: _Reply) -> int:
    from harborage.cli.control_target import describe_question, next_step, open_target
    from harborage.cli.questions import is_approval, is_interrupted_call, misfit_of
    from harborage.runtime.loop.controls import ControlType

    async with open_target(place, run) as target:
        question = target.only_question("answer")
        if is_approval(question):
            call = describe_question(question)
            return _wrong_use(f"{call} needs approval, not an answer: harborage approve {question.token}, or reject")
        if is_interrupted_call(question):
            try:
                payload = _outcome(question, reply)
            except msgspec.DecodeError as error:
                return _wrong_use(f"--result is not JSON: {error}")
        elif reply.text:
            if misfit := misfit_of(question.payload or {}, reply.text):
                return _wrong_use(misfit)
            payload = {"token": question.token, "message": reply.text}
        else:
            return _wrong_use(
                f"only an interrupted call has a result; answer with text: harborage answer {question.token} TEXT"
            )
        target.confirm(question, "harborage answer")
        await target.sender.answer(question, ControlType.RESUME, payload)
        sys.stdout.write(f"answered: {describe_question(question)}; {next_step(target.record)}\n")
    return 0


def _outcome(question: Pause, reply: _Reply) -> dict[str, object]:
    """The payload that resolves an interrupted call: it acted, with this result."""
    result = msgspec.json.decode(reply.result) if reply.result else reply.text or None
    return {"token": question.token, "acted": True, "result": result}


def message(
    run: RunId,
    /,
    *text: Annotated[str, Parameter(help="The message.")],
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Send a message to a run; a run that waits for an answer gets it as that answer.

    Any other run reads it before its next step. The message is stored with the
    run and applied by the worker that executes it, now or after it is resumed.
    'approve' and 'reject' answer a call that waits for approval.

    Exit codes:
      0  the message is stored
      1  it was refused, another answer came first, or the database failed
      2  wrong use: no such run, the run has ended, no text
    """
    words = " ".join(text).strip()
    if not words:
        return _wrong_use('no message; example: harborage message RUN "use the second table"')
    where = partial(place_of, storage, url, os.environ)
    return run_command(lambda: _message(where(), run.strip(), words), debug=debug)


async def _message(place: str, run: str, text: str) -> int:
    from harborage.cli.control_target import describe_question, next_step, open_target, require_unfinished
    from harborage.cli.questions import is_approval, is_interrupted_call
    from harborage.runtime.loop.controls import ControlType

    async with open_target(place, run) as target:
        record = require_unfinished(target.record)
        questions = [one for one in target.questions if not (is_approval(one) or is_interrupted_call(one))]
        if len(questions) == 1:
            await target.sender.answer(questions[0], ControlType.RESUME, {"token": questions[0].token, "message": text})
            sys.stdout.write(f"answered: {describe_question(questions[0])}; {next_step(record)}\n")
        else:
            await target.sender.send(ControlType.USER_MESSAGE, {"message": text})
            sys.stdout.write(f"message sent to run {record.run_id}; {next_step(record)}\n")
    return 0


def cancel(
    run: RunId,
    /,
    *,
    now: Annotated[bool, flag("Stop the call in flight; without, the planner gets one more step.")] = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Cancel a run that has not ended.

    The request is stored with the run. The worker that executes the run applies
    it at once; without one it is applied when the run is resumed.

    Exit codes:
      0  the request is stored
      1  the database failed
      2  wrong use: no such run, or the run has ended
    """
    where = partial(place_of, storage, url, os.environ)
    return run_command(lambda: _cancel(where(), run.strip(), is_hard=now), debug=debug)


async def _cancel(place: str, run: str, *, is_hard: bool) -> int:
    from harborage.cli.control_target import next_step, open_target, require_unfinished
    from harborage.runtime.loop.controls import ControlType

    async with open_target(place, run) as target:
        record = require_unfinished(target.record)
        await target.sender.send(ControlType.CANCEL, {"hard": True} if is_hard else {})
        sys.stdout.write(f"cancelling run {record.run_id}; {next_step(record)}\n")
    return 0


def _wrong_use(why: str) -> int:
    sys.stderr.write(f"harborage: {why}\n")
    return 2
