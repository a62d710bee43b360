"""The recorded history of a run: read it, replay it, fork it, compare it with another.

Everything here starts from the entries of a journal, as `Run.history()` returns them, and never changes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.runtime.history.builder import build_history as build_history
    from harborage.runtime.history.differences import Difference as Difference
    from harborage.runtime.history.differences import DifferenceKind as DifferenceKind
    from harborage.runtime.history.differences import compare as compare
    from harborage.runtime.history.forking import Fork as Fork
    from harborage.runtime.history.forking import ForkError as ForkError
    from harborage.runtime.history.forking import fork_at as fork_at
    from harborage.runtime.history.model import CallMade as CallMade
    from harborage.runtime.history.model import CallStatus as CallStatus
    from harborage.runtime.history.model import ChildSpawned as ChildSpawned
    from harborage.runtime.history.model import ControlTaken as ControlTaken
    from harborage.runtime.history.model import ModelAsked as ModelAsked
    from harborage.runtime.history.model import PauseTaken as PauseTaken
    from harborage.runtime.history.model import RunHistory as RunHistory
    from harborage.runtime.history.model import StepTaken as StepTaken
    from harborage.runtime.history.model import Totals as Totals
    from harborage.runtime.history.reading import RunPrefixError as RunPrefixError
    from harborage.runtime.history.reading import all_runs as all_runs
    from harborage.runtime.history.reading import find_run as find_run
    from harborage.runtime.history.reading import read_run as read_run
    from harborage.runtime.history.render import render_history as render_history
    from harborage.runtime.history.replaying import Replayed as Replayed
    from harborage.runtime.history.replaying import ReplayError as ReplayError
    from harborage.runtime.history.replaying import replay as replay
    from harborage.runtime.history.surroundings import OfflineError as OfflineError
    from harborage.runtime.history.surroundings import offline as offline
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.runtime.history.builder": "build_history",
            "harborage.runtime.history.differences": "Difference DifferenceKind compare",
            "harborage.runtime.history.forking": "Fork ForkError fork_at",
            "harborage.runtime.history.model": (
                "CallMade CallStatus ChildSpawned ControlTaken ModelAsked PauseTaken RunHistory StepTaken Totals"
            ),
            "harborage.runtime.history.surroundings": "OfflineError offline",
            "harborage.runtime.history.reading": "RunPrefixError all_runs find_run read_run",
            "harborage.runtime.history.render": "render_history",
            "harborage.runtime.history.replaying": "Replayed ReplayError replay",
        },
    )
