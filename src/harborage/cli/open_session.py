"""Open what a session needs to execute or follow a run: the agent on its model, and its runtime over the storage.

Parts are opened in order and closed in reverse. A part that cannot be opened is an error before the run starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harborage.app import Agent, ChosenModel, check_attachments, read_attachment, readable, with_model
from harborage.app.agent_runtime import open_kept_runtime
from harborage.app.attachments import Attachment, read_piped
from harborage.app.project import Origin
from harborage.cli.feed import ObservedStore, OnEntries, observe_storage
from harborage.cli.main import STDIN
from harborage.cli.status import is_waiting_for_provider
from harborage.cli.storage import is_memory, prepare_storage
from harborage.identity import Identity
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.effects.model import is_own_planner
from harborage.runtime.messages import Message
from harborage.state.storage import open_storage
from harborage.store import RunRow

if TYPE_CHECKING:
    from harborage.runtime.host import Runtime
    from harborage.runtime.loop.controls import Scope
    from harborage.runtime.run import Run


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a session starts or resumes, and how. `deadline_s` is in seconds from the start, `max_cost` in US
    dollars; an empty `model` leaves the choice to the agent.

    `storage` is where the run is kept, `artifacts` the folder for its artifacts (None: memory), `origin` what is
    recorded so that its agent is found again; `attached` are the user's files. `record` is the row of the run that is
    resumed, None for a new one; `has_attachments` says whether that run has files of the user,
    `is_message` that the run answers a message of a conversation. `messages` were said before the run. The same
    `key` starts one run, `tags` mark it. A session that `detaches` starts its run, and leaves it to another process.
    """

    goal: str
    who: Identity
    storage: str = "memory:"
    artifacts: Path | None = None
    origin: Origin = Origin()
    model: str = ""
    attached: tuple[Path, ...] = ()
    approves: bool = False
    rejects: bool = False
    max_steps: int = 0
    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    deadline_s: float | None = None
    key: str = ""
    tags: dict[str, str] = {}
    detaches: bool = False
    record: RunRow | None = None
    has_attachments: bool = False
    is_message: bool = False
    messages: tuple[Message, ...] = ()

    @property
    def entries(self) -> int:
        """How many entries the run had when it was found; 0 for a new one."""
        return 0 if self.record is None else self.record.position

    @property
    def is_kept(self) -> bool:
        """Whether the run outlives this process."""
        return not is_memory(self.storage)


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """The open parts. `chosen` is the model, None for an agent whose model is not known here."""

    runtime: Runtime
    store: ObservedStore
    agent: Agent
    chosen: ChosenModel | None
    files: tuple[Attachment, ...]


@asynccontextmanager
async def open_session(agent: Agent, options: SessionOptions, on_entries: OnEntries) -> AsyncIterator[OpenSession]:
    """Open the agent's runtime over the storage; `on_entries` is called with the entries that it writes.

    Raises:
        HarborageError: a file, the model, the storage or the agent cannot be opened.
    """
    files = tuple(_read(path) for path in options.attached)
    agent, chosen = await with_model(agent, _model(agent, options), os.environ)
    _check_model(agent)
    if files:
        check_attachments(files, agent, os.environ)
    if files or options.has_attachments:
        agent = readable(agent)
    if options.record is None:
        prepare_storage(options.storage)  # not before: what cannot run leaves nothing behind
    storage, store = observe_storage(await open_storage(options.storage), on_entries)
    async with (
        storage,
        open_kept_runtime(agent, storage, _name(options, chosen), artifacts=options.artifacts) as runtime,
    ):
        yield OpenSession(runtime=runtime, store=store, agent=agent, chosen=chosen, files=files)


async def resume_handle(runtime: Runtime, record: RunRow, scope: Scope) -> Run:
    """Return the handle of a kept run; one that waits for its provider tries again now."""
    run = await runtime.run(record.run_id, who=record.who, scope=scope)
    if is_waiting_for_provider(record):
        with suppress(RunNotFoundError):  # it has ended meanwhile
            await run.resume()
    return run


def _read(path: Path) -> Attachment:
    return read_piped(sys.stdin.buffer) if path == Path(STDIN) else read_attachment(path)


def _model(agent: Agent, options: SessionOptions) -> str:
    """The model of the options, else the one that the run used so far, unless the agent has its own planner."""
    return options.model or ("" if is_own_planner(agent.planner) else options.origin.model)


def _check_model(agent: Agent) -> None:
    """Accept an agent whose model can be asked, as far as its name and the environment say.

    Raises:
        LLMConfigError: it names no model, or its provider's key is missing.
    """
    if agent.model is None or is_own_planner(agent.planner):
        return
    from harborage.llm.model import configuration_of  # an agent with a planner of its own does without

    for model in agent.model if isinstance(agent.model, list | tuple) else (agent.model,):
        configuration_of(model, os.environ)


def _name(options: SessionOptions, chosen: ChosenModel | None) -> str:
    """The name under which the runtime claims runs: a resumed run keeps its own, whatever its model is now."""
    if options.record is not None:
        return options.record.agent
    return msgspec.structs.replace(options.origin, model="" if chosen is None else chosen.model).text
