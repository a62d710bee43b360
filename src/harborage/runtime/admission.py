"""How many runs of a tenant may be under way at once, where runs spawn others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from harborage.tasks import TaskLimitError

if TYPE_CHECKING:
    from harborage.identity import Quadruple

CountRuns = Callable[[str, int], Awaitable[int]]
"""How many runs of this tenant have not ended; counted up to the second argument."""


class Admission:
    """Admits spawned runs while fewer than `most` of their tenant's runs, started or spawned, have not ended.

    Runs are counted anew when this process has admitted so many that there may be no room. Of several processes over
    one storage each counts for itself in between, so together they may admit up to `most` each.
    """

    def __init__(self, count: CountRuns, most: int) -> None:
        self._count = count
        self._most = most
        self._at_most: dict[str, int] = {}

    async def admit(self, who: Quadruple) -> None:
        """Accept one more run beside those of the tenant of `who`.

        Raises:
            TaskLimitError: there are as many as there may be.
        """
        tenant = who.tenant_id
        if self._at_most.get(tenant, self._most) >= self._most:
            self._at_most[tenant] = await self._count(tenant, self._most)
        if self._at_most[tenant] >= self._most:
            del self._at_most[tenant]
            raise TaskLimitError("max_running", self._most, f"tenant {tenant!r}, of runs that have not ended,")
        self._at_most[tenant] += 1
