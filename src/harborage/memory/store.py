"""`SessionMemory`: what sessions remember, kept in the state store under each session's own identity.

Nothing of a session is kept in this process between two calls, so memory outlives it and several may share a store.
Changes of one session are made one after the other here; where another process was faster, a change is made anew of
what that one stored. Only over a store that cannot tell, the last write of two processes wins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable
from weakref import WeakValueDictionary

import msgspec

from harborage import codec
from harborage.clock import SYSTEM_CLOCK, Timers, sleep
from harborage.concurrency import Crew
from harborage.errors import error_reason, error_text
from harborage.events import Event, EventBus, EventType, Payload
from harborage.events.payloads import (
    MemoryHealthChangedPayload,
    MemoryIdentityRejectedPayload,
    MemoryRecoveryDroppedPayload,
)
from harborage.identity import Identity, Quadruple, missing_parts
from harborage.ids import new_id
from harborage.memory.errors import (
    InvalidSnapshotError,
    MemoryClosedError,
    MemoryConfigError,
    MemoryCorruptError,
    MemoryIdentityError,
)
from harborage.memory.state import (
    Change,
    MemoryState,
    added,
    attempted,
    failed,
    patch_of,
    read_state,
    recovered,
    recovery_failed,
    restored,
    summarised,
)
from harborage.memory.values import Memory, MemoryHealth, MemoryPatch, MemorySnapshot, MemoryStrategy, Turn
from harborage.state import NotFoundError, StateRecord, StateStore, SwappingStateStore

__all__ = ["STATE_KIND", "ConversationSummariser", "SessionMemory"]

STATE_KIND: Final = "memory.state"
"""The kind of the record that holds a session's memory."""

RECOVERY_INTERVAL_S: Final = 10.0
_MOST_SUMMARY: Final = 32_768
_MISSING: Final = "<missing>"
_GRACE_S: Final = 0.25


@runtime_checkable
class ConversationSummariser(Protocol):
    """Folds turns into the summary of a session. Safe for concurrent callers."""

    async def summarise(self, who: Identity, previous: str, turns: tuple[Turn, ...]) -> str:
        """The new summary, out of the previous one (may be blank) and the turns since, under the session's identity.

        Raises:
            Exception: it could not be made. Never: returns a blank summary for a failure.
        """
        ...


class SessionMemory:
    """The memory of every session of one runtime, over one state store.

    Every method raises, in this order, MemoryClosedError once it is closed and MemoryIdentityError for an identity with
    an empty part. The recovery loop, which takes up what could not be summarised, runs while there is something to do.

    Raises:
        MemoryConfigError: a part is missing: the store, the bus, or the summariser of `rolling_summary`.
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
            raise MemoryConfigError("memory needs a state store and an event bus")
        if config.strategy is MemoryStrategy.ROLLING_SUMMARY and summariser is None:
            raise MemoryConfigError("memory strategy rolling_summary needs a summariser: give a model, or a summariser")
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
        """Remember a turn; it is stored before an older one is summarised. A summary that fails does not fail this.

        Raises:
            MemoryCorruptError: what is stored cannot be read.
        """
        self._check(who, "add_turn")
        if self.config.strategy is MemoryStrategy.NONE:
            return
        async with self._lock(who):
            state = await self._change(who, lambda now: added(now, turn, self.config))
            if state.batch:
                await self._summarise(who, state)

    async def context(self, who: Identity) -> MemoryPatch:
        """What a prompt may say of the session so far. Waits for no summary that is being made.

        Raises:
            MemoryCorruptError: what is stored cannot be read.
        """
        self._check(who, "context")
        return patch_of(await self._load(who))

    async def estimate_tokens(self, who: Identity) -> int:
        """The estimated size of `context`, in tokens.

        Raises:
            MemoryCorruptError: what is stored cannot be read.
        """
        self._check(who, "estimate_tokens")
        return patch_of(await self._load(who)).tokens

    async def health(self, who: Identity) -> MemoryHealth:
        """Whether the session's summary keeps up.

        Raises:
            MemoryCorruptError: what is stored cannot be read.
        """
        self._check(who, "health")
        return (await self._load(who)).health

    async def flush(self, who: Identity) -> None:
        """Forget the session: its record is deleted, and its health is healthy again."""
        self._check(who, "flush")
        async with self._lock(who):
            self._degraded.pop(who, None)
            await self._state.delete(who.with_run(""), STATE_KIND)

    async def snapshot(self, who: Identity) -> MemorySnapshot:
        """The session's memory as bytes.

        Raises:
            MemoryCorruptError: what is stored cannot be read.
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
        state = restored(snapshot.data, self.config)
        async with self._lock(who):
            if snapshot.data and self.config.strategy is not MemoryStrategy.NONE:
                await self._save(who, state)
            else:
                await self._state.delete(who.with_run(""), STATE_KIND)

    async def aclose(self) -> None:
        """Stop the recovery loop; what it still had to do is stored. Closing twice does nothing."""
        self._is_closed = True
        await self._crew.aclose()
        for name in await self._asking.close_within(_GRACE_S):
            self._logger.warning("%s ignores its cancellation and was left behind", name)

    # ── Summaries ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _summarise(self, who: Identity, state: MemoryState) -> None:
        batch = state.batch
        summary = await self._asked(who, state.summary, batch)
        if summary:
            await self._change(who, lambda now: summarised(now, batch, summary))
        else:
            await self._change(who, lambda now: failed(now, self.config))

    async def _asked(self, who: Identity, previous: str, turns: tuple[Turn, ...]) -> str:
        """The new summary; blank when it could not be made, which the log explains."""
        summary, reason = "", "the summary is blank"
        try:
            asking = _summarised(self._summariser, who, previous, turns)
            seconds = self.config.summary_timeout_s
            summary = (await self._asking.within(asking, seconds, "summary of a session", clock=self._clock)).strip()
        except Exception as error:  # noqa: BLE001 - a failed summary is counted, and never fails what asked for it
            reason = error_reason(error)
        if not summary:
            self._logger.warning("the memory of session %s was not summarised: %s", who.session_id, reason)
        return summary if len(summary) <= _MOST_SUMMARY else summary[: _MOST_SUMMARY - 1] + "…"

    async def _recover(self) -> None:
        """Try the oldest batch of each session that has fallen behind, once in a while, until none has."""
        while self._degraded:
            await sleep(self._clock, RECOVERY_INTERVAL_S)
            for who in list(self._degraded):
                try:
                    await self._recover_one(who)
                except Exception as error:  # noqa: BLE001 - one session must not keep the others from recovering
                    self._logger.warning(
                        "the memory of session %s was not recovered: %s", who.session_id, error_reason(error)
                    )

    async def _recover_one(self, who: Identity) -> None:
        async with self._lock(who):
            state = await self._load(who)
            if state.health not in (MemoryHealth.DEGRADED, MemoryHealth.RECOVERING):
                self._degraded.pop(who, None)
                return
            state = await self._change(who, attempted)
            batch = state.backlog[0] if state.backlog else ()
            summary = await self._asked(who, state.summary, batch) if batch else state.summary
            if summary or not batch:
                await self._change(who, lambda now: recovered(now, batch, summary))
            else:
                await self._change(who, recovery_failed)

    # ── The store ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _change(self, who: Identity, change: Callable[[MemoryState], Change]) -> MemoryState:
        """Store what `change` makes of what is stored now, and announce it; hold the session's lock."""
        while True:
            before, event_id = await self._loaded(who)
            done = change(before)
            if done.state is before or await self._swapped(who, done.state, event_id):
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
        return (await self._loaded(who))[0]

    async def _loaded(self, who: Identity) -> tuple[MemoryState, str]:
        """What is stored, and the event id that wrote it; blank where nothing is."""
        assert isinstance(self.config.strategy, MemoryStrategy)
        empty = MemoryState(strategy=self.config.strategy)
        if self.config.strategy is MemoryStrategy.NONE:
            return empty, ""
        try:
            record = await self._state.load(who.with_run(""), STATE_KIND)
        except NotFoundError:
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
        await self._state.save(_record(who, state))

    async def _swapped(self, who: Identity, state: MemoryState, after: str) -> bool:
        """Store the state in place of what `after` wrote; False when another process has stored something since."""
        if self._swapping is not None:
            return await self._swapping.swap(_record(who, state), after=after)
        await self._save(who, state)
        return True

    def _watch(self, who: Identity, state: MemoryState) -> None:
        """Let the recovery loop look after a session that has fallen behind."""
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

    # ── Who asks ────────────────────────────────────────────────────────────────────────────────────────────────────

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
        """Announce something. The store is the truth, so a bus that refuses is logged."""
        try:
            self._bus.publish_nowait(Event(type, who, payload))
        except Exception as error:  # noqa: BLE001 - announcing must not fail what is announced
            self._logger.warning("%s was not published: %s", type, error_reason(error))


def _record(who: Identity, state: MemoryState) -> StateRecord:
    return StateRecord(new_id(), who.with_run(""), STATE_KIND, codec.encode(state, "memory"))


async def _summarised(
    summariser: ConversationSummariser | None, who: Identity, previous: str, turns: tuple[Turn, ...]
) -> str:
    assert summariser is not None  # a memory that summarises is refused without one
    return await summariser.summarise(who, previous, turns)
