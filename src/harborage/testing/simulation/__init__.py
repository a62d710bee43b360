"""Deterministic simulation: code on an event loop whose every choice comes from a seed.

Time is simulated, processes die and freeze between two turns, stores refuse, answers are lost; and the same seed gives
the same story, turn by turn. `crash_test` plays stories about an agent of yours, `simulate` one that you write
yourself.
"""

from harborage.testing.simulation.checks import Evidence, InvariantBrokenError, ServiceCall, check, find_broken_promises
from harborage.testing.simulation.loop import (
    DeadlockError,
    EndlessError,
    Order,
    ReadyQueue,
    RealWorldError,
    SimulatedLoop,
    SimulationError,
    StuckError,
    UnhandledError,
)
from harborage.testing.simulation.process import START, Process, ProcessDiedError, SimulatedClock
from harborage.testing.simulation.simulation import (
    NO_FAULTS,
    FaultInjector,
    Faults,
    Outcome,
    Simulation,
    Story,
    draw_faults,
    simulate,
)
from harborage.testing.simulation.stores import AuditedStore, StaleWriteError, StorageServer, Wire
from harborage.testing.simulation.trials import Answer, Place, Trial, TrialFailedError, crash_test

__all__ = [
    "NO_FAULTS",
    "START",
    "Answer",
    "AuditedStore",
    "DeadlockError",
    "EndlessError",
    "Evidence",
    "FaultInjector",
    "Faults",
    "InvariantBrokenError",
    "Order",
    "Outcome",
    "Place",
    "Process",
    "ProcessDiedError",
    "ReadyQueue",
    "RealWorldError",
    "ServiceCall",
    "SimulatedClock",
    "SimulatedLoop",
    "Simulation",
    "SimulationError",
    "StaleWriteError",
    "StorageServer",
    "Story",
    "StuckError",
    "Trial",
    "TrialFailedError",
    "UnhandledError",
    "Wire",
    "check",
    "crash_test",
    "draw_faults",
    "find_broken_promises",
    "simulate",
]
