"""The status of a run and of pending work, in the words of the command line. Pure: rows in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec

from harborage import codec
from harborage.app.keeping import Origin
from harborage.app.waiting import Party, Settled, Wait, WaitKind
from harborage.cli.text import duration, one_line, plural, printable
from harborage.runtime.durable import PROVIDER_UNAVAILABLE, RunPhase
from harborage.runtime.engines.reader import phase_of
from harborage.store.times import moment

if TYPE_CHECKING:
    from harborage.app.checkup import Finding
    from harborage.store import RunRow

__all__ = [
    "agent_of",
    "findings_lines",
    "is_blocked",
    "is_put_off",
    "needs_person",
    "report",
    "roots",
    "settled_lines",
    "standing_of",
    "status_of",
    "waits_lines",
    "why",
]

_WORDS: Final = {RunPhase.PENDING: "ready"}


def is_put_off(row: RunRow, entries: int = 0) -> bool:
    """Whether the run waits for its model's provider, which is down, and has more than so many entries."""
    is_parked = not row.status.is_final and not row.owner and not row.blocked
    return is_parked and row.position > entries and row.reason.startswith(PROVIDER_UNAVAILABLE)


def status_of(row: RunRow) -> str:
    """Where a run stands, in a word."""
    phase = phase_of(row)
    return "interrupted" if is_put_off(row) else _WORDS.get(phase, str(phase))


def agent_of(row: RunRow) -> str:
    """What names the run's agent on a command line; empty for the standard assistant."""
    return Origin.of(row.agent).target


def is_blocked(row: RunRow, fence: int) -> bool:
    """Whether the code that is there has tried to carry the run, since its lease had this fence, and could not."""
    return phase_of(row) is RunPhase.BLOCKED and row.fence > fence


def why(row: RunRow) -> str:
    """Why a run is blocked, has ended or waits; empty where nothing is to say."""
    return row.blocked or row.reason


def roots(rows: Sequence[RunRow]) -> list[RunRow]:
    """The runs that somebody started: of those of one command the first, which spawned the others."""
    found: dict[tuple[str, ...], RunRow] = {}
    for row in rows:
        who = row.who
        key = (who.tenant_id, who.user_id, who.session_id, row.agent)
        is_family = bool(Origin.of(row.agent).mark)
        found.setdefault(key if is_family else (row.run_id,), row)
    return list(found.values())


def standing_of(row: RunRow, now: datetime) -> str:
    """How a run stands that somebody comes back to, in a few words."""
    ago = duration(max(0.0, (now - moment(row.updated_at)).total_seconds()))
    match phase_of(row):
        case RunPhase.FINISHED:
            return f"ended {ago} ago: {row.reason or 'finished'}"
        case RunPhase.FAILED:
            return f"failed {ago} ago: {row.reason}"
        case RunPhase.BLOCKED:
            return f"blocked {ago} ago: {row.blocked}; trying again with the code of today"
        case RunPhase.RUNNING:
            return f"another worker executes it, last step {ago} ago; followed and steered from here"
        case _ if is_put_off(row):
            return f"{row.reason}, {ago} ago; trying again now"
        case RunPhase.PARKED:
            return f"waiting for {ago}; resuming here"
        case RunPhase.PENDING:
            return f"interrupted {ago} ago; resuming here"


def needs_person(wait: Wait) -> bool:
    """Whether it waits until a person does something, be it only to carry on a run that no process carries."""
    return wait.is_orphan or wait.on in {Party.PERSON, Party.CODE, Party.NOBODY} or _is_left(wait)


def _is_left(wait: Wait) -> bool:
    """Whether it is a run that could go on, and that no process carries."""
    return wait.kind is WaitKind.RUN and wait.on is Party.WORKER and not wait.then.startswith("carried;")


def findings_lines(findings: Sequence[Finding]) -> list[str]:
    """What was found of the database."""
    return [f"{'✓' if one.is_well else '✗'} {one.what}  {printable(one.told)}" for one in findings]


def waits_lines(waits: Sequence[Wait], now: datetime, *, settles: bool) -> list[str]:
    """Everything that waits, two lines each; what needs a person comes last, where it is seen. `settles`: it will be
    settled next, so how to do that need not be told."""
    if not waits:
        return ["✓ nothing needs you"]
    sessions = sum(one.kind is WaitKind.SESSION and not needs_person(one) for one in waits)
    calm = [one for one in waits if not needs_person(one) and one.kind is not WaitKind.SESSION]
    urgent = [one for one in waits if needs_person(one) and not one.is_orphan]
    orphans = [one for one in waits if one.is_orphan]
    each = "each " if sessions > 1 else ""
    lines = [f"✓ {plural(sessions, 'session')} open, {each}closed when left alone for long"] if sessions else []
    for title, group in (
        (f"✓ {plural(len(calm), 'item')} will end without you", calm),
        (f"? {plural(len(urgent), 'item')} {'needs' if len(urgent) == 1 else 'need'} a person", urgent),
        (f"✗ {plural(len(orphans), 'orphan')}, which nothing will ever end", orphans),
    ):
        if group:
            lines += ["", f"{title}:", *(line for one in group for line in _wait_lines(one, now))]
    if any(one.is_orphan or one.is_overdue for one in waits) and not settles:
        lines += ["", "harborage doctor --settle ends orphans, and what is overdue"]
    return lines


def _wait_lines(wait: Wait, now: datetime) -> list[str]:
    since = duration(max(0.0, (now - wait.since).total_seconds()))
    what = f": {one_line(wait.detail, 100)}" if wait.detail else ""
    return [f"  {wait.kind} {wait.id}, {since} old{what}", f"      {_whom(wait)}{_until(wait, now)}{_way(wait)}"]


def _whom(wait: Wait) -> str:
    """Who ends it."""
    if wait.orphan:
        return wait.orphan
    match wait.on:
        case Party.WORKER if wait.then.startswith("carried;"):
            return f"executed by worker {wait.name}"
        case Party.WORKER:
            return f"for a worker{_agent(wait)}"
        case Party.PERSON:
            return "for a person"
        case Party.RUN:
            return f"for run {wait.name}"
        case Party.CLOCK:
            return "for its time"
        case Party.CODE:
            return f"for the code that it was begun with{_agent(wait)}"
        case Party.NOBODY:
            return "orphaned"
        case _ as unreachable:
            assert_never(unreachable)


def _agent(wait: Wait) -> str:
    target = Origin.of(wait.name).target
    return f" ({printable(target, keep='')})" if target else ""


def _until(wait: Wait, now: datetime) -> str:
    if wait.until is None:
        return ""
    left = (wait.until - now).total_seconds()
    then = f", then {wait.then}" if wait.then else ""
    return f", overdue for {duration(-left)}{then}" if left < 0 else f", {duration(left)} left{then}"


def _way(wait: Wait) -> str:
    """What a person does about it."""
    match wait.kind, wait.on:
        case _ if wait.is_orphan:
            return ""
        case WaitKind.RUN, Party.PERSON:
            return f": harborage resume {wait.id}"
        case WaitKind.RUN, Party.CLOCK if wait.detail.startswith(PROVIDER_UNAVAILABLE):
            return f": harborage resume {wait.id} tries now"
        case WaitKind.RUN, Party.CODE:
            return f": harborage resume {wait.id} tries again"
        case WaitKind.RUN, Party.WORKER if _is_left(wait):
            return f": harborage resume {wait.id}"
        case WaitKind.APPROVAL, Party.PERSON:
            return f": harborage approve {wait.id}, or reject"
        case WaitKind.PAUSE, Party.PERSON:
            return f": harborage answer {wait.id} TEXT, or approve, or reject"
        case _:
            return ""


def settled_lines(settled: Sequence[Settled]) -> list[str]:
    """What was done."""
    return [f"✓ settled {one.wait.kind} {one.wait.id}: {one.done}" for one in settled] or ["nothing was left to settle"]


def report(findings: Sequence[Finding], waits: Sequence[Wait], settled: Sequence[Settled]) -> bytes:
    """All of it as one JSON object."""
    rows: list[dict[str, Any]] = []
    for one in waits:
        row = msgspec.structs.asdict(one)
        rows.append({**row, "needs_person": needs_person(one), "is_orphan": one.is_orphan})
    done = [{"kind": one.wait.kind, "id": one.wait.id, "done": one.done} for one in settled]
    return codec.encode({"findings": list(findings), "waits": rows, "settled": done}, "report")
