"""The recorded history of a run: read it, replay it, fork it, compare it with another.

Everything here starts from the entries of a journal, as `Run.history()` returns them, and never changes them.
"""

from __future__ import annotations

from harborage.runtime.history.builder import build_history
from harborage.runtime.history.differences import Difference, DifferenceKind, compare
from harborage.runtime.history.forking import Fork, ForkError, fork_at
from harborage.runtime.history.model import (
    CallMade,
    CallStatus,
    ChildSpawned,
    ControlTaken,
    ModelAsked,
    PauseTaken,
    RunHistory,
    StepTaken,
    Totals,
)
from harborage.runtime.history.offline import OfflineError, offline
from harborage.runtime.history.reading import RunPrefixError, all_runs, find_run, read_run
from harborage.runtime.history.render import render_history
from harborage.runtime.history.replaying import Replayed, ReplayError, replay

__all__ = [
    "CallMade",
    "CallStatus",
    "ChildSpawned",
    "ControlTaken",
    "Difference",
    "DifferenceKind",
    "Fork",
    "ForkError",
    "ModelAsked",
    "OfflineError",
    "PauseTaken",
    "ReplayError",
    "Replayed",
    "RunHistory",
    "RunPrefixError",
    "StepTaken",
    "Totals",
    "all_runs",
    "build_history",
    "compare",
    "find_run",
    "fork_at",
    "offline",
    "read_run",
    "render_history",
    "replay",
]
