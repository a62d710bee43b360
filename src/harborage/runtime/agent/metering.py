"""Tool calls on a run's account: counted before they are made, with the model calls that they make.

It knows amounts alone; what a refused call becomes is for the effect that was to make it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from harborage.llm import accounting
from harborage.planner import CallParallel, CallTool
from harborage.runtime.agent.ledger import RunLedger, StepAccount

if TYPE_CHECKING:
    from harborage.runtime.limits import Reached


def call_keys(key: str, decision: Any) -> tuple[str, ...]:
    """A key for each tool call of a decision, `key` being that of the decision's step."""
    match decision:
        case CallTool():
            return (key,)
        case CallParallel(branches=branches):
            return tuple(f"{key}.{index}" for index in range(len(branches)))
        case _:
            return ()


@asynccontextmanager
async def metered(ledger: RunLedger | None, keys: tuple[str, ...]) -> AsyncIterator[Reached | None]:
    """The limit that forbids one of these calls, if one does; else the block makes them, on the run's account.

    Without a ledger nothing is counted.

    Raises:
        StateError: the store of the ledger refused.
    """
    if ledger is None:
        yield None
        return
    try:
        for key in keys:
            reached = await ledger.count_call(key)
            if reached is not None:
                yield reached
                return
        with accounting(StepAccount(ledger)):
            yield None
    finally:
        for key in keys:
            ledger.ended_call(key)
