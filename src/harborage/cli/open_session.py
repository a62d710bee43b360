"""What a session needs to carry a run or to follow one: the agent on its model, its runtime over the storage.

Opened in order and closed in reverse. What cannot be opened is an error before anything of the run has happened.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harborage.app import Agent, ChosenModel, check_attachments, read_attachment, readable, with_model
from harborage.app.attachments import Attachment
from harborage.app.keeping import Origin
from harborage.app.replays import open_kept
from harborage.cli.feed import OnEntries, WatchedStore, watched
from harborage.cli.status import is_put_off
from harborage.identity import Identity
from harborage.runtime.durable import RunNotFoundError
from harborage.runtime.model import is_own_planner
from harborage.state.storage import open_storage
from harborage.store import RunRow

if TYPE_CHECKING:
    from harborage.runtime.host import Run, Runtime
    from harborage.runtime.steering.controls import Scope

__all__ = ["Aboard", "Wishes", "aboard", "taken_up"]


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is wanted for. `deadline_s` is in seconds from its start, `max_cost` in US dollars; an empty `model`
    leaves it to the agent.

    `storage` is where the run is kept, `artifacts` the folder for what it makes (None: memory), `origin` what is
    written into it so that its agent is found again; `attached` are files that the run gets along with its goal.
    `record` is the run that is gone on with, None for a new one; `has_attachments` says whether it has got files.
    """

    goal: str
    who: Identity
    storage: str = "memory:"
    artifacts: Path | None = None
    origin: Origin = Origin()
    model: str = ""
    attached: tuple[Path, ...] = ()
    approves: bool = False
    max_steps: int = 0
    max_cost: float | None = None
    deadline_s: float | None = None
    record: RunRow | None = None
    has_attachments: bool = False

    @property
    def entries(self) -> int:
        """How many entries the run had when it was found; 0 for a new one."""
        return 0 if self.record is None else self.record.position

    @property
    def is_kept(self) -> bool:
        """Whether the run outlives this process."""
        return not self.storage.lower().startswith("memory:")


class Aboard(msgspec.Struct, frozen=True, kw_only=True):
    """The open parts. `chosen` is the model that decides, None when none is known here."""

    runtime: Runtime
    store: WatchedStore
    agent: Agent
    chosen: ChosenModel | None
    files: tuple[Attachment, ...]


@asynccontextmanager
async def aboard(agent: Agent, wishes: Wishes, on_entries: OnEntries) -> AsyncIterator[Aboard]:
    """The agent's runtime over the storage that is wished for; `on_entries` hears what it records.

    Raises:
        HarborageError: a file, the model, the storage or the agent cannot be opened.
    """
    files = tuple(read_attachment(path) for path in wishes.attached)
    agent, chosen = await with_model(agent, _model(agent, wishes), os.environ)
    if files:
        check_attachments(files, agent, os.environ)
    if files or wishes.has_attachments:
        agent = readable(agent)
    storage, store = watched(await open_storage(wishes.storage), on_entries)
    async with storage, open_kept(agent, storage, _name(wishes, chosen), artifacts=wishes.artifacts) as runtime:
        yield Aboard(runtime=runtime, store=store, agent=agent, chosen=chosen, files=files)


async def taken_up(runtime: Runtime, record: RunRow, scope: Scope) -> Run:
    """The handle on a run that was found; one that waits for its provider tries again now."""
    run = await runtime.run(record.run_id, who=record.who, scope=scope)
    if is_put_off(record):
        with suppress(RunNotFoundError):  # it has ended meanwhile
            await run.resume()
    return run


def _model(agent: Agent, wishes: Wishes) -> str:
    """The model that is asked for; else the one that has decided in this run so far, as long as it can be told one."""
    has_own_planner = is_own_planner(agent.planner)
    return wishes.model or ("" if has_own_planner else wishes.origin.model)


def _name(wishes: Wishes, chosen: ChosenModel | None) -> str:
    """Under which name runs are carried here: of a run that is gone on with its own, whatever has become of it."""
    if wishes.record is not None:
        return wishes.record.agent
    return msgspec.structs.replace(wishes.origin, model="" if chosen is None else chosen.model).text
