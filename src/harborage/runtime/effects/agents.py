"""The agents of a runtime: the open parts of each over those that all agents of the runtime share.

A run names its agent, so that it gets the planner, the tools, the approvals and the memory of that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.errors import InvalidOptionError
from harborage.runtime.durable.engine import AgentMissingError
from harborage.runtime.effects.agent_parts import AgentParts, Closer, Shared, open_agent
from harborage.runtime.effects.dependencies import is_class, name_of

if TYPE_CHECKING:
    from harborage.artifacts.media import Goal
    from harborage.runtime.durable.steps import EffectTable
    from harborage.runtime.effects.agent_setup import AgentLike, AgentSetup
    from harborage.runtime.effects.program import InProcess
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.loop.seam import Concluded, RunRequest

_BELOW: Final = "/"


class Agents:
    """The open agents of a runtime, by name. It is the program of their runs, and finds the effects of each.

    A single agent executes every run that its worker claims, whatever agent the run names: which runs those are the
    runtime has said already. `names` are the agents whose runs a worker claims; it is empty where one has no name.
    Those that an agent may call are opened with it, and named after it: "writer/researcher".
    """

    def __init__(self, shared: Shared) -> None:
        self.names: list[str] = []
        self._shared = shared
        self._open: dict[str, AgentParts] = {}
        self._roots: list[AgentParts] = []
        self._opening = asyncio.Lock()
        self._closers: list[Closer] = []

    async def open(self, setup: AgentSetup) -> AgentParts:
        """Open an agent, unless it is open already.

        Raises:
            InvalidOptionError: another agent has its name.
            HarborageError: it does not open.
        """
        async with self._opening:
            if (known := self._open.get(setup.name)) is not None:
                if known.value is not None and known.value is setup.value:
                    return known
                text = f"another agent named {setup.name!r} is open in this runtime; give this one another name"
                raise InvalidOptionError("agents", setup.name, message=text)
            is_all = bool(self._open) and not self.names
            opened: dict[str, AgentParts] = {}
            parts = await self._open_tree(setup, opened)
            self._open |= opened
            self._roots.append(parts)
            if not is_all:
                self.names += [name for name in self._open if name and name not in self.names]
            return parts

    async def _open_tree(self, setup: AgentSetup, opened: dict[str, AgentParts]) -> AgentParts:
        """Open an agent and those that it may call.

        Raises:
            InvalidOptionError: one of them depends on something that its runs would not be given.
            HarborageError: one does not open.
        """
        for below in setup.agents:
            self._check_deps(setup, below.setup)
        parts = opened[setup.name] = await open_agent(setup, self._shared, self._closers)
        for below in setup.agents:
            name = f"{setup.name}{_BELOW}{below.setup.name}"
            await self._open_tree(msgspec.structs.replace(below.setup, name=name, value=None), opened)
        return parts

    def _check_deps(self, parent: AgentSetup, child: AgentSetup) -> None:
        wanted = child.deps
        if wanted is NoneType or is_class(parent.deps, wanted) or self._shared.deps.has_factory(wanted):
            return
        needed = name_of(wanted)
        fix = f"give {parent.name!r} deps={needed}, too, or a factory: Runtime([…], deps={{{needed}: factory}})"
        text = f"deps: the agent {child.name!r}, which {parent.name!r} may call, needs {needed}: {fix}"
        raise InvalidOptionError("deps", wanted, message=text)

    async def aclose(self) -> None:
        """Close what was opened, the last one first."""
        while self._closers:
            await self._closers.pop()()

    def __iter__(self) -> Iterator[AgentParts]:
        return iter(self._open.values())

    @property
    def roots(self) -> Sequence[AgentParts]:
        """The agents that callers may start, without those that only others call."""
        return self._roots

    @property
    def first(self) -> AgentParts:
        """The agent that was opened first."""
        return next(iter(self))

    def of_value(self, value: object) -> AgentParts | None:
        """The open parts of an agent that a program described with this value."""
        return next((one for one in self if one.value is value), None)

    def find(self, name: str) -> AgentParts | None:
        """The agent of this name. A runtime with a single one has recorded runs of it under other names, too."""
        if (found := self._open.get(name)) is not None or len(self._roots) > 1:
            return found
        root = self.first
        below = (one for path, one in self._open.items() if one is not root and name.endswith(path[len(root.name) :]))
        return next(below, root)

    def called_by(self, parent: str, name: str) -> AgentParts:
        """The agent that runs of `parent` call by this name: one of its own, else one of the runtime.

        Raises:
            InvalidOptionError: there is none.
        """
        of_parent = self.find(parent)
        path = name if of_parent is None else f"{of_parent.name}{_BELOW}{name}"
        found = self._open.get(path) or self._open.get(name)
        if found is None:
            known = ", ".join(one.agent for one in (() if of_parent is None else of_parent.sub_agents)) or "none"
            raise InvalidOptionError("agent", name, f"an agent that {parent!r} may call: {known}")
        return found

    def get(self, name: str) -> AgentParts:
        """The same, where it must be there.

        Raises:
            AgentMissingError: the runtime has no such agent.
        """
        if (found := self.find(name)) is None:
            raise AgentMissingError(name, self._open)
        return found

    async def choose(self, agent: AgentLike[Any] | Goal, goal: Goal | None) -> tuple[AgentParts, Goal]:
        """The agent that a caller starts, opened when it is new, and the goal.

        Raises:
            InvalidOptionError: there is no goal, no such agent, or another of its name; or none of several is named.
        """
        known = [one.name for one in self._roots]
        if isinstance(agent, list | tuple):
            agent, goal = self._only(known), agent
        if not isinstance(agent, str):
            if goal is None:
                has_agent = hasattr(agent, "setup")
                text = "start(agent, goal, who=…): the goal is missing" if has_agent else ""
                raise InvalidOptionError("start: goal", agent, "a text", message=text)
            value: Any = agent
            return self.of_value(value) or await self.open(value.setup()), goal
        if goal is None:
            self._only(known)
            return self.first, agent
        if agent not in known:
            from difflib import get_close_matches  # only a mistake needs it

            near = get_close_matches(agent, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidOptionError("agent", agent, f"one of {', '.join(known)}{hint}")
        return self.get(agent), goal

    def _only(self, known: Sequence[str]) -> str:
        """The name of the agent that callers need not name.

        Raises:
            InvalidOptionError: there are several.
        """
        if len(known) > 1:
            text = f"say which agent starts: start(agent, goal, who=…), with one of {', '.join(known)}"
            raise InvalidOptionError("agent", known, message=text)
        return known[0]

    def of(self, agent: str) -> EffectTable:
        """The effects of the runs of an agent."""
        return self.get(agent).table

    def live(self, run_id: str) -> LiveRun | None:
        """The live side of a run that is executed here, whatever its agent; None for any other."""
        found = (parts.effects.find(run_id) for parts in self)
        return next((live for live in found if live is not None), None)

    async def program(self, io: InProcess, request: RunRequest) -> Concluded:
        """Execute a run with the program of its agent, which is given what it depends on.

        Raises:
            DependenciesMissingError: that is not here; the run is kept for a worker that has it.
            Exception: the run failed.
        """
        parts = self.get(request.agent)
        if parts.deps is NoneType:
            return await parts.program(io, request)
        async with self._shared.deps.during(request.who.run_id, parts.deps):
            return await parts.program(io, request)
