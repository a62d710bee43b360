"""`harborage steer`, and `redirect`, `inject`, `pause`, `prioritize`: the controls of a run, from any terminal.

A control is stored with the run, in a database or on a server, and applied by the worker that executes it. Reading help
must stay cheap, so what sends them is imported when a command is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from harborage.cli.storage import (
    Debug,
    RunId,
    ServerUrl,
    StorageUrl,
    WrongUseError,
    flag,
    place_of,
    run_command,
)

_REFUSED = 6
_COUNTED = ("sent", "received", "applied")
_CONTROL = "One of the nine controls."
_TEXT = "The goal of redirect, the text of user_message, the number of prioritize, the reason of reject."
_PAYLOAD = "The payload as a JSON object, in place of TEXT."
_TOKEN = "The question that approve, reject or resume answers."

Json: TypeAlias = Annotated[bool, flag("Print JSON: the outcome of the control.")]
DryRun: TypeAlias = Annotated[bool, flag("Only say what would be sent, and to which run.")]
Control: TypeAlias = Literal[
    "cancel",
    "pause",
    "resume",
    "redirect",
    "inject_context",
    "approve",
    "reject",
    "prioritize",
    "user_message",
]


def steer(
    run: RunId,
    control: Annotated[Control, Parameter(help=_CONTROL)],
    /,
    *text: Annotated[str, Parameter(help=_TEXT)],
    payload: Annotated[str, Parameter(help=_PAYLOAD, show_default=False)] = "",
    token: Annotated[str, Parameter(help=_TOKEN, show_default=False)] = "",
    hard: Annotated[bool, flag("Cancel at once, the call in flight included.")] = False,
    dry_run: DryRun = False,
    json: Json = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Send one of the nine controls to a run.

    A server says within two seconds what the run made of it. In a database the
    worker that executes the run applies it, now or after the run is resumed.

    Exit codes:
      0  the control was sent
      1  it was refused, or the database or the server failed
      2  wrong use: no such run, the run has ended, a payload that does not fit
      6  the run did not take it
    """

    def body() -> dict[str, Any]:
        return _body(control, " ".join(text).strip(), payload.strip(), token.strip(), is_hard=hard)

    return _command(run, control, body, storage, url, is_dry=dry_run, is_json=json, debug=debug)


def pause(
    run: RunId,
    /,
    *,
    dry_run: DryRun = False,
    json: Json = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Pause a run at its next step, until it is resumed.

    Exit codes: as of 'harborage steer'.
    """
    return _command(run, "pause", dict, storage, url, is_dry=dry_run, is_json=json, debug=debug)


def redirect(
    run: RunId,
    /,
    *goal: Annotated[str, Parameter(help="The goal from here on.")],
    dry_run: DryRun = False,
    json: Json = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Give a run another goal.

    Exit codes: as of 'harborage steer'.
    """
    words = " ".join(goal).strip()
    body = partial(_body, "redirect", words)
    return _command(run, "redirect", body, storage, url, is_dry=dry_run, is_json=json, debug=debug)


def inject(
    run: RunId,
    context: Annotated[str, Parameter(help="The context, a JSON object.")],
    /,
    *,
    dry_run: DryRun = False,
    json: Json = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Give a run's planner context for its next step.

    Exit codes: as of 'harborage steer'.
    """
    body = partial(_body, "inject_context", "", context)
    return _command(run, "inject_context", body, storage, url, is_dry=dry_run, is_json=json, debug=debug)


def prioritize(
    run: RunId,
    priority: Annotated[str, Parameter(help="A whole number from -1000 to 1000; higher ones go first.")],
    /,
    *,
    dry_run: DryRun = False,
    json: Json = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Change the priority of a run. On a server it takes a token with the scope admin.

    Exit codes: as of 'harborage steer'.
    """
    body = partial(_body, "prioritize", priority)
    return _command(run, "prioritize", body, storage, url, is_dry=dry_run, is_json=json, debug=debug)


def _command(
    run: str,
    control: str,
    body: Callable[[], dict[str, Any]],
    storage: str,
    url: str,
    *,
    is_dry: bool,
    is_json: bool,
    debug: bool,
) -> int:
    where = partial(place_of, storage, url, os.environ)
    return run_command(
        lambda: _send(where(), run.strip(), control, body(), is_dry=is_dry, is_json=is_json), debug=debug
    )


def _body(control: str, text: str, payload: str = "", token: str = "", *, is_hard: bool = False) -> dict[str, Any]:
    """Return the payload of a control.

    Raises:
        WrongUseError: what was given does not fit the control.
    """
    if is_hard and control != "cancel":
        raise WrongUseError(f"--hard is for cancel, not for {control}")
    if token and control not in ("approve", "reject", "resume"):
        raise WrongUseError(f"--token is for approve, reject and resume, not for {control}")
    if payload and text:
        raise WrongUseError("give TEXT or --payload, not both")
    body = _parsed(payload) if payload else _of_text(control, text)
    if is_hard:
        body["hard"] = True
    return {**body, "token": token} if token else body


def _parsed(payload: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(payload)
    except msgspec.DecodeError as error:
        raise WrongUseError(f"the payload is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise WrongUseError('the payload is a JSON object (example: \'{"note": "hurry"}\')')
    return found


def _of_text(control: str, text: str) -> dict[str, Any]:
    match control:
        case "redirect" | "user_message" if not text:
            raise WrongUseError(f"{control} needs a text (example: harborage steer RUN {control} 'Only tea')")
        case "redirect":
            return {"goal": text}
        case "user_message":
            return {"message": text}
        case "prioritize":
            return {"priority": _number(text)}
        case "inject_context" if not text:
            raise WrongUseError("inject_context needs --payload, a JSON object")
        case "inject_context":
            return _parsed(text)
        case "resume":
            return {"message": text} if text else {}
        case "approve" | "reject":
            return {"reason": text} if text else {}
        case _ if text:
            raise WrongUseError(f"{control} takes no text")
        case _:
            return {}


def _number(text: str) -> int:
    from harborage.errors import InvalidOptionError
    from harborage.tasks.rules import check_priority

    try:
        found = int(text)
        check_priority(found, "priority")
    except (ValueError, InvalidOptionError) as error:
        raise WrongUseError(f"{text!r} is no priority; a whole number from -1000 to 1000") from error
    return found


async def _send(place: str, run: str, control: str, body: dict[str, Any], *, is_dry: bool, is_json: bool) -> int:
    from harborage.cli.control_target import next_step, open_target, require_unfinished
    from harborage.cli.storage import is_server
    from harborage.cli.text import compact, wire_json
    from harborage.client.run import ControlFate
    from harborage.runtime.loop.controls import ControlType

    kind = ControlType(control.upper())
    async with open_target(place, run) as target:
        record = require_unfinished(target.record)
        if is_dry:
            sys.stdout.write(f"would send {control} {compact(body)} to run {record.run_id}\n")
            return 0
        if kind in (ControlType.APPROVE, ControlType.REJECT) or body.get("token"):
            wanted = body.get("token") or target.only_question(f"steer {record.run_id} {control} --token").token
            question = next((one for one in target.questions if one.token == wanted), None)
            if question is None:
                raise WrongUseError(f"run {record.run_id} has no open question {wanted}")
            await target.sender.answer(question, kind, {**body, "token": question.token})
            fate = ControlFate(event_id="", control=control, fate="sent")
        else:
            fate = await target.sender.send(kind, body)
    if is_json:
        shown = {key: value for key, value in msgspec.to_builtins(fate).items() if value not in ("", 0)}
        sys.stdout.write(wire_json(msgspec.json.encode({**shown, "control": control, "run_id": record.run_id})) + "\n")
    elif fate.fate == "applied":
        before = f" before step {fate.step}" if fate.step else ""
        sys.stdout.write(f"{control} applied{before} to run {record.run_id}\n")
    elif fate.fate == "sent":
        then = "the run applies it at its next step" if is_server(place) else next_step(record)
        sys.stdout.write(f"{control} sent to run {record.run_id}; {then}\n")
    else:
        sys.stderr.write(f"harborage: {control} was {fate.fate} by run {record.run_id}: {fate.why or 'no reason'}\n")
    return 0 if fate.counted else _REFUSED
