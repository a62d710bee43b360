"""What goes on in a run: its open steps with their calls, its children, and the messages that it has not read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec
from rich.text import Text

from harborage.cli.handles import LENGTH
from harborage.cli.rows import INDENT, Mark, Row, clock, counted, took
from harborage.cli.text import one_line, plural

_SHOWN_CALLS: Final = 4

Shown: TypeAlias = Row | Text
"""A row, which is laid out for the width of the terminal, or a line that is what it is."""


class CallLine(msgspec.Struct, kw_only=True):
    """One call: what it was made with, what came of it, and how far it is as its tool says. `notes` stand below it.

    `args` are in short, `given` are all of them without secrets.
    """

    tool: str
    args: str
    began: datetime
    given: Any = None
    mark: Mark = Mark.OPEN
    result: str = ""
    ended: datetime | None = None
    notes: list[str] = msgspec.field(default_factory=list)


class StepLines(msgspec.Struct, kw_only=True):
    """The calls of one step that has not ended, by their positions."""

    number: int
    began: datetime
    calls: dict[str, CallLine] = msgspec.field(default_factory=dict)
    waits_for: str = ""


class ChildLines(msgspec.Struct, kw_only=True):
    """A child run, and the calls that it has made: the last ones, and how many before them are forgotten."""

    run_id: str
    name: str
    began: datetime
    goal: str = ""
    tag: str = ""
    calls: dict[str, CallLine] = msgspec.field(default_factory=dict)
    forgotten: int = 0

    @property
    def title(self) -> str:
        """Its name and the handle of its run."""
        return f"{self.name} {self.run_id[-LENGTH:]}"


class Asked(msgspec.Struct, frozen=True):
    """An approval that was asked for: when, and for a call with which arguments."""

    at: datetime
    args: Any


class Folds(msgspec.Struct, kw_only=True):
    """What goes on in a run, and the rows of the steps that have ended.

    `user` is who looks; `sent` are that person's messages that the run has not read. When `is_unfolded` every call has
    a row of its own.
    """

    user: str = ""
    is_unfolded: bool = False
    steps: dict[int, StepLines] = msgspec.field(default_factory=dict)
    children: dict[str, ChildLines] = msgspec.field(default_factory=dict)
    sent: list[str] = msgspec.field(default_factory=list)
    ended: list[Shown] = msgspec.field(default_factory=list)
    asked: dict[str, Asked] = msgspec.field(default_factory=dict)
    approved: dict[str, list[tuple[str, Any]]] = msgspec.field(default_factory=dict)

    @property
    def is_busy(self) -> bool:
        """Whether calls or children go on, so that the block says what the run does."""
        return bool(self.steps or self.children)


def summary_of(calls: Sequence[CallLine]) -> str:
    """Return how many calls there are, how many have failed, and of which tools."""
    failed = sum(call.mark is Mark.FAILED for call in calls)
    some = f", {failed} failed" if failed else ""
    return f"{plural(len(calls), 'call')}{some}: {counted(call.tool for call in calls)}"


def mark_of_all(calls: Sequence[CallLine]) -> Mark:
    """Return where several calls are: on their way, well unless none is, or unknown if one is."""
    marks = {call.mark for call in calls}
    if Mark.OPEN in marks or len(marks) == 1:
        return Mark.OPEN if Mark.OPEN in marks else marks.pop()
    return Mark.UNKNOWN if Mark.UNKNOWN in marks else Mark.DONE if Mark.DONE in marks else Mark.FAILED


def row_of(call: CallLine, tag: str = "", now: datetime | None = None) -> Row:
    """Return the row of a call; one without a tag stands below its step."""
    ended = call.ended
    lasted = took(call.began, ended) if ended is not None else "" if now is None else clock(call.began, now)
    return Row(
        mark=call.mark,
        tag=tag,
        name=call.tool,
        args=call.args,
        result=call.result,
        took=lasted,
        is_below=not tag,
    )


def render_block(folds: Folds, now: datetime, width: int, most: int) -> list[Text]:
    """Render the open steps and children, and the messages without a fate, in at most so many rows."""
    rows = [text for row in _open_rows(folds, now) for text in (row.text(width, now),)]
    for text in folds.sent:
        sent = Text("  › ", style="bold", no_wrap=True, overflow="ellipsis")
        rows.append(sent.append(one_line(text)).append("  steers: before the next step", "dim"))
    if len(rows) <= most:
        return rows
    kept = max(1, most - 1)
    return [*rows[:kept], Text(f"{' ' * INDENT}and {len(rows) - kept} more", style="dim")]


def _open_rows(folds: Folds, now: datetime) -> Iterator[Row]:
    for step in folds.steps.values():
        calls, tag = [*step.calls.values()], str(step.number)
        if step.waits_for and not calls:
            yield Row(mark=Mark.WAITING, tag=tag, said=f"waits for {step.waits_for}", took=clock(step.began, now))
        elif len(calls) == 1:
            yield row_of(calls[0], tag, now)
        elif calls:
            yield Row(mark=Mark.OPEN, tag=tag, said=summary_of(calls), took=clock(step.began, now))
            yield from (row_of(call, now=now) for call in calls)
    for child in folds.children.values():
        goal = f": {child.goal}" if child.goal else ""
        yield Row(mark=Mark.OPEN, tag=child.tag, name=child.title, said=goal, took=clock(child.began, now))
        yield from _child_rows(folds, child, now)


def _child_rows(folds: Folds, child: ChildLines, now: datetime) -> Iterator[Row]:
    """The calls of a child that go on, and the last that have ended, in the order in which they began."""
    calls = [*child.calls.values()]
    ended = [call for call in calls if call.mark is not Mark.OPEN]
    left_out = [] if folds.is_unfolded else ended[:-_SHOWN_CALLS]
    if left_out or child.forgotten:
        said = f"{plural(len(left_out) + child.forgotten, 'earlier call')}: {counted(call.tool for call in left_out)}"
        yield Row(mark=mark_of_all(left_out) if left_out else Mark.DONE, said=said, is_below=True)
    hidden = set(map(id, left_out))
    yield from (row_of(call, now=now) for call in calls if id(call) not in hidden)
