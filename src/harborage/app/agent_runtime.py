"""The runtime of an agent: in memory, over kept runs, or to replay a recorded run; and the agent of a recorded run.

A replay asks neither for the agent's own check nor for its key or model: it needs none of them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from harborage.app.agent import RecordedAs
from harborage.app.attachments import readable
from harborage.app.standard_assistant import assistant
from harborage.app.target import importable, load_agent
from harborage.llm import CompleteRequest, CompleteResponse, LLMError
from harborage.runtime.durable.histories import read_value
from harborage.runtime.durable.journal import Started, decode_entry
from harborage.runtime.effects.model import is_own_planner
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.loop.seam import RunRequest

if TYPE_CHECKING:
    from harborage.app.agent import Agent
    from harborage.artifacts import ArtifactStore
    from harborage.runtime.effects.dependencies import DepsFactory
    from harborage.runtime.history import Replayed
    from harborage.state.storage import Storage


def open_runtime(agent: Agent, *, logger: logging.Logger | None = None) -> Runtime:
    """Return the runtime of an agent, with runs in memory: `async with open_runtime(agent) as runtime: …`.

    Raises:
        AgentNotReadyError: the agent's own check says that it cannot work here.
        HarborageError: its tools or approvals do not fit together.
    """
    if agent.check is not None:
        agent.check()
    return _make_runtime(agent, logger=logger)


class _NoModel:
    """The model of an agent whose runs are only replayed; it answers no call."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        raise LLMError("this agent was opened to replay a run, so it has no model")

    async def close(self) -> None:
        pass


_NO_MODEL: Final = _NoModel()


@contextmanager
def recorded_agent(target: str, root: Path) -> Iterator[Agent]:
    """Load the agent that `target` names in the folder `root`; the standard assistant for "".

    Inside the block the agent can import the files beside it.

    Raises:
        TargetError: no such agent.
    """
    if not target:
        yield assistant(root)
        return
    place, colon, name = target.rpartition(":") if ":" in target else (target, "", "")
    is_file = place.endswith(".py")
    with importable((root / place).parent if is_file else root):
        yield load_agent(f"{root / place}{colon}{name}" if is_file else target)


async def replay_agent(
    agent: Agent,
    record: Sequence[bytes],
    *,
    artifacts: ArtifactStore | None = None,
    clean: Callable[[Any], Any] | None = None,
    logger: logging.Logger | None = None,
) -> Replayed:
    """Replay a run with the agent as it is now; meanwhile the whole process is refused the network.

    Raises:
        JournalCorruptError: the record cannot be read.
        HarborageError: the agent's tools or approvals do not fit together.
    """
    is_over_model = not is_own_planner(agent.planner)
    runtime = _make_runtime(agent.replace(model=_NO_MODEL) if is_over_model else agent, logger=logger)
    return await runtime.replay(record, artifacts=artifacts, everywhere=True, clean=clean)


def open_kept_runtime(
    agent: Agent,
    storage: Storage,
    name: str,
    *,
    artifacts: Path | None = None,
    logger: logging.Logger | None = None,
) -> Runtime:
    """Return the runtime of an agent over kept runs, not yet entered; it claims and starts runs under the name `name`.

    Artifacts that would be in memory are stored in the folder `artifacts`, if one is given.

    Raises:
        AgentNotReadyError: the agent's own check says that it cannot work here.
    """
    if agent.check is not None:
        agent.check()
    if artifacts is not None:
        agent = with_artifacts(agent, artifacts)
    return _make_runtime(agent, storage=storage, name=name, logger=logger)


def as_it_ran(agent: Agent, record: Sequence[bytes], *, artifacts: Path | None = None) -> Agent:
    """Return the agent as it was for the recorded run: with a tool for attached files if there were some, and with its
    artifacts in `artifacts`.

    Raises:
        JournalCorruptError: the record cannot be read.
    """
    if has_attachments(record):
        agent = readable(agent)
    return agent if artifacts is None else with_artifacts(agent, artifacts)


def has_attachments(record: Sequence[bytes]) -> bool:
    """Whether files were attached to the recorded run."""
    started = decode_entry(record[0], "", 0) if record else None
    if not isinstance(started, Started):
        return False
    request: RunRequest = read_value(started.request, RunRequest, "entry 0")
    return bool(request.input_artifact_ids)


def with_artifacts(agent: Agent, folder: Path) -> Agent:
    """Return the agent with its artifacts in `folder`, unless its options name another place."""
    if agent.options.artifact_driver != RuntimeOptions().artifact_driver:
        return agent
    options = replace(agent.options, artifact_driver="fs", artifact_root=str(folder))
    return agent.replace(options=options)


def _make_runtime(
    agent: Agent, *, storage: Storage | None = None, name: str = "", logger: logging.Logger | None = None
) -> Runtime:
    agents, deps = [RecordedAs(agent, name)], _factories(agent)
    return Runtime(agents, options=agent.options, storage=storage, deps=deps, logger=logger)


def _factories(agent: Agent) -> Mapping[Any, DepsFactory]:
    """What the program of an agent makes its dependencies with: those of a runtime that a loaded module holds."""
    if agent.deps is NoneType:
        return {}
    values = (
        value for module in list(sys.modules.values()) for value in list(getattr(module, "__dict__", {}).values())
    )
    found = (value.deps for value in values if isinstance(value, Runtime) and agent.deps in value.deps)
    return next(found, {})
