"""A simulated model: it follows the plan that the run's goal names, and insists on the rules of real providers.

It knows a run only from the request, like any model: what has been called is reported by the messages, or by the
summary that took their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from harborage import codec
from harborage.identity import effective_quadruple
from harborage.llm import CompleteRequest, CompleteResponse, ResponseFormatKind, TextPart
from harborage.planner import RunContext, Trajectory, TrajectorySummary
from harborage.testing.llm import calls_tools, says
from tests.kit.provider_rules import ProviderRuleError, check_request

if TYPE_CHECKING:
    from harborage.testing.simulation.process import Process
    from harborage.testing.simulation.stores import Wire
    from tests.programs.simulation.world import World

_NAME: Final = re.compile(r"\b[krwgl]\d+\b")
_PLAN: Final = re.compile(r"\bplan-(\d+)\b")


class Model:
    """A client of the simulated model, in one process. `plans` are by the number that a goal `plan-N` names."""

    def __init__(self, world: World, process: Process, wire: Wire, plans: Sequence[list[Any]]) -> None:
        self._world = world
        self._process = process
        self._wire = wire
        self._plans = plans

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """The next calls of the plan, the end of it, or a summary."""
        said = "\n".join(_texts(request))
        names = set(_NAME.findall(said))
        if request.response_format is not None and request.response_format.kind is ResponseFormatKind.JSON_SCHEMA:
            await self._wire.ask("model, for a summary", _nothing)
            return says(_summary(names))
        try:
            check_request(request)
        except ProviderRuleError as error:
            self._world.simulation.fail("a provider refuses what it is asked", error)
        who = effective_quadruple()
        run_id = "" if who is None else who.run_id
        await self._wire.ask("model", partial(self._world.ask, run_id, len(names), self._process.name))
        number = _PLAN.search(said)
        assert number is not None, "the goal is not in the request"
        return _answer(self._plans[int(number[1])], names)

    async def close(self) -> None:
        """Nothing: the model is outside."""


class Shortener:
    """Makes summaries for planners without a model: something outside does it, which may fail."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def summarise(self, run: RunContext, trajectory: Trajectory) -> TrajectorySummary:
        """How many steps there were."""
        await self._wire.ask("a summary", _nothing)
        return TrajectorySummary(note=f"{len(trajectory.steps)} steps of {run.goal[:20]}")


def _answer(plan: list[Any], names: set[str]) -> CompleteResponse:
    for kind, what in plan:
        calls = [(kind, what)] if isinstance(what, str) else what
        if not names.issuperset(name for _, name in calls):
            return calls_tools(*((tool, {"what": name}) for tool, name in calls))
    return says("done")


def _summary(names: set[str]) -> str:
    found = {"goals": [], "facts": sorted(names), "pending": [], "last_output_digest": "", "note": "so far"}
    return codec.encode(found).decode()


def _texts(request: CompleteRequest) -> Iterator[str]:
    for message in request.messages:
        if message.content.text is not None:
            yield message.content.text
        yield from (part.text for part in message.content.parts or () if isinstance(part, TextPart))
        yield from (call.args.decode() for call in message.tool_calls)


async def _nothing() -> None:
    pass
