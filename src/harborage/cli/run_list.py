"""The list of kept runs: what waits for a person first, then the newest, children below their parent. Pure.

A table where the terminal has the columns for it, two lines a run where it is narrow; nothing is cut in a pipe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any, Final

import msgspec

from harborage import codec
from harborage.app.project import Origin
from harborage.cli.handles import handles
from harborage.cli.questions import is_approval, is_held_by_control, is_interrupted_call
from harborage.cli.status import agent_of, is_waiting_for_provider, reason_of, status_of
from harborage.cli.terminal import BLUE, BOLD, DIM, GREEN, MAGENTA, RED, YELLOW, Look, columns, pad
from harborage.cli.text import age, duration, masked, money, one_line, printable, wire_json
from harborage.runtime.loop.pauses import Pause
from harborage.store import RunRow
from harborage.store.times import moment

_PIPED_WHAT: Final = 160
_LEAST_WHAT: Final = 14
_WIDE: Final = 110
_NEVER: Final = datetime.max
MARKS: Final[Mapping[str, tuple[str, int]]] = {
    "pending": ("◌", DIM),
    "running": ("◐", BLUE),
    "waiting": ("◆", YELLOW),
    "interrupted": ("◠", YELLOW),
    "blocked": ("⊟", RED),
    "complete": ("✓", GREEN),
    "failed": ("✗", RED),
    "cancelled": ("⊘", DIM),
}
_CLASS: Final = re.compile(r"^[A-Z]\w*(?:Error|Exception): (?=.)")
_STEP: Final = re.compile(r"^steering: planner step (\d+): ")
_HEADS: Final = ("RUN", "AGENT", "STATUS", "SESSION", "USER", "CALLS", "AGE", "TIME", "COST", "WHAT")
_RIGHT: Final = frozenset({"CALLS", "AGE", "TIME", "COST"})
_ONLY_WIDE: Final = frozenset({"SESSION", "USER", "CALLS"})


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the list. `depth` is 0 for one that is not below its parent; `pause` is what it waits for a person with.

    `handle` names it on the command line.
    """

    row: RunRow
    handle: str
    depth: int = 0
    pause: Pause | None = None

    @property
    def status(self) -> str:
        """Where the run is, in one word."""
        return status_of(self.row)

    @property
    def mark(self) -> tuple[str, int]:
        """The glyph of its status, and the colour of that."""
        if self.status != "waiting":
            return MARKS[self.status]
        if self.pause is None:
            return "┄", DIM
        if is_interrupted_call(self.pause):
            return "▲", MAGENTA
        return ("‖", YELLOW) if is_held_by_control(self.pause) else MARKS["waiting"]

    @property
    def waits_for(self) -> str:
        """What a person has to do, or why it does not go on; "" for a run that goes on or has ended well."""
        if self.pause is not None and self.status == "waiting":
            return _asked(self.pause)
        if self.status in {"failed", "blocked"} or is_waiting_for_provider(self.row):
            return plain_reason(self.row)
        return ""

    @property
    def goal(self) -> str:
        """Its description, else its goal, on one line."""
        return one_line(self.row.description or self.row.about, _PIPED_WHAT)

    def took(self, now: datetime) -> timedelta | None:
        """How long it has run: up to now while it does, else up to its last entry; None before its first one."""
        if self.status == "pending":
            return None
        return (now if self.status == "running" else moment(self.row.updated_at)) - moment(self.row.created_at)


def plain_reason(row: RunRow) -> str:
    """Return why a run failed, is blocked or waits, on one line and without the names of classes."""
    reason = one_line(str(masked(reason_of(row))), _PIPED_WHAT)
    return _STEP.sub(lambda found: f"step {int(found[1]) + 1}: ", _CLASS.sub("", reason))


def _asked(pause: Pause) -> str:
    tool = printable(str((pause.payload or {}).get("tool", "")), keep="")
    if is_interrupted_call(pause):
        return f"outcome of {tool}"
    if is_approval(pause):
        return f"approve {tool}"
    return "paused" if is_held_by_control(pause) else "an answer"


def agent_name(row: RunRow) -> str:
    """Return the short name of a run's agent: `shop` for `agents/shop.py`, `night` for `shop.py:night`; the name of one
    that another agent called."""
    if part := Origin.of(row.agent).part:
        return printable(part.rpartition("/")[2], keep="")
    target = printable(agent_of(row), keep="")
    place, _, name = target.partition(":")
    return (name or PurePath(place).stem.rpartition(".")[2] or target) if target else "assistant"


def list_runs(rows: Sequence[RunRow], pauses: Iterable[Pause], *, known: Iterable[str] = ()) -> list[ListedRun]:
    """Return the runs in the order of the list, with their handles; `known` are the ids of other runs there are.

    `rows` are in any order; of several pauses of a run the one with the nearest deadline counts.
    """
    names = handles([*(row.run_id for row in rows), *known])
    waits: dict[str, Pause] = {}
    for one in sorted(pauses, key=_urgency, reverse=True):
        waits[one.identity.run_id] = one
    kept = {row.run_id for row in rows}
    below: dict[str, list[RunRow]] = {}
    for row in sorted(rows, key=lambda row: row.number, reverse=True):
        below.setdefault(row.parent if row.parent in kept else "", []).append(row)

    def tree(row: RunRow, depth: int) -> list[ListedRun]:
        first = ListedRun(row=row, handle=names[row.run_id], depth=depth, pause=waits.get(row.run_id))
        return [first, *(one for child in below.get(row.run_id, ()) for one in tree(child, depth + 1))]

    trees = [tree(row, 0) for row in below.get("", ())]
    return [one for members in sorted(trees, key=_tree_urgency) for one in members]


def _urgency(pause: Pause) -> tuple[int, datetime]:
    return (int(is_held_by_control(pause)), _NEVER if pause.deadline is None else pause.deadline.replace(tzinfo=None))


def _tree_urgency(members: Sequence[ListedRun]) -> tuple[int, datetime]:
    """The most urgent question of a run and those below it; one without a question comes after all that have one."""
    open_ones = [_urgency(one.pause) for one in members if one.pause is not None and one.status == "waiting"]
    return min(open_ones, default=(2, _NEVER))


def first_trees(listed: Sequence[ListedRun], limit: int) -> list[ListedRun]:
    """Return the first `limit` runs with the children below each."""
    starts = [index for index, one in enumerate(listed) if not one.depth]
    return list(listed if len(starts) <= limit else listed[: starts[limit]])


def render_runs(listed: Sequence[ListedRun], now: datetime, look: Look) -> list[str]:
    """Render the list: a table with a header, or two lines a run where the terminal is too narrow for that."""
    heads = [head for head in _HEADS if head not in _ONLY_WIDE or (look.width or 0) >= _WIDE]
    rows = [{"WHAT": "", **_cells(one, now, look)} for one in listed]
    widths = {head: max(columns(head), *(columns(row[head]) for row in rows)) for head in heads[:-1]}
    room = _PIPED_WHAT if look.width is None else look.width - sum(widths.values()) - 2 * len(widths)
    if room < _LEAST_WHAT:
        return [line for one in listed for line in _record(one, now, look)]
    header = "  ".join([*(pad(head, widths[head], right=head in _RIGHT) for head in heads[:-1]), "WHAT"])
    lines = [look.paint(header, DIM)]
    for one, row in zip(listed, rows, strict=True):
        cells = [_painted(one, head, pad(row[head], widths[head], right=head in _RIGHT), look) for head in heads[:-1]]
        lines.append("  ".join([*cells, look.cut(row["WHAT"], room)]).rstrip())
    return lines


def _cells(one: ListedRun, now: datetime, look: Look) -> dict[str, str]:
    row = one.row
    took = one.took(now)
    branch = f"{'  ' * (one.depth - 1)}└ " if one.depth else ""
    goal = f": {one.goal}" if one.waits_for and (look.width or _WIDE) >= _WIDE else ""
    cells = {
        "RUN": one.handle,
        "AGENT": f"{branch}{agent_name(row)}",
        "STATUS": f"{one.mark[0]} {one.status}",
        "SESSION": look.cut(printable(row.who.session_id, keep=""), 10),
        "USER": look.cut(printable(row.who.user_id, keep=""), 10),
        "CALLS": str(row.tool_count),
        "AGE": age(now - moment(row.created_at)),
        "TIME": "" if took is None else duration(took.total_seconds()),
        "COST": money(row.cost),
        "WHAT": f"{one.waits_for}{goal}" if one.waits_for else one.goal,
    }
    return {head: look.plain(cell) for head, cell in cells.items()}


def _painted(one: ListedRun, head: str, cell: str, look: Look) -> str:
    if head in {"AGE", "TIME", "COST", "SESSION", "USER", "CALLS"}:
        return look.paint(cell, DIM)
    if head != "STATUS":
        return cell
    glyph, rest = cell[0], cell[1:]
    word = rest.rstrip()
    is_loud = one.mark[1] in {YELLOW, MAGENTA, RED}
    return f"{look.paint(glyph, one.mark[1])}{look.paint(word, BOLD) if is_loud else word}{rest[len(word) :]}"


def _record(one: ListedRun, now: datetime, look: Look) -> list[str]:
    """One run in two lines: what it is and took, and what it waits for or does."""
    cells, width = _cells(one, now, look), look.width or 80
    indent = "  " * one.depth
    sums = f"  {cells['TIME']:>6}  {cells['COST']:>5}"
    plain = f"{indent}{cells['STATUS'][0]} {agent_name(one.row)} {one.handle}  {one.status}, {cells['AGE']}"
    fill = " " * max(1, width - columns(plain) - columns(sums))
    first = plain.replace(cells["STATUS"][0], look.paint(cells["STATUS"][0], one.mark[1]), 1)
    what = look.plain(f"{one.waits_for}: {one.goal}" if one.waits_for else one.goal)
    second = f"{indent}    {look.cut(what, max(8, width - len(indent) - 4))}"
    return [f"{first}{fill}{look.paint(sums, DIM)}".rstrip(), second.rstrip()]


def run_json(one: ListedRun, now: datetime) -> str:
    """Return a run of the list as one line of JSON; what is not known is absent."""
    row, took = one.row, one.took(now)
    fields: dict[str, Any] = {
        "type": "run",
        "run_id": row.run_id,
        "handle": one.handle,
        "parent": row.parent,
        "agent": agent_of(row),
        "tenant": row.who.tenant_id,
        "user": row.who.user_id,
        "session": row.who.session_id,
        "status": one.status,
        "reason": masked(reason_of(row)),
        "needs": _asked(one.pause) if one.pause is not None and one.status == "waiting" else "",
        "goal": masked(row.about),
        "description": masked(row.description),
        "started_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
        "ended_at": moment(row.updated_at) if row.status.is_final else None,
        "wake_at": None if row.wake_at is None else moment(row.wake_at),
        "waits_for": row.awaits,
        "elapsed_ms": None if took is None else round(took.total_seconds() * 1000),
        "entries": row.position,
        "calls": row.tool_count,
        "tokens": row.tokens or None,
        "usd": row.cost / 1_000_000 or None,
    }
    return wire_json(codec.encode({key: value for key, value in fields.items() if value not in (None, "")}))
