"""The words of the command line for runs: how a command ended and its exit code, the status of a run, pending work.

Pure: rows in, text out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from harborage import codec
from harborage.app.project import Origin
from harborage.cli.handles import LENGTH as HANDLE
from harborage.cli.text import duration, masked, one_line, plural, printable
from harborage.errors import HarborageError
from harborage.llm import LLMError
from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.engine import PROVIDER_UNAVAILABLE, RunBlockedError, RunFailedError, RunPhase
from harborage.runtime.durable.pending import Party, PendingItem, PendingKind
from harborage.runtime.durable.reader import phase_of
from harborage.runtime.effects.planning import PlannerStepError
from harborage.store import Status
from harborage.store.times import moment

if TYPE_CHECKING:
    from harborage.app.doctor import Finding
    from harborage.runtime.durable.orphans import EndedItem
    from harborage.store import RunRow

REACHED, FAILED, WRONG_USE, NOT_REACHED, EXHAUSTED, WAITING, REFUSED, CANCELLED = 0, 1, 2, 3, 4, 5, 6, 130

EXIT_CODES = MappingProxyType(
    {
        REACHED: "the goal was reached",
        FAILED: "the run failed",
        WRONG_USE: "wrong use: no such agent, a bad option, an agent that cannot work here",
        NOT_REACHED: "ended without reaching the goal",
        EXHAUSTED: "a limit was reached: steps, cost, time or another one",
        WAITING: "not over: waits for a person or a provider, or was left",
        REFUSED: "ended, but calls were rejected without a person",
        CANCELLED: "cancelled",
    }
)
"""Every exit code of `harborage run`, and its meaning."""

_OUT_OF_STEPS = "MaxStepsExceededError"
_LOOK_S = 0.25
"""How often a run that does not end is asked whether it waits for a person, in seconds."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `reason` is a finish reason, or `failed`, `blocked`, `waiting` or `left`.

    A run that is blocked, waiting or left has not ended. `answer` is for stdout, `why` for people; `is_unexplained`
    says that `why` may need a traceback.
    """

    code: int
    reason: str
    answer: str = ""
    why: str = ""
    payload: Any = None
    metadata: dict[str, Any] = {}
    error: str = ""
    is_unexplained: bool = False

    @property
    def message(self) -> str:
        """What went wrong, in one line."""
        return f"the run failed: {self.why}" if self.code == FAILED and self.reason == "failed" else self.why


def ending_of(result: Finish | RunFailedError | RunBlockedError) -> Ending:
    """Return the ending of a run, from its finish or from the error that it failed with or is blocked by."""
    if isinstance(result, RunBlockedError):
        return blocked(result.run_id, result.reason)
    if isinstance(result, RunFailedError):
        return _failure(result)
    return Ending(
        code=EXHAUSTED if _limit(result) else _code(result.reason),
        reason=str(result.reason),
        answer=answer_of(result.payload),
        why=_why(result),
        payload=result.payload,
        metadata=dict(result.metadata or {}),
    )


async def end_or_wait(
    finished: Callable[[], Awaitable[Finish]], waits: Callable[[], Awaitable[object]]
) -> Ending | None:
    """Wait for the end of a run and return it; None when the run waits for a person's answer."""
    while True:
        try:
            async with asyncio.timeout(_LOOK_S):
                return ending_of(await finished())
        except (RunFailedError, RunBlockedError) as error:
            return ending_of(error)
        except TimeoutError:
            if await waits():
                return None


def _failure(result: RunFailedError) -> Ending:
    """The ending of a failed run; the error of a model or its provider says itself what to do about it."""
    error = result.__cause__
    if isinstance(error, PlannerStepError) and isinstance(error.__cause__, HarborageError):
        error = error.__cause__
    why = str(error or "") or str(result)
    if result.error == _OUT_OF_STEPS:
        return failed(result.error, why, EXHAUSTED)
    name = type(error).__name__ if isinstance(error, LLMError) else result.error
    return failed(name, why, FAILED, is_unexplained=not isinstance(error, LLMError))


def failed(error: str, why: str, code: int, *, is_unexplained: bool = False) -> Ending:
    """Return the ending for an error: its name, and a text that says what to do."""
    return Ending(code=code, reason="failed", error=error, why=str(masked(why)), is_unexplained=is_unexplained)


def left(run_id: str, reason: str = "") -> Ending:
    """Return the ending of a command that leaves a kept run; `reason` says why, "" when a person wants it."""
    if reason:
        why = f"{masked(reason)}; the run is kept; try again with: harborage resume {run_id}"
    else:
        why = f"the run was left; continue with: harborage resume {run_id}"
    return Ending(code=WAITING, reason="left", why=why)


def detached(run_id: str) -> Ending:
    """Return the ending of a command that leaves its run to a process in the background."""
    why = f"the run goes on in the background; come back: harborage resume {run_id[-HANDLE:]}"
    return Ending(code=WAITING, reason="detached", why=why)


def waiting(subject: str, command: str) -> Ending:
    """Return the ending of a command whose run waits for a person; `subject` is what about, `command` answers it."""
    return Ending(code=WAITING, reason="waiting", why=f"{subject} needs an answer · {command}")


def blocked(run_id: str, reason: str) -> Ending:
    """Return the ending for a run that the present code cannot resume; `reason` is where they differ."""
    return Ending(
        code=FAILED,
        reason="blocked",
        error="blocked",
        why=f"the agent's code does not fit the journal of this run: {reason}. The run is kept. With the code that it "
        f"was started with: harborage resume {run_id}; with the code of today: harborage fork {run_id} --at STEP",
    )


def with_refused_calls(ending: Ending, rejected: Sequence[str]) -> Ending:
    """Return the ending of a run whose calls were rejected without a person: no success for a script.

    The run's answer is kept; the ending of a run that did not reach its goal stays as it is.
    """
    if ending.code != REACHED or not rejected:
        return ending
    what = ", ".join(dict.fromkeys(rejected))
    return msgspec.structs.replace(ending, code=REFUSED, why=f"rejected without asking a person: {what}")


def _code(reason: FinishReason) -> int:
    match reason:
        case FinishReason.GOAL:
            return REACHED
        case FinishReason.NO_PATH | FinishReason.CONSTRAINTS_CONFLICT:
            return NOT_REACHED
        case FinishReason.DEADLINE_EXCEEDED:
            return EXHAUSTED
        case FinishReason.CANCELLED:
            return CANCELLED
        case _ as unreachable:
            assert_never(unreachable)


def answer_of(payload: Any) -> str:
    """Return the answer in a payload: text, the text under its `answer` key, else indented JSON; empty for none."""
    match payload:
        case None:
            return ""
        case str(text) | {"answer": str(text)}:
            return text
        case other:
            try:
                return msgspec.json.format(codec.encode(other, "payload"), indent=2).decode()
            except codec.UnserializableError:
                return str(other)


_WHY: Mapping[str, str] = MappingProxyType(
    {
        FinishReason.GOAL: "goal reached",
        FinishReason.NO_PATH: "the planner found no way to the goal",
        FinishReason.CONSTRAINTS_CONFLICT: "the goal conflicts with a constraint",
        FinishReason.DEADLINE_EXCEEDED: "the time limit is reached",
        FinishReason.CANCELLED: "cancelled",
        "control_reject": "its question was rejected",
        "pause_timeout": "its question was not answered in time",
        "hard_cancel": "cancelled, now",
        "cancel_while_paused": "cancelled while it was paused",
    }
)
"""Why a planner finished, or why steering ended a run, in words."""


def _limit(finish: Finish) -> str:
    """The limit that ended the run, in words; empty when none did, or the time limit."""
    metadata = finish.metadata or {}
    if metadata.get("max_steps_exceeded") is True:
        steps = metadata.get("max_steps")
        return (
            f"the limit of {plural(steps, 'step')} is reached"
            if isinstance(steps, int)
            else "the limit of steps is reached"
        )
    if metadata.get("steering_reason") != "limit" or finish.reason is not FinishReason.CONSTRAINTS_CONFLICT:
        return ""
    return str(masked(str(metadata.get("detail") or f"the limit of {metadata.get('limit')} is reached")))


def _why(finish: Finish) -> str:
    if limit := _limit(finish):
        return limit
    cause = (finish.metadata or {}).get("steering_reason")
    return _WHY[cause] if isinstance(cause, str) and cause in _WHY else _WHY[finish.reason]


def result_line(ending: Ending, run_id: str) -> bytes:
    """Return the last line of `--json`, without a line end."""
    line: dict[str, Any] = {"type": "result", "run": run_id, "reason": ending.reason, "exit_code": ending.code}
    if ending.error:
        line["error"] = {"type": ending.error, "message": ending.why}
    else:
        line |= {"answer": ending.answer, "payload": ending.payload, "metadata": ending.metadata}
        if ending.code:
            line["why"] = ending.why
    try:
        return codec.encode(line, "result")
    except codec.UnserializableError:
        return codec.encode({**line, "payload": None, "metadata": {}}, "result")


def is_waiting_for_provider(row: RunRow, entries: int = 0) -> bool:
    """Whether the run waits for its model's provider, which is down, and has more than so many entries."""
    is_waiting = not row.status.is_final and not row.owner and not row.blocked
    return is_waiting and row.position > entries and row.reason.startswith(PROVIDER_UNAVAILABLE)


def status_of(row: RunRow) -> str:
    """Return the run's status: pending, running, waiting, interrupted, blocked, complete, failed or cancelled."""
    match phase_of(row):
        case RunPhase.FINISHED:
            is_cancelled = row.status is Status.CANCELLED or row.reason == FinishReason.CANCELLED
            return "cancelled" if is_cancelled else "complete"
        case RunPhase.FAILED:
            return "failed"
        case RunPhase.RUNNING:
            return "running"
        case RunPhase.BLOCKED:
            return "blocked"
        case RunPhase.PARKED:
            return "interrupted" if is_waiting_for_provider(row) else "waiting"
        case RunPhase.PENDING:
            return "pending" if row.status is Status.PENDING else "interrupted"


def agent_of(row: RunRow) -> str:
    """Return the name of the run's agent for a command line; empty for the standard assistant."""
    return Origin.of(row.agent).target


def is_blocked(row: RunRow, fence: int) -> bool:
    """Whether a worker has tried to execute the run since its lease had this fence, and its code did not fit."""
    return phase_of(row) is RunPhase.BLOCKED and row.fence > fence


def reason_of(row: RunRow) -> str:
    """Return why a run is blocked, waits or has ended; empty if no reason is recorded."""
    return row.blocked or row.reason


def root_runs(rows: Sequence[RunRow]) -> list[RunRow]:
    """Return the runs that a person or a program started, without the tasks that those spawned."""
    found: dict[tuple[str, ...], RunRow] = {}
    for row in rows:
        who = row.who
        origin = Origin.of(row.agent)
        key = (who.tenant_id, who.user_id, who.session_id, origin.whole.text)
        is_of_command = bool(origin.mark)  # the first run of a command's session spawned the others
        found.setdefault(key if is_of_command else (row.run_id,), row)
    return list(found.values())


def describe_status(row: RunRow, now: datetime) -> str:
    """Return the status of a run that is resumed here, since when, and what happens with it now."""
    ago = duration(max(0.0, (now - moment(row.updated_at)).total_seconds()))
    match phase_of(row):
        case RunPhase.FINISHED:
            return f"ended {ago} ago: {row.reason or row.status}"
        case RunPhase.FAILED:
            return f"failed {ago} ago: {row.reason}"
        case RunPhase.BLOCKED:
            return f"blocked {ago} ago: {row.blocked}; trying again with the agent's code of today"
        case RunPhase.RUNNING:
            return f"another worker executes it, last step {ago} ago; followed and steered from here"
        case _ if is_waiting_for_provider(row):
            return f"{row.reason}, {ago} ago; trying again now"
        case RunPhase.PARKED:
            return f"waiting for {ago}; resuming here"
        case RunPhase.PENDING:
            return f"interrupted {ago} ago; resuming here"


def needs_person(wait: PendingItem) -> bool:
    """Whether it waits until a person does something, be it only to resume a run that has no worker."""
    return wait.is_orphan or wait.on in {Party.PERSON, Party.CODE, Party.NONE} or _lacks_worker(wait)


def _lacks_worker(wait: PendingItem) -> bool:
    """Whether it is a run that could continue, but that no worker executes."""
    return wait.kind is PendingKind.RUN and wait.on is Party.WORKER and not wait.is_running


def render_findings(findings: Sequence[Finding]) -> list[str]:
    """Render the state of the database, a line for each check."""
    return [f"{'✓' if one.is_ok else '✗'} {one.what}  {printable(one.detail)}" for one in findings]


def render_pending(waits: Sequence[PendingItem], now: datetime, *, settles: bool) -> list[str]:
    """Render pending work, two lines each; items that need a person come last, where they are seen.

    `settles` leaves out how to end orphans, because the command does so next.
    """
    if not waits:
        return ["✓ nothing needs you"]
    sessions = sum(one.kind is PendingKind.SESSION and not needs_person(one) for one in waits)
    calm = [one for one in waits if not needs_person(one) and one.kind is not PendingKind.SESSION]
    urgent = [one for one in waits if needs_person(one) and not one.is_orphan]
    orphans = [one for one in waits if one.is_orphan]
    each = "each " if sessions > 1 else ""
    lines = [f"✓ {plural(sessions, 'session')} open, {each}closed when idle for long"] if sessions else []
    for title, group in (
        (f"✓ {plural(len(calm), 'item')} will end without you", calm),
        (f"? {plural(len(urgent), 'item')} {'needs' if len(urgent) == 1 else 'need'} a person", urgent),
        (f"✗ {plural(len(orphans), 'orphan')}: no worker, timer or person will end {_them(len(orphans))}", orphans),
    ):
        if group:
            lines += ["", f"{title}:", *(line for one in group for line in _render_wait(one, now))]
    if any(one.is_orphan or one.is_overdue for one in waits) and not settles:
        lines += ["", "end orphans and overdue items: harborage doctor --settle"]
    return lines


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def _render_wait(wait: PendingItem, now: datetime) -> list[str]:
    since = duration(max(0.0, (now - wait.since).total_seconds()))
    what = f": {one_line(wait.detail, 100)}" if wait.detail else ""
    return [
        f"  {wait.kind} {wait.id}, {since} old{what}",
        f"      {_waits_for(wait)}{_until(wait, now)}{_next_command(wait)}",
    ]


def _waits_for(wait: PendingItem) -> str:
    """The actor that ends it: a worker, a person, a run, a timer."""
    if wait.orphan:
        return wait.orphan
    match wait.on:
        case Party.WORKER if wait.is_running:
            return f"executed by worker {wait.name}"
        case Party.WORKER:
            return f"waits for a worker{_agent(wait)}"
        case Party.PERSON:
            return "waits for a person"
        case Party.RUN:
            return f"waits for run {wait.name}"
        case Party.CLOCK:
            return "waits for a timer"
        case Party.CODE:
            return f"waits for the code that it was started with{_agent(wait)}"
        case Party.NONE:
            return "orphaned"
        case _ as unreachable:
            assert_never(unreachable)


def _agent(wait: PendingItem) -> str:
    target = Origin.of(wait.name).target
    return f" ({printable(target, keep='')})" if target else ""


def _until(wait: PendingItem, now: datetime) -> str:
    if wait.until is None:
        return ""
    left = (wait.until - now).total_seconds()
    then = f", then {wait.then}" if wait.then else ""
    return f", overdue for {duration(-left)}{then}" if left < 0 else f", {duration(left)} left{then}"


def _next_command(wait: PendingItem) -> str:
    """The command with which a person ends it."""
    match wait.kind, wait.on:
        case _ if wait.is_orphan:
            return ""
        case PendingKind.RUN, Party.PERSON:
            return f": harborage resume {wait.id}"
        case PendingKind.RUN, Party.CLOCK if wait.detail.startswith(PROVIDER_UNAVAILABLE):
            return f": harborage resume {wait.id} tries now"
        case PendingKind.RUN, Party.CODE:
            return f": harborage resume {wait.id} tries again"
        case PendingKind.RUN, Party.WORKER if _lacks_worker(wait):
            return f": harborage resume {wait.id}"
        case PendingKind.APPROVAL, Party.PERSON:
            return f": harborage approve {wait.id}, or reject"
        case PendingKind.PAUSE, Party.PERSON:
            return f": harborage answer {wait.id} TEXT, or approve, or reject"
        case _:
            return ""


def render_ended(ended: Sequence[EndedItem]) -> list[str]:
    """Render what was ended, a line each."""
    return [f"✓ ended {one.item.kind} {one.item.id}: {one.done}" for one in ended] or ["nothing was left to end"]


def pending_json(findings: Sequence[Finding], waits: Sequence[PendingItem], ended: Sequence[EndedItem]) -> bytes:
    """Return findings, pending work and what was ended as one JSON object."""
    rows: list[dict[str, Any]] = []
    for one in waits:
        row = msgspec.structs.asdict(one)
        rows.append({**row, "needs_person": needs_person(one), "is_orphan": one.is_orphan})
    done = [{"kind": one.item.kind, "id": one.item.id, "done": one.done} for one in ended]
    return codec.encode({"findings": list(findings), "waits": rows, "settled": done}, "report")
