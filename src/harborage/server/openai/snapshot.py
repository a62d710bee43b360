"""A run as it stands, without secrets: what was said, what was called, what it asks, how it ended and what it used."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET

from harborage import codec
from harborage.planner import Finish, FinishReason
from harborage.protocol.methods import Method
from harborage.runtime.history.model import CallStatus, Totals
from harborage.runtime.loop.outcome import call_id
from harborage.runtime.loop.workflow_waits import WAITS
from harborage.runtime.pending import Pending
from harborage.runtime.result import tree_usage
from harborage.server.families.runs import find_row, read_entries, read_overview, views_of
from harborage.server.following import Called, Rejected, Returned
from harborage.server.openai.options import output_of
from harborage.server.questions import is_approval, open_questions, question_text
from harborage.server.services import Call
from harborage.store import Status

if TYPE_CHECKING:
    from harborage.runtime.history.model import CallMade
    from harborage.runtime.history.overview import Overview
    from harborage.runtime.run import Run
    from harborage.server.families.run_views import RunViews
    from harborage.server.following import Shown
    from harborage.server.services import Caller, Services

METHOD: Final = Method(name="openai", path="/v1/responses")
"""What the parts that read runs for the protocol are asked in the name of; no method of it."""

_GOOD: Final = frozenset({CallStatus.DONE, CallStatus.HELD_BACK})


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """Words of the agent, in the step `step`: its answer, or what it said beside its calls. A question has a token."""

    step: int
    text: str
    is_final: bool = False
    token: str = ""
    at: datetime | None = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call; `args` is JSON. It goes on while it has neither an output nor an error."""

    id: str
    tool: str
    args: str
    output: str | None = None
    error: str = ""
    token: str = ""
    at: datetime | None = None

    @property
    def is_open(self) -> bool:
        """Whether it goes on."""
        return self.output is None and not self.error


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for approval."""

    token: str
    tool: str
    args: str


Part: TypeAlias = Text | ToolCall | Waiting


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A run. `error` is why it did not reach its goal; `answer` is its output as text, None before it has one."""

    run_id: str
    agent: str
    status: Status
    started_at: datetime
    ended_at: datetime | None
    parts: tuple[Part, ...]
    answer: str | None
    error: str = ""
    reason: str = ""
    condition: str = ""
    usage: Totals = Totals()
    tags: Mapping[str, str] = {}
    questions: tuple[Pending, ...] = ()
    steps: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.status.is_final

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody ended it before its goal."""
        return self.status is Status.CANCELLED or self.reason == str(FinishReason.CANCELLED)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Its calls, in order."""
        return tuple(one for one in self.parts if isinstance(one, ToolCall))


async def read_snapshot(services: Services, caller: Caller, run: Run[Any], since: datetime | None = None) -> Snapshot:
    """Return a run of the caller as it stands; with `since` only what was said and called from then on.

    Raises:
        ProtocolError: there is no record of it, or it cannot be read.
    """
    call = Call(method=METHOD, caller=caller, who=caller.who, services=services)
    row = await find_row(call, run.id, is_read=False)
    status = await run.status()
    view = await read_overview(call, row, await read_entries(call, row))
    history, views = view.history, views_of(call, row, view.history)
    questions = () if row.status.is_final else tuple(await open_questions(run))
    finish = history.finish
    parts = _parts(services, view, views, questions)
    return Snapshot(
        run_id=run.id,
        agent=row.agent or history.request.agent,
        status=row.status,
        started_at=history.started_at,
        ended_at=history.ended_at,
        parts=tuple(one for one in parts if since is None or _is_since(one, since)),
        answer=next((one.text for one in parts if isinstance(one, Text) and one.is_final), None),
        error=views.text(_error_of(view)),
        reason="" if finish is None else str(finish.reason),
        condition=view.condition,
        usage=await tree_usage(history, services.parts.engine.history),
        tags=status.tags,
        questions=questions,
        steps=len(history.steps),
    )


async def with_values(services: Services, caller: Caller, run: Run[Any], shown: Shown) -> Shown:
    """Return what is shown of a call with its arguments and its result: from the record, where its event has none."""
    if not isinstance(shown, Called | Returned | Rejected) or shown.is_whole:
        return shown
    known = await read_snapshot(services, caller, run)
    found = next((one for one in known.calls if one.id == shown.id), None)
    if found is None:
        return shown
    if isinstance(shown, Called):
        return Called(shown.id, shown.tool, found.args)
    if isinstance(shown, Rejected):
        return Rejected(shown.id, shown.tool, shown.reason, found.args)
    return Returned(shown.id, shown.tool, found.output or "", found.error)


def _is_since(part: Part, since: datetime) -> bool:
    return isinstance(part, Waiting) or part.at is None or part.at > since


def _parts(services: Services, run: Overview, views: RunViews, questions: tuple[Pending, ...]) -> list[Part]:
    parts: list[Part] = []
    asked = {one.token for one in questions}
    for row in run.steps:
        step = row.step
        if step is None:
            continue
        waiting = {wait.call: wait.token for wait in row.waits if wait.token}
        if step.preamble and not isinstance(step.decision, Finish):
            parts.append(Text(step=row.number, text=step.preamble, at=step.decided_at))
        for made in step.calls:
            token = waiting.get(call_id(row.number, made.branch), "")
            if made.tool not in WAITS and token not in asked:
                parts.append(_call(row.number, made, views, token))
    history = run.history
    if history.finish is not None and history.finish.reason is FinishReason.GOAL:
        text = _answer(services, run, history.finish)
        parts.append(Text(step=len(history.steps), text=text, is_final=True, at=history.ended_at))
    parts += map(_asked, questions)
    return parts


def _call(step: int, made: CallMade, views: RunViews, token: str) -> ToolCall:
    args = views.show(_parsed(made.args))
    error = made.refusal or made.error or ("" if made.status in _GOOD | {CallStatus.OPEN} else str(made.status))
    output = None
    if not error and made.ended_at is not None:
        shown = views.show(made.observation)
        output = _as_text(shown.either)
    return ToolCall(
        id=call_id(step, made.branch),
        tool=made.tool,
        args=codec.encode_text(msgspec.to_builtins(args.either)),
        output=output,
        error=views.text(error),
        token=token,
        at=made.ended_at,
    )


def _asked(question: Pending) -> Part:
    if is_approval(question):
        return Waiting(token=question.token, tool=question.tool, args=codec.encode_text(question.args))
    return Text(step=0, text=question_text(question), token=question.token)


def _answer(services: Services, run: Overview, finish: Finish) -> str:
    """The output of a run: its text, or the JSON of what its agent declares."""
    agent = services.parts.agents.find(run.row.agent or run.history.request.agent)
    output = None if agent is None else output_of(agent)
    payload = finish.payload
    if payload is None and output is None:
        return ""
    if isinstance(payload, str) and (output is None or output.takes_text):
        return payload
    return codec.encode(payload).decode()


def _error_of(run: Overview) -> str:
    """Why a run that ended did not reach its goal."""
    history = run.history
    if history.error:
        return f"{history.error}: {history.message}" if history.message else history.error
    finish = history.finish
    if finish is None or finish.reason is FinishReason.GOAL:
        return ""
    met = finish.metadata or {}
    named = next((str(met[key]) for key in ("limit", "steering_reason", "reason") if met.get(key)), "")
    said = finish.payload if isinstance(finish.payload, str) else ""
    return ": ".join(filter(None, (str(finish.reason), named or said)))


def _parsed(args: str) -> Any:
    try:
        return codec.decode(args) if args else {}
    except (msgspec.DecodeError, RecursionError):
        return args


def _as_text(value: Any) -> str:
    if value is UNSET:
        return ""
    return value if isinstance(value, str) else codec.encode_text(msgspec.to_builtins(value))
