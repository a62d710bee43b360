"""What the principals ask a server: every method of the protocol, and what is read by GET, of their own and of others.

A request names ids, marks and identities of anybody. What comes of it says whose things its answer may show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.kit.isolation.asking_a2a import OF_A2A
from tests.kit.isolation.asking_runs import OF_RUNS
from tests.kit.isolation.asking_things import OF_THINGS

if TYPE_CHECKING:
    from tests.kit.isolation.told import Request

REQUESTS: Final[dict[str, Request]] = {**OF_RUNS, **OF_THINGS, **OF_A2A}
"""By name, everything that a principal can ask a server."""
