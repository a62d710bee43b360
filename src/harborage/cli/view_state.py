"""What has been seen of a run and of the tasks it spawned: the state that the view folds into, and the look of a line.

Values only; `view` folds events into them, `records` folds the journal.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec
from rich.text import Text

from harborage.cli.text import printable
from harborage.planner import SpawnSpec

__all__ = ["Call", "RunSeen", "View", "line", "new_view", "run_of"]

_TAG_WIDTH = 5


class Call(msgspec.Struct, frozen=True):
    """A tool call in flight; `tag` is its place, such as `4` or `4.2`."""

    tag: str
    tool: str
    began: datetime


class RunSeen(msgspec.Struct, kw_only=True):
    """One run as far as it was seen. `label` is empty for the run of the command, `t1`, `t2`, … for spawned tasks.

    `step` is how far it is; `decided` counts the decisions that were told of, `recorded` those whose record was seen,
    and either may come first. `held` is why it is parked; `ended` how its task ended; `is_announced` and `is_told`
    whether its beginning and its end were written, `is_spawned` whether the record of its spawning was seen; `wanted`
    is what it last spawned a task for. `remarked` is the step whose remark, `refused` the tools whose refusal was
    written before the record of it came.
    """

    run_id: str
    label: str = ""
    parent: str = ""
    kind: str = ""
    wanted: SpawnSpec = SpawnSpec()
    step: int = 0
    decided: int = 0
    recorded: int = 0
    decision: str = ""
    calls: dict[str, Call] = msgspec.field(default_factory=dict)
    held: str = ""
    ended: str = ""
    remarked: int = 0
    refused: list[str] = msgspec.field(default_factory=list)
    is_announced: bool = False
    is_spawned: bool = False
    is_told: bool = False
    began: datetime | None = None
    since: datetime | None = None


class View(msgspec.Struct, kw_only=True):
    """Everything seen so far.

    `streaming` is the tail of what the model writes now, `opening` its beginning, `thinking` the tail of the reasoning
    before it.
    """

    root: str
    runs: dict[str, RunSeen]
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    currency: str = ""
    streaming: str = ""
    opening: str = ""
    thinking: str = ""

    @property
    def main(self) -> RunSeen:
        """The run of the command."""
        return self.runs[self.root]

    @property
    def tasks(self) -> list[RunSeen]:
        """The spawned tasks, in the order of their spawning."""
        return [run for run in self.runs.values() if run.label]


def new_view(root: str, began: datetime | None = None) -> View:
    """The view of a run of which nothing was seen yet."""
    return View(root=root, runs={root: RunSeen(run_id=root, began=began, since=began)})


def run_of(view: View, run_id: str) -> RunSeen:
    """The run of that id; one that was not seen before is a task, and gets the next label."""
    run = view.runs.get(run_id)
    if run is None:
        run = view.runs[run_id] = RunSeen(run_id=run_id, label=f"t{len(view.runs)}")
    return run


Part: TypeAlias = str | tuple[str, str]
"""Words, or words with a style."""


def line(run: RunSeen, glyph: str, style: str, *parts: Part, tag: str = "", wrap: bool = False) -> Text:
    """One line: whose it is, its place, a sign and the words; cut at the screen's edge unless `wrap`.

    The words may come from anywhere: control characters in them are spelled out.
    """
    whose = f"    │ {run.label} " if run.label else ""
    text = Text() if wrap else Text(no_wrap=True, overflow="ellipsis")
    text.append(whose, "dim").append(f"{tag:>{_TAG_WIDTH}} ", "dim").append(glyph, style).append(" ")
    for part in parts:
        words, look = (part, None) if isinstance(part, str) else part
        text.append(printable(words, keep=""), look)
    return text
