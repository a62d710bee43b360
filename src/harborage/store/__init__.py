"""The store of record: where runs are kept, who may change them, and in which transaction.

A run is a row, its journal, its controls and its pauses; what changes together travels as one `Commit`, which a store
applies whole or not at all. `rows` are what is read, `commit` is what is written, `queries` what can be asked, `port`
the faces of a store, and each driver has a folder of its own.
"""

from __future__ import annotations

from harborage.store.commit import (
    Change,
    ChangeGroup,
    Commit,
    Committed,
    DecidePatch,
    Guard,
    Move,
    NewEvent,
    NewGroup,
    NewPause,
    NewRun,
    SendControl,
    SettlePause,
)
from harborage.store.port import Claimed, Queue, Records, Store, Upkeep, Views
from harborage.store.queries import EventQuery, Orphan, Page, PauseQuery, RunCounts, RunQuery, SessionQuery
from harborage.store.rows import (
    EVENT_STEP,
    ControlRow,
    EventRow,
    GroupRow,
    GroupStatus,
    Lease,
    PatchRow,
    PauseRow,
    PauseStatus,
    RunRow,
    SessionRow,
    Status,
)

__all__ = [
    "EVENT_STEP",
    "Change",
    "ChangeGroup",
    "Claimed",
    "Commit",
    "Committed",
    "ControlRow",
    "DecidePatch",
    "EventQuery",
    "EventRow",
    "GroupRow",
    "GroupStatus",
    "Guard",
    "Lease",
    "Move",
    "NewEvent",
    "NewGroup",
    "NewPause",
    "NewRun",
    "Orphan",
    "Page",
    "PatchRow",
    "PauseQuery",
    "PauseRow",
    "PauseStatus",
    "Queue",
    "Records",
    "RunCounts",
    "RunQuery",
    "RunRow",
    "SendControl",
    "SessionQuery",
    "SessionRow",
    "SettlePause",
    "Status",
    "Store",
    "Upkeep",
    "Views",
]
