"""The list of questions that wait for a person: each with its run, its user and its deadline. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.cli.handles import handles
from harborage.cli.questions import is_approval, is_held_by_control, is_interrupted_call, shown_args
from harborage.cli.run_list import agent_name
from harborage.cli.terminal import DIM, MAGENTA, YELLOW, Look, columns, pad
from harborage.cli.text import duration, masked, one_line, plural, printable, wire_json
from harborage.planner import PauseReason
from harborage.runtime.loop.pauses import Pause, PauseDecision

if TYPE_CHECKING:
    from harborage.store import RunRow

_LAST: Final = datetime.max
_TEXT: Final = 60
_LEAST_WHEN: Final = 16
_THEN: Final = {
    PauseDecision.APPROVE: "approved",
    PauseDecision.REJECT: "rejected",
    PauseDecision.RESUME: "resumed",
    PauseDecision.TIMEOUT: "not answered",
}


class PendingQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question that waits for a person, with the handle of its run and the name of the agent."""

    pause: Pause
    handle: str
    agent: str

    @property
    def kind(self) -> str:
        """`approval`, `outcome` of an interrupted call, `question`, or `paused` by a person."""
        if is_interrupted_call(self.pause):
            return "outcome"
        if is_approval(self.pause) or self.pause.reason == PauseReason.APPROVAL_REQUIRED:
            return "approval"
        return "paused" if is_held_by_control(self.pause) else "question"

    @property
    def subject(self) -> str:
        """The tool that is called, else the kind."""
        tool = (self.pause.payload or {}).get("tool")
        return printable(str(tool), keep="") if tool else self.kind

    @property
    def mark(self) -> tuple[str, int]:
        """The glyph of its kind, and the colour of that."""
        return {"outcome": ("▲", MAGENTA), "paused": ("‖", YELLOW)}.get(self.kind, ("◆", YELLOW))

    @property
    def command(self) -> str:
        """The command that answers it, without the handle."""
        return {"approval": "approve", "paused": "resume"}.get(self.kind, "answer")

    def when(self, now: datetime) -> str:
        """Return how long it waits, and what happens then."""
        if self.pause.deadline is None:
            return "no deadline"
        left = (self.pause.deadline - now).total_seconds()
        then = "left unknown" if self.kind == "outcome" else _THEN[self.pause.default]
        if self.kind == "approval" and self.pause.default is PauseDecision.TIMEOUT:
            then = "rejected"
        return f"{duration(left)} left, then {then}" if left > 0 else f"overdue, will be {then}"


def list_questions(rows: Iterable[RunRow], pauses: Sequence[Pause]) -> list[PendingQuestion]:
    """Return the questions that no answer was sent to, the nearest deadline first; `rows` are all kept runs."""
    by_id = {row.run_id: row for row in rows}
    names = handles([*by_id, *(one.identity.run_id for one in pauses)])
    found = [
        PendingQuestion(
            pause=one,
            handle=names[one.identity.run_id],
            agent=agent_name(by_id[one.identity.run_id]) if one.identity.run_id in by_id else "-",
        )
        for one in pauses
        if not one.answering
    ]
    return sorted(found, key=_urgency)


def _urgency(one: PendingQuestion) -> tuple[bool, datetime, datetime]:
    until = _LAST if one.pause.deadline is None else one.pause.deadline.replace(tzinfo=None)
    return one.kind == "paused", until, one.pause.paused_at.replace(tzinfo=None)


def render_questions(waits: Sequence[PendingQuestion], now: datetime, look: Look) -> list[str]:
    """Render a line for each question; two on a terminal that is too narrow for it."""
    cells = [[look.plain(cell) for cell in _cells(one, now)] for one in waits]
    widths = [max((columns(row[at]) for row in cells), default=0) for at in range(3)]
    room = None if look.width is None else look.width - sum(widths) - 3 * 3 - 2
    lines = []
    for one, (subject, run, user, when) in zip(waits, cells, strict=True):
        glyph = look.paint(look.plain(one.mark[0]), one.mark[1])
        first = f"{glyph} {pad(subject, widths[0])}   {pad(run, widths[1])}"
        if room is None or room >= _LEAST_WHEN:
            end = when if room is None else look.cut(when, room)
            lines.append(f"{first}   {pad(user, widths[2])}   {look.paint(end, DIM)}")
        else:
            below = look.cut(f"{user} - {when}", max(8, (look.width or 80) - 4))
            lines += [
                f"{glyph} {look.cut(f'{subject}  {run}', (look.width or 80) - 2)}",
                f"    {look.paint(below, DIM)}",
            ]
    return lines


def _cells(one: PendingQuestion, now: datetime) -> list[str]:
    return [
        one_line(one.subject, _TEXT),
        f"{one.agent} {one.handle}",
        one_line(one.pause.identity.user_id, _TEXT),
        one.when(now),
    ]


def render_rest(waits: Sequence[PendingQuestion]) -> str:
    """Render the line below the list: how many there are, and how to answer the first."""
    if not waits:
        return "nothing needs you\n"
    needs = plural(len(waits), "item needs", "items need")
    return f"{needs} a person · harborage {waits[0].command} {waits[0].handle}\n"


def question_json(one: PendingQuestion) -> str:
    """Return a question as one line of JSON, with its whole token; secrets are masked."""
    pause = one.pause
    payload = pause.payload or {}
    is_call = one.kind in {"approval", "outcome"}
    fields: dict[str, Any] = {
        "type": "pending",
        "kind": one.kind,
        "token": pause.token,
        "run_id": pause.identity.run_id,
        "handle": one.handle,
        "agent": one.agent,
        "tenant": pause.identity.tenant_id,
        "user": pause.identity.user_id,
        "session": pause.identity.session_id,
        "tool": payload.get("tool"),
        "args": masked(shown_args(payload.get("args_summary"))) if is_call else None,
        "question": None if is_call or not payload else masked(payload),
        "asked_at": pause.paused_at,
        "deadline": pause.deadline,
        "default": str(pause.default) if pause.deadline is not None else None,
    }
    return wire_json(codec.encode({key: value for key, value in fields.items() if value is not None}))
