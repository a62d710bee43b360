"""Deterministic simulation: code that believes it runs, on a loop whose every choice comes from a seed.

Time is simulated, processes die and freeze between two turns, stores refuse, answers are lost; and the same seed gives
the same story, turn by turn. `crash_test` plays stories about an agent of yours, `simulate` one that you write
yourself.
"""

from harborage.testing.simulation.checks import Act, BrokenPromiseError, Seen, broken_promises, check
from harborage.testing.simulation.faults import NO_FAULTS, Fates, Faults, drawn_faults
from harborage.testing.simulation.loop import (
    DeadlockError,
    EndlessError,
    Lane,
    Order,
    RealWorldError,
    SimulatedLoop,
    SimulationError,
    StuckError,
    UnhandledError,
)
from harborage.testing.simulation.process import START, Process, ProcessDiedError, SimulatedClock
from harborage.testing.simulation.simulation import Outcome, Simulation, Story, simulate
from harborage.testing.simulation.stores import AuditedStore, Server, StaleWriteError
from harborage.testing.simulation.trials import Answer, Place, Trial, TrialFailedError, crash_test
from harborage.testing.simulation.wire import Wire

__all__ = [
    "NO_FAULTS",
    "START",
    "Act",
    "Answer",
    "AuditedStore",
    "BrokenPromiseError",
    "DeadlockError",
    "EndlessError",
    "Fates",
    "Faults",
    "Lane",
    "Order",
    "Outcome",
    "Place",
    "Process",
    "ProcessDiedError",
    "RealWorldError",
    "Seen",
    "Server",
    "SimulatedClock",
    "SimulatedLoop",
    "Simulation",
    "SimulationError",
    "StaleWriteError",
    "Story",
    "StuckError",
    "Trial",
    "TrialFailedError",
    "UnhandledError",
    "Wire",
    "broken_promises",
    "check",
    "crash_test",
    "drawn_faults",
    "simulate",
]
