"""The store of record: where runs are kept, who may change them, and in which transaction.

A run is a row, its journal, its controls and its pauses; what changes together travels as one `Commit`, which a store
applies whole or not at all. `rows` are what is read, `commit` is what is written, `queries` what can be asked, `port`
the faces of a store, and each driver has a folder of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.store.commit import Change as Change
    from harborage.store.commit import ChangeGroup as ChangeGroup
    from harborage.store.commit import Commit as Commit
    from harborage.store.commit import Committed as Committed
    from harborage.store.commit import DecidePatch as DecidePatch
    from harborage.store.commit import DropAnswer as DropAnswer
    from harborage.store.commit import Guard as Guard
    from harborage.store.commit import Move as Move
    from harborage.store.commit import NewEvent as NewEvent
    from harborage.store.commit import NewGroup as NewGroup
    from harborage.store.commit import NewPause as NewPause
    from harborage.store.commit import NewRun as NewRun
    from harborage.store.commit import OpenSession as OpenSession
    from harborage.store.commit import SendControl as SendControl
    from harborage.store.commit import SettlePause as SettlePause
    from harborage.store.port import Claimed as Claimed
    from harborage.store.port import Queue as Queue
    from harborage.store.port import Records as Records
    from harborage.store.port import Sessions as Sessions
    from harborage.store.port import Store as Store
    from harborage.store.port import Upkeep as Upkeep
    from harborage.store.port import Views as Views
    from harborage.store.queries import EventCount as EventCount
    from harborage.store.queries import EventCountQuery as EventCountQuery
    from harborage.store.queries import EventQuery as EventQuery
    from harborage.store.queries import GroupQuery as GroupQuery
    from harborage.store.queries import Orphan as Orphan
    from harborage.store.queries import Owner as Owner
    from harborage.store.queries import Page as Page
    from harborage.store.queries import PauseQuery as PauseQuery
    from harborage.store.queries import RunCounts as RunCounts
    from harborage.store.queries import RunQuery as RunQuery
    from harborage.store.queries import RunTotals as RunTotals
    from harborage.store.queries import SessionListQuery as SessionListQuery
    from harborage.store.queries import SessionPlace as SessionPlace
    from harborage.store.queries import SessionQuery as SessionQuery
    from harborage.store.queries import SessionSort as SessionSort
    from harborage.store.queries import SessionState as SessionState
    from harborage.store.queries import SessionTotals as SessionTotals
    from harborage.store.rows import EVENT_STEP as EVENT_STEP
    from harborage.store.rows import LIVE as LIVE
    from harborage.store.rows import ControlRow as ControlRow
    from harborage.store.rows import EventRow as EventRow
    from harborage.store.rows import GroupLeft as GroupLeft
    from harborage.store.rows import GroupRow as GroupRow
    from harborage.store.rows import GroupStatus as GroupStatus
    from harborage.store.rows import Lease as Lease
    from harborage.store.rows import PatchRow as PatchRow
    from harborage.store.rows import PauseRow as PauseRow
    from harborage.store.rows import PauseStatus as PauseStatus
    from harborage.store.rows import RunRow as RunRow
    from harborage.store.rows import SessionChange as SessionChange
    from harborage.store.rows import SessionRow as SessionRow
    from harborage.store.rows import Status as Status
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.store.commit": (
                "Change ChangeGroup Commit Committed DecidePatch DropAnswer Guard Move NewEvent NewGroup NewPause "
                "NewRun OpenSession SendControl SettlePause"
            ),
            "harborage.store.port": "Claimed Queue Records Sessions Store Upkeep Views",
            "harborage.store.queries": (
                "EventCount EventCountQuery EventQuery GroupQuery Orphan Owner Page PauseQuery RunCounts RunQuery "
                "RunTotals SessionListQuery SessionPlace SessionQuery SessionSort SessionState SessionTotals"
            ),
            "harborage.store.rows": (
                "EVENT_STEP LIVE ControlRow EventRow GroupLeft GroupRow GroupStatus Lease PatchRow PauseRow "
                "PauseStatus RunRow SessionChange SessionRow Status"
            ),
        },
    )
