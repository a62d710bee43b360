"""`SessionMemory`: the memory of sessions, in the state store under each session's own identity.

No state of a session stays in this process between two calls, so memory outlives it and processes may share a store.
Changes of one session are made one after the other here; when another process was faster, a change is computed again
from what that one stored. Only over a store without compare-and-swap, the last write of two processes wins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, runtime_checkable
from weakref import WeakValueDictionary

import msgspec

from harborage import codec
from harborage.clock import SYSTEM_CLOCK, Timers, sleep
from harborage.concurrency import CANCEL_GRACE_S, Crew
from harborage.errors import InvalidOptionError, error_reason, error_text
from harborage.events import (
    Event,
    EventBus,
    EventType,
    MemoryHealthChangedPayload,
    MemoryIdentityRejectedPayload,
    MemoryRecoveryDroppedPayload,
    Payload,
)
from harborage.identity import Identity, Quadruple, missing_parts
from harborage.ids import new_id
from harborage.memory.state import (
    Change,
    MemoryState,
    add_turn,
    apply_summary,
    count_failure,
    fail_recovery,
    finish_recovery,
    make_patch,
    read_state,
    restore_state,
    start_recovery,
)
from harborage.memory.values import (
    InvalidSnapshotError,
    Memory,
    MemoryClosedError,
    MemoryCorruptError,
    MemoryHealth,
    MemoryIdentityError,
    MemoryPatch,
    MemorySnapshot,
    MemoryStrategy,
    Turn,
)
from harborage.state import RecordNotFoundError, StateRecord, StateStore, SwappingStateStore

STATE_KIND: Final = "memory.state"
"""The kind of the record that holds a session's memory."""

RECOVERY_INTERVAL_S: Final = 10.0
_MOST_SUMMARY: Final = 32_768
_MISSING: Final = "<missing>"
_GRACE_S: Final = 0.25


@runtime_checkable
class ConversationSummariser(Protocol):
    """Adds turns to the summary of a session. Safe for concurrent callers."""

    async def summarise(self, who: Identity, previous: str, turns: tuple[Turn, ...]) -> str:
        """Return the new summary of the previous one (may be blank) and the turns since, under the session's identity.

        Raises:
            Exception: it could not be made. Never: returns a blank summary for a failure.
        """
        ...


class SessionMemory:
    """The memory of every session of one runtime, over one state store.

    Every method raises, in this order, MemoryClosedError once it is closed and MemoryIdentityError for an identity with
    an empty part. The recovery loop, which retries failed summaries, runs while there are any.

    Raises:
        InvalidOptionError: a part is missing: the store, the bus, or the summariser of `rolling_summary`.
    """

    def __init__(
        self,
        state: StateStore,
        bus: EventBus,
        config: Memory,
        *,
        summariser: ConversationSummariser | None = None,
        clock: Timers = SYSTEM_CLOCK,
        logger: logging.Logger | None = None,
    ) -> None:
        parts: tuple[object, ...] = (state, bus)
        if None in parts:
            option = "bus" if parts[1] is None else "state"
            raise InvalidOptionError(option, None, message="memory needs a state store and an event bus")
        if config.strategy is MemoryStrategy.ROLLING_SUMMARY and summariser is None:
            text = "memory strategy rolling_summary needs a summariser: pass a model, or a summariser"
            raise InvalidOptionError("summariser", None, message=text)
        self.config = config
        self._state = state
        self._swapping = state if isinstance(state, SwappingStateStore) else None
        self._bus = bus
        self._summariser = summariser
        self._clock = clock
        self._logger = logging.getLogger("harborage.memory") if logger is None else logger
        self._locks: WeakValueDictionary[Identity, asyncio.Lock] = WeakValueDictionary()
        self._degraded: dict[Identity, None] = {}
        self._crew = Crew(lambda name, error: self._logger.error("%s stopped: %s", name, error_reason(error)))
        self._asking = Crew(lambda name, error: self._logger.debug("%s: %s", name, error_reason(error)))
        self._recovery: asyncio.Task[None] | None = None
        self._is_closed = False

    async def add_turn(self, who: Identity, turn: Turn) -> None:
        """Add a turn; it is stored before an older one is summarised. A summary that fails does not fail this.

        Raises:
            MemoryCorruptError: the stored memory cannot be read.
        """
        self._check(who, "add_turn")
        if self.config.strategy is MemoryStrategy.NONE:
            return
        async with self._lock(who):
            state = await self._change(who, lambda now: add_turn(now, turn, self.config))
            if state.batch:
                await self._summarise(who, state)

    async def context(self, who: Identity) -> MemoryPatch:
        """Return the part of the session's memory for a prompt, without waiting for a summary that is being made.

        Raises:
            MemoryCorruptError: the stored memory cannot be read.
        """
        self._check(who, "context")
        return make_patch(await self._load(who))

    async def estimate_tokens(self, who: Identity) -> int:
        """Estimate the size of `context`, in tokens.

        Raises:
            MemoryCorruptError: the stored memory cannot be read.
        """
        self._check(who, "estimate_tokens")
        return make_patch(await self._load(who)).tokens

    async def health(self, who: Identity) -> MemoryHealth:
        """Return the health of the session's summary.

        Raises:
            MemoryCorruptError: the stored memory cannot be read.
        """
        self._check(who, "health")
        return (await self._load(who)).health

    async def flush(self, who: Identity) -> None:
        """Delete the session's memory; its health is healthy again."""
        self._check(who, "flush")
        async with self._lock(who):
            self._degraded.pop(who, None)
            await self._state.delete(who.with_run(""), STATE_KIND)

    async def snapshot(self, who: Identity) -> MemorySnapshot:
        """Return the session's memory as bytes.

        Raises:
            MemoryCorruptError: the stored memory cannot be read.
        """
        self._check(who, "snapshot")
        state = await self._load(who)
        return MemorySnapshot(strategy=state.strategy, data=codec.encode(state, "memory"))

    async def restore(self, who: Identity, snapshot: MemorySnapshot) -> None:
        """Replace the session's memory by that of a snapshot; an empty one resets it.

        Raises:
            InvalidSnapshotError: it is of another strategy, or cannot be read.
        """
        self._check(who, "restore")
        if snapshot.strategy is not self.config.strategy:
            raise InvalidSnapshotError(
                f"the snapshot is of strategy {snapshot.strategy}, and this memory of {self.config.strategy}"
            )
        state = restore_state(snapshot.data, self.config)
        async with self._lock(who):
            if snapshot.data and self.config.strategy is not MemoryStrategy.NONE:
                await self._save(who, state)
            else:
                await self._state.delete(who.with_run(""), STATE_KIND)

    async def aclose(self) -> None:
        """Stop the recovery loop; its unfinished work is stored. Closing twice does nothing."""
        self._is_closed = True
        await self._crew.aclose()
        for name in await self._asking.close_within(_GRACE_S):
            self._logger.warning("%s has not ended yet and was left behind", name)

    # ── Summaries ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _summarise(self, who: Identity, state: MemoryState) -> None:
        batch = state.batch
        summary = await self._ask_summariser(who, state.summary, batch)
        if summary:
            await self._change(who, lambda now: apply_summary(now, batch, summary))
        else:
            await self._change(who, lambda now: count_failure(now, self.config))

    async def _ask_summariser(self, who: Identity, previous: str, turns: tuple[Turn, ...]) -> str:
        """Return the new summary; blank when it could not be made, which the log explains."""
        summary, reason = "", "the summary is blank"
        try:
            answer = await self._asking.within(
                partial(_call_summariser, self._summariser, who, previous, turns),
                self.config.summary_timeout_s,
                "summary of a session",
                clock=self._clock,
                on_left=partial(self._log_abandoned, who),
            )
            summary = answer.strip()
        except Exception as error:  # noqa: BLE001 - a failed summary is counted, and never fails its caller
            reason = error_reason(error)
        if not summary:
            self._logger.warning("the memory of session %s was not summarised: %s", who.session_id, reason)
        return summary if len(summary) <= _MOST_SUMMARY else summary[: _MOST_SUMMARY - 1] + "…"

    def _log_abandoned(self, who: Identity, problem: BaseException | None) -> None:
        why = "" if problem is None else f", and could not be closed: {error_text(problem)}"
        text = "the summariser of session %s was abandoned: it ignored its cancellation for %g s%s"
        self._logger.warning(text, who.session_id, CANCEL_GRACE_S, why)

    async def _recover(self) -> None:
        """Retry the oldest batch of each degraded session at intervals, until none is degraded."""
        while self._degraded:
            await sleep(self._clock, RECOVERY_INTERVAL_S)
            for who in list(self._degraded):
                try:
                    await self._recover_one(who)
                except Exception as error:  # noqa: BLE001 - one session must not prevent the others from recovering
                    self._logger.warning(
                        "the memory of session %s was not recovered: %s", who.session_id, error_reason(error)
                    )

    async def _recover_one(self, who: Identity) -> None:
        async with self._lock(who):
            state = await self._load(who)
            if state.health not in (MemoryHealth.DEGRADED, MemoryHealth.RECOVERING):
                self._degraded.pop(who, None)
                return
            state = await self._change(who, start_recovery)
            batch = state.backlog[0] if state.backlog else ()
            summary = await self._ask_summariser(who, state.summary, batch) if batch else state.summary
            if summary or not batch:
                await self._change(who, lambda now: finish_recovery(now, batch, summary))
            else:
                await self._change(who, fail_recovery)

    # ── The store ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _change(self, who: Identity, change: Callable[[MemoryState], Change]) -> MemoryState:
        """Apply `change` to the stored state, store the result and publish it; the caller holds the session's lock."""
        while True:
            before, event_id = await self._load_record(who)
            done = change(before)
            if done.state is before or await self._swap(who, done.state, event_id):
                break
        if done.reason:
            payload = MemoryHealthChangedPayload(
                prior_health=before.health, new_health=done.state.health, reason=done.reason
            )
            self._publish(EventType.MEMORY_HEALTH_CHANGED, who.with_run(""), payload)
        for _ in range(done.dropped):
            self._publish(EventType.MEMORY_RECOVERY_DROPPED, who.with_run(""), MemoryRecoveryDroppedPayload())
        self._watch(who, done.state)
        return done.state

    async def _load(self, who: Identity) -> MemoryState:
        return (await self._load_record(who))[0]

    async def _load_record(self, who: Identity) -> tuple[MemoryState, str]:
        """Return the stored state and the event id that wrote it; blank without a record."""
        assert isinstance(self.config.strategy, MemoryStrategy)
        empty = MemoryState(strategy=self.config.strategy)
        if self.config.strategy is MemoryStrategy.NONE:
            return empty, ""
        try:
            record = await self._state.load(who.with_run(""), STATE_KIND)
        except RecordNotFoundError:
            return empty, ""
        try:
            state = read_state(record.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MemoryCorruptError(who.session_id, error_text(error)) from error
        if state.strategy is not self.config.strategy:
            return empty, record.event_id
        self._watch(who, state)
        return state, record.event_id

    async def _save(self, who: Identity, state: MemoryState) -> None:
        await self._state.save(_make_record(who, state))

    async def _swap(self, who: Identity, state: MemoryState, after: str) -> bool:
        """Store the state in place of the one that `after` wrote; False when another process has stored one since."""
        if self._swapping is not None:
            return await self._swapping.swap(_make_record(who, state), after=after)
        await self._save(who, state)
        return True

    def _watch(self, who: Identity, state: MemoryState) -> None:
        """Give a degraded session to the recovery loop."""
        if state.health not in (MemoryHealth.DEGRADED, MemoryHealth.RECOVERING):
            self._degraded.pop(who, None)
            return
        self._degraded[who] = None
        if not self._is_closed and (self._recovery is None or self._recovery.done()):
            self._recovery = self._crew.start(self._recover(), "memory recovery")

    def _lock(self, who: Identity) -> asyncio.Lock:
        lock = self._locks.get(who)
        if lock is None:
            lock = self._locks[who] = asyncio.Lock()
        return lock

    # ── Identity ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _check(self, who: Identity, operation: str) -> None:
        if self._is_closed:
            raise MemoryClosedError()
        missing = missing_parts(who)
        if not missing:
            return
        error = MemoryIdentityError(missing)
        owner = Quadruple(*(part or _MISSING for part in (who.tenant_id, who.user_id, who.session_id)))
        self._publish(
            EventType.MEMORY_IDENTITY_REJECTED,
            owner,
            MemoryIdentityRejectedPayload(operation=operation, reason=error_text(error)),
        )
        raise error

    def _publish(self, type: EventType, who: Quadruple, payload: Payload) -> None:
        """Publish an event. The store is the truth, so a bus that fails is only logged."""
        try:
            self._bus.publish_nowait(Event(type, who, payload))
        except Exception as error:  # noqa: BLE001 - publishing must not fail the change
            self._logger.warning("%s was not published: %s", type, error_reason(error))


def _make_record(who: Identity, state: MemoryState) -> StateRecord:
    return StateRecord(new_id(), who.with_run(""), STATE_KIND, codec.encode(state, "memory"))


async def _call_summariser(
    summariser: ConversationSummariser | None, who: Identity, previous: str, turns: tuple[Turn, ...]
) -> str:
    assert summariser is not None  # a memory that summarises is refused without one
    return await summariser.summarise(who, previous, turns)
