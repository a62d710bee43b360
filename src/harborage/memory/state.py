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
from harborage.memory.values import (
    VERBATIM_TURNS,
    InvalidSnapshotError,
    Memory,
    MemoryHealth,
    MemoryHealthError,
    MemoryPatch,
    MemoryStrategy,
    Turn,
    estimate_summary,
    estimate_turns,
)

RETRIES: Final = 3
"""After so many failures in a row, adding a turn asks for no summary any more."""


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


def check_health_change(prior: MemoryHealth | str, new: MemoryHealth | str) -> None:
    """Check a change of health; blank means healthy.

    Raises:
        MemoryHealthError: it is not allowed.
    """
    before, after = (MemoryHealth(one or MemoryHealth.HEALTHY) for one in (prior, new))
    if after not in _EDGES[before]:
        raise MemoryHealthError(before, after)


_KEYS: Final = 64


class MemoryState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One session's memory. `pending` are the turns for the next summary, `backlog` those for the recovery loop.

    `keys` are those of the newest turns, also of turns that were dropped: a turn is added once.
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
        """The turns for the next summary; none while summaries have stopped."""
        return () if self._has_stopped else self.pending

    @property
    def _has_stopped(self) -> bool:
        return self.health in (MemoryHealth.DEGRADED, MemoryHealth.RECOVERING)


class Change(msgspec.Struct, frozen=True):
    """The next state, the reason if its health changed, else blank, and the number of dropped batches."""

    state: MemoryState
    reason: str = ""
    dropped: int = 0


def add_turn(state: MemoryState, turn: Turn, config: Memory) -> Change:
    """Add a turn; a turn whose key is in the memory already changes nothing."""
    if state.strategy is MemoryStrategy.NONE or (turn.key and turn.key in state.keys):
        return Change(state)
    keys = (*state.keys, turn.key)[-_KEYS:] if turn.key else state.keys
    turns = (*state.turns, turn)
    if state.strategy is MemoryStrategy.TRUNCATION:
        return Change(replace(state, turns=_fit_turns(turns, config.tokens), keys=keys))
    kept = _fit_turns(turns[-VERBATIM_TURNS:], config.tokens)
    pending = (*state.pending, *turns[: len(turns) - len(kept)])
    grown = replace(state, turns=kept, pending=pending, keys=keys)
    return _queue_pending(grown, config) if grown.pending and not grown.batch else Change(grown)


def _queue_pending(state: MemoryState, config: Memory) -> Change:
    """Move the pending turns to the backlog as one batch; the oldest batches are dropped when there are too many."""
    backlog = (*state.backlog, state.pending)
    kept = backlog[max(0, len(backlog) - config.backlog) :]
    return Change(replace(state, pending=(), backlog=kept), dropped=len(backlog) - len(kept))


def apply_summary(state: MemoryState, batch: tuple[Turn, ...], summary: str) -> Change:
    """Store a summary of `batch`; turns that another writer added meanwhile stay pending."""
    if state.pending[: len(batch)] != batch:
        return Change(state)  # another process has summarised these turns meanwhile
    done = replace(state, summary=summary, pending=state.pending[len(batch) :], failures=0)
    return _change_health(done, MemoryHealth.HEALTHY, HealthReason.SUMMARIZER_SUCCEEDED)


def count_failure(state: MemoryState, config: Memory) -> Change:
    """Count a failed summary: it is retried with the next turn, and stops after a few failures."""
    if not state.batch:
        return Change(state)  # another process has stopped summaries meanwhile
    counted = replace(state, failures=state.failures + 1)
    if counted.failures < RETRIES:
        return _change_health(counted, MemoryHealth.RETRY, HealthReason.SUMMARIZER_FAILED)
    degraded = _change_health(counted, MemoryHealth.DEGRADED, HealthReason.RETRIES_EXHAUSTED)
    queued = _queue_pending(degraded.state, config)
    return Change(queued.state, degraded.reason, queued.dropped)


def start_recovery(state: MemoryState) -> Change:
    """Mark that the recovery loop tries the oldest batch."""
    return _change_health(state, MemoryHealth.RECOVERING, HealthReason.RECOVERY_LOOP_ATTEMPT)


def fail_recovery(state: MemoryState) -> Change:
    """Mark that this failed; the batch stays."""
    return _change_health(state, MemoryHealth.DEGRADED, HealthReason.RECOVERY_BATCH_FAILED)


def finish_recovery(state: MemoryState, batch: tuple[Turn, ...], summary: str) -> Change:
    """Store the recovery loop's summary of `batch`: healthy when the backlog is empty.

    A batch that was dropped meanwhile is in the summary all the same.
    """
    if state.health is not MemoryHealth.RECOVERING:
        return Change(state)  # flushed meanwhile
    rest = state.backlog[1:] if state.backlog[:1] == (batch,) else state.backlog
    done = replace(state, summary=summary, backlog=rest, failures=0)
    if rest:
        return _change_health(done, MemoryHealth.DEGRADED, HealthReason.RECOVERY_BATCH_DRAINED)
    return _change_health(done, MemoryHealth.HEALTHY, HealthReason.RECOVERY_LOOP_DRAINED)


def make_patch(state: MemoryState) -> MemoryPatch:
    """Return the part for a prompt: the kept turns, and the summary unless it is out of date."""
    healthy = state.health in (MemoryHealth.HEALTHY, MemoryHealth.RETRY)
    summary = state.summary if healthy else ""
    tokens = estimate_turns(state.turns) + estimate_summary(summary)
    return MemoryPatch(strategy=state.strategy, summary=summary, recent_turns=state.turns, tokens=tokens)


def read_state(data: bytes) -> MemoryState:
    """Decode a stored memory.

    Raises:
        msgspec.DecodeError: it is no memory.
        UnicodeDecodeError: it is no text.
    """
    found: MemoryState = codec.decode(data, MemoryState)
    return found


def restore_state(data: bytes, config: Memory) -> MemoryState:
    """Decode a snapshot, and cut its turns to the configured budget.

    Raises:
        InvalidSnapshotError: it cannot be read, is of another strategy, or has turns under the strategy `none`.
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
            return replace(state, turns=_fit_turns(state.turns, config.tokens))
        case MemoryStrategy.ROLLING_SUMMARY:
            return state


def _fit_turns(turns: tuple[Turn, ...], budget: int) -> tuple[Turn, ...]:
    """Return the newest turns that fit into the budget together; all of them without a budget."""
    if budget <= 0:
        return turns
    excess = estimate_turns(turns) - budget
    first = 0
    while excess > 0:
        excess -= estimate_turns(turns[first : first + 1])
        first += 1
    return turns[first:]


def _change_health(state: MemoryState, health: MemoryHealth, reason: HealthReason) -> Change:
    check_health_change(state.health, health)
    return Change(replace(state, health=health), "" if health is state.health else reason)
