"""The state of the view of a run and its tasks, and the form of a line.

Values only: `view` derives them from events, `journal_view` from journal entries.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec
from rich.text import Text

from harborage.cli.text import printable
from harborage.planner import Finish, SpawnSpec

_TAG_WIDTH = 5


class Call(msgspec.Struct, frozen=True):
    """A tool call in flight; `tag` is its place, such as `4` or `4.2`."""

    tag: str
    tool: str
    began: datetime


class RunView(msgspec.Struct, kw_only=True):
    """The view of one run. `label` is empty for the run of the command, `t1`, `t2`, … for spawned tasks.

    `step` is the latest step; `decided_steps` counts decisions by events and `recorded_steps` by entries, and either
    may come first. `finish` is what the planner decided to end with, `failure` the error it failed with and its text.
    `pause_reason` is why it is paused, `ended` how its task ended, `spawn_spec` the latest task that it spawned.
    `is_start_shown`, `is_end_shown` and `is_cancel_shown` say which lines are written, `is_spawned` that the entry of
    its spawning came. `remark_step` is the step whose remark, `rejected_tools` the tools whose rejection was written
    before their entry came.
    """

    run_id: str
    label: str = ""
    parent: str = ""
    kind: str = ""
    spawn_spec: SpawnSpec = SpawnSpec()
    step: int = 0
    decided_steps: int = 0
    recorded_steps: int = 0
    decision: str = ""
    finish: Finish | None = None
    failure: tuple[str, str] | None = None
    calls: dict[str, Call] = msgspec.field(default_factory=dict)
    pause_reason: str = ""
    ended: str = ""
    remark_step: int = 0
    rejected_tools: list[str] = msgspec.field(default_factory=list)
    is_start_shown: bool = False
    is_spawned: bool = False
    is_end_shown: bool = False
    is_cancel_shown: bool = False
    began: datetime | None = None
    since: datetime | None = None


class View(msgspec.Struct, kw_only=True):
    """The view of all runs of a session.

    `streaming` is the end of what the model writes now, `opening` its beginning, `thinking` the end of its reasoning.
    """

    root: str
    runs: dict[str, RunView]
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    currency: str = ""
    streaming: str = ""
    opening: str = ""
    thinking: str = ""

    @property
    def main(self) -> RunView:
        """The run of the command."""
        return self.runs[self.root]

    @property
    def tasks(self) -> list[RunView]:
        """The spawned tasks, in the order of their spawning."""
        return [run for run in self.runs.values() if run.label]


def new_view(root: str, began: datetime | None = None) -> View:
    """Return the view of a run before its first event."""
    return View(root=root, runs={root: RunView(run_id=root, began=began, since=began)})


def run_of(view: View, run_id: str) -> RunView:
    """Return the view of the run with that id; a new one is a task, and gets the next label."""
    run = view.runs.get(run_id)
    if run is None:
        run = view.runs[run_id] = RunView(run_id=run_id, label=f"t{len(view.runs)}")
    return run


Part: TypeAlias = str | tuple[str, str]
"""Words, or words with a style."""


def line(run: RunView, glyph: str, style: str, *parts: Part, tag: str = "", wrap: bool = False) -> Text:
    """Return one line: the task's label, the step, a glyph and the text; cut at the screen's edge unless `wrap`.

    The text may come from a model or a tool, so control characters in it are spelled out.
    """
    whose = f"    │ {run.label} " if run.label else ""
    text = Text() if wrap else Text(no_wrap=True, overflow="ellipsis")
    text.append(whose, "dim").append(f"{tag:>{_TAG_WIDTH}} ", "dim").append(glyph, style).append(" ")
    for part in parts:
        words, look = (part, None) if isinstance(part, str) else part
        text.append(printable(words, keep=""), look)
    return text
