"""How a run is given back that goes no further for now."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from harborage.runtime.durable.mailbox import earliest
from harborage.store import Change
from harborage.store.times import micros

if TYPE_CHECKING:
    from harborage.runtime.durable.engine import RunPutOffError
    from harborage.runtime.durable.lease import LeasedRun
    from harborage.runtime.durable.steps import Waiting

_LONGEST_WAIT: Final = timedelta(days=1)


def parked(run: LeasedRun, waiting: Waiting, now: datetime) -> Change:
    """How a run is given back that only waits. The controls that it was handed by now end no such wait: those that it
    has not taken stay in its inbox, and only one that comes after them makes it ready."""
    until = waiting.until or now + _LONGEST_WAIT
    return Change(
        release=True,
        progress=True,
        reason="",
        wake_at=micros(until),
        awaits=waiting.run_id,
        seen_control=run.delivered,
    )


def put_off(run: LeasedRun, error: RunPutOffError) -> Change:
    """How a run is given back whose next step is tried again later; its deadline comes all the same."""
    until = earliest(error.until, run.request.deadline)
    return Change(release=True, progress=True, reason=error.reason, wake_at=micros(until))
