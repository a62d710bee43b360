"""The public test kit: scripted models and runtimes, a clock to move by hand, a conformance suite for every port.

`from harborage.testing import script, call, runtime` is what tests of agents need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.testing.agents import Call as Call
    from harborage.testing.agents import call as call
    from harborage.testing.agents import runtime as runtime
    from harborage.testing.agents import script as script

__all__, __getattr__, __dir__ = lazy_exports(__name__, {"harborage.testing.agents": "Call call runtime script"})
