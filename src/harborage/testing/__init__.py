"""The public test kit: scripted models and runtimes, a clock to move by hand, a conformance suite for every port.

`from harborage.testing import script, call, runtime, run_once` is what tests of agents need. Pytest finds the plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.testing.agents import Call as Call
    from harborage.testing.agents import call as call
    from harborage.testing.agents import runtime as runtime
    from harborage.testing.agents import script as script
    from harborage.testing.faults import FaultInjector as FaultInjector
    from harborage.testing.runs import EventLog as EventLog
    from harborage.testing.runs import assert_no_leaks as assert_no_leaks
    from harborage.testing.runs import assert_sequence as assert_sequence
    from harborage.testing.runs import run_once as run_once
    from harborage.testing.serving import serve as serve

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "harborage.testing.agents": "Call call runtime script",
        "harborage.testing.faults": "FaultInjector",
        "harborage.testing.runs": "EventLog assert_no_leaks assert_sequence run_once",
        "harborage.testing.serving": "serve",
    },
)
