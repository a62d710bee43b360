"""The stored memory of a session, and how it changes: pure functions from one state to the next.

The JSON is `{strategy, turns?, summary?}`, and for a rolling summary its unfinished work: turns that wait for a
summary, batches that wait for the model to recover, failures in a row and health. Nothing of that is lost with the
process.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.errors import error_text
from harborage.memory.errors import InvalidSnapshotError, MemoryHealthError
from harborage.memory.values import (
    VERBATIM_TURNS,
    Memory,
    MemoryHealth,
    MemoryPatch,
    MemoryStrategy,
    Turn,
    estimate_summary,
    estimate_turns,
)

__all__ = [
    "RETRIES",
    "Change",
    "HealthReason",
    "MemoryState",
    "added",
    "attempted",
    "check_edge",
    "failed",
    "patch_of",
    "read_state",
    "recovered",
    "recovery_failed",
    "restored",
    "summarised",
]

RETRIES: Final = 3
"""After so many failures in a row no summary is asked for when a turn is added."""


class HealthReason(StrEnum):
    """Why the health changed; the wire strings of `memory.health_changed`."""

    SUMMARIZER_SUCCEEDED = "summarizer_succeeded"
    SUMMARIZER_FAILED = "summarizer_failed"
    RETRIES_EXHAUSTED = "retries_exhausted"
    RECOVERY_LOOP_ATTEMPT = "recovery_loop_attempt"
    RECOVERY_BATCH_FAILED = "recovery_batch_failed"
    RECOVERY_LOOP_DRAINED = "recovery_loop_drained"
    RECOVERY_BATCH_DRAINED = "recovery_batch_drained"


_H = MemoryHealth
_EDGES: Final[Mapping[MemoryHealth, frozenset[MemoryHealth]]] = {
    _H.HEALTHY: frozenset({_H.HEALTHY, _H.RETRY}),
    _H.RETRY: frozenset({_H.RETRY, _H.HEALTHY, _H.DEGRADED}),
    _H.DEGRADED: frozenset({_H.DEGRADED, _H.RECOVERING}),
    _H.RECOVERING: frozenset({_H.RECOVERING, _H.HEALTHY, _H.DEGRADED}),
}


def check_edge(prior: MemoryHealth | str, new: MemoryHealth | str) -> None:
    """Accept a change of health that may happen; blank stands for healthy.

    Raises:
        MemoryHealthError: it may not.
    """
    before, after = (MemoryHealth(one or MemoryHealth.HEALTHY) for one in (prior, new))
    if after not in _EDGES[before]:
        raise MemoryHealthError(before, after)


_KEYS: Final = 64


class MemoryState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One session's memory. `pending` is what the next summary takes in, `backlog` what waits for the recovery loop.

    `keys` are those of the newest turns, also of turns that are gone: a turn is added once.
    """

    strategy: MemoryStrategy
    turns: tuple[Turn, ...] = ()
    summary: str = ""
    pending: tuple[Turn, ...] = ()
    backlog: tuple[tuple[Turn, ...], ...] = ()
    failures: int = 0
    health: MemoryHealth = MemoryHealth.HEALTHY
    keys: tuple[str, ...] = ()

    @property
    def batch(self) -> tuple[Turn, ...]:
        """The turns that the next summary takes in now; none while summaries have stopped."""
        return () if self._has_stopped else self.pending

    @property
    def _has_stopped(self) -> bool:
        return self.health in (MemoryHealth.DEGRADED, MemoryHealth.RECOVERING)


class Change(msgspec.Struct, frozen=True):
    """A state that follows another: why its health changed, blank if it did not, and how many batches were dropped."""

    state: MemoryState
    reason: str = ""
    dropped: int = 0


def added(state: MemoryState, turn: Turn, config: Memory) -> Change:
    """The memory with one more turn; the same memory when a turn with that key is in it already."""
    if state.strategy is MemoryStrategy.NONE or (turn.key and turn.key in state.keys):
        return Change(state)
    keys = (*state.keys, turn.key)[-_KEYS:] if turn.key else state.keys
    turns = (*state.turns, turn)
    if state.strategy is MemoryStrategy.TRUNCATION:
        return Change(replace(state, turns=_fitting(turns, config.tokens), keys=keys))
    kept = _fitting(turns[-VERBATIM_TURNS:], config.tokens)
    pending = (*state.pending, *turns[: len(turns) - len(kept)])
    grown = replace(state, turns=kept, pending=pending, keys=keys)
    return _queued(grown, config) if grown.pending and not grown.batch else Change(grown)


def _queued(state: MemoryState, config: Memory) -> Change:
    """What is pending put into the backlog as one batch; the oldest batches go when there are too many."""
    backlog = (*state.backlog, state.pending)
    kept = backlog[max(0, len(backlog) - config.backlog) :]
    return Change(replace(state, pending=(), backlog=kept), dropped=len(backlog) - len(kept))


def summarised(state: MemoryState, batch: tuple[Turn, ...], summary: str) -> Change:
    """The memory after a summary that took `batch` in; what another writer has pending meanwhile stays."""
    if state.pending[: len(batch)] != batch:
        return Change(state)  # another process has summarised these turns meanwhile
    done = replace(state, summary=summary, pending=state.pending[len(batch) :], failures=0)
    return _moved(done, MemoryHealth.HEALTHY, HealthReason.SUMMARIZER_SUCCEEDED)


def failed(state: MemoryState, config: Memory) -> Change:
    """The memory after a summary that failed: tried again with the next turn, and given up after a few times."""
    if not state.batch:
        return Change(state)  # another process has given up meanwhile
    counted = replace(state, failures=state.failures + 1)
    if counted.failures < RETRIES:
        return _moved(counted, MemoryHealth.RETRY, HealthReason.SUMMARIZER_FAILED)
    degraded = _moved(counted, MemoryHealth.DEGRADED, HealthReason.RETRIES_EXHAUSTED)
    queued = _queued(degraded.state, config)
    return Change(queued.state, degraded.reason, queued.dropped)


def attempted(state: MemoryState) -> Change:
    """The memory while the recovery loop tries its oldest batch."""
    return _moved(state, MemoryHealth.RECOVERING, HealthReason.RECOVERY_LOOP_ATTEMPT)


def recovery_failed(state: MemoryState) -> Change:
    """The memory after that failed; the batch stays."""
    return _moved(state, MemoryHealth.DEGRADED, HealthReason.RECOVERY_BATCH_FAILED)


def recovered(state: MemoryState, batch: tuple[Turn, ...], summary: str) -> Change:
    """The memory after the recovery loop had `batch` summarised: healthy when nothing waits any more.

    A batch that was dropped meanwhile is in the summary all the same.
    """
    if state.health is not MemoryHealth.RECOVERING:
        return Change(state)  # flushed meanwhile
    rest = state.backlog[1:] if state.backlog[:1] == (batch,) else state.backlog
    done = replace(state, summary=summary, backlog=rest, failures=0)
    if rest:
        return _moved(done, MemoryHealth.DEGRADED, HealthReason.RECOVERY_BATCH_DRAINED)
    return _moved(done, MemoryHealth.HEALTHY, HealthReason.RECOVERY_LOOP_DRAINED)


def patch_of(state: MemoryState) -> MemoryPatch:
    """What a prompt may say: the turns that are kept, and the summary unless it has fallen behind."""
    healthy = state.health in (MemoryHealth.HEALTHY, MemoryHealth.RETRY)
    summary = state.summary if healthy else ""
    tokens = estimate_turns(state.turns) + estimate_summary(summary)
    return MemoryPatch(strategy=state.strategy, summary=summary, recent_turns=state.turns, tokens=tokens)


def read_state(data: bytes) -> MemoryState:
    """The memory that these bytes spell.

    Raises:
        msgspec.DecodeError: they spell none.
        UnicodeDecodeError: they are no text.
    """
    found: MemoryState = codec.decode(data, MemoryState)
    return found


def restored(data: bytes, config: Memory) -> MemoryState:
    """The memory of a snapshot, within the budget of today.

    Raises:
        InvalidSnapshotError: it cannot be read, or is of another strategy, or has turns where none are kept.
    """
    assert isinstance(config.strategy, MemoryStrategy)
    if not data:
        return MemoryState(strategy=config.strategy)
    try:
        state = read_state(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidSnapshotError(f"the snapshot cannot be read: {error_text(error)}") from error
    if state.strategy is not config.strategy:
        raise InvalidSnapshotError(
            f"the snapshot is of strategy {state.strategy}, and this memory of {config.strategy}"
        )
    match state.strategy:
        case MemoryStrategy.NONE:
            if state.turns:
                raise InvalidSnapshotError("the snapshot has turns, and strategy none keeps none")
            return state
        case MemoryStrategy.TRUNCATION:
            return replace(state, turns=_fitting(state.turns, config.tokens))
        case MemoryStrategy.ROLLING_SUMMARY:
            return state


def _fitting(turns: tuple[Turn, ...], budget: int) -> tuple[Turn, ...]:
    """The newest turns that fit into the budget together; all of them when there is none."""
    if budget <= 0:
        return turns
    excess = estimate_turns(turns) - budget
    first = 0
    while excess > 0:
        excess -= estimate_turns(turns[first : first + 1])
        first += 1
    return turns[first:]


def _moved(state: MemoryState, health: MemoryHealth, reason: HealthReason) -> Change:
    check_edge(state.health, health)
    return Change(replace(state, health=health), "" if health is state.health else reason)
