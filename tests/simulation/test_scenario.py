"""The story that Harborage is simulated with: when it is over, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.testing.simulation.simulation import Faults
from tests.programs.simulation.scenario import Asked, Scenario
from tests.programs.simulation.stories import play
from tests.programs.simulation.workload import Traits

if TYPE_CHECKING:
    from harborage.runtime.host import Runtime
    from harborage.testing.simulation.process import Process


class FrozenInABeginning(Scenario):
    """The first process that is asked to begin a run freezes for longer than anybody waits for it."""

    async def _begin(self, asked: Asked, process: Process, runtime: Runtime) -> None:
        if not self.plans:
            self.simulation.loop.call_soon(process.freeze, 100.0, context=self.simulation.context.copy())
        await super()._begin(asked, process, runtime)


def test_a_run_without_a_waiting_caller_is_executed_to_its_end() -> None:
    """Somebody asked another process meanwhile; the story is over when the run of the frozen one is, too."""
    outcome = play(1, faults=Faults(), traits=Traits(processes=2), scenario=FrozenInABeginning)
    assert "did not begin a run: TimeoutError" in outcome.trace
    assert outcome.error is None, outcome.trace
    assert outcome.trace.count("asks for step 0") == 2
