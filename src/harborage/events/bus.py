"""The port of event buses, what a bus over a store of record adds to it, and the drivers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from harborage.drivers import DriverTable

if TYPE_CHECKING:
    from harborage.events.event import Event
    from harborage.events.filters import Cursor, Filter
    from harborage.events.subscription import Subscription
    from harborage.identity import Identity, Quadruple
    from harborage.store import Commit, Committed, NewEvent, Store


@runtime_checkable
class EventBus(Protocol):
    """Where events are published, numbered and delivered to the subscribers that may see them.

    A bus numbers at least the events of one session in one sequence, without gaps. Events without a number (0) are not
    stored, and are in no replay.
    """

    async def publish(self, event: Event) -> Event:
        """Publish `event` and return it redacted, stamped and numbered. A durable bus has stored it by then.

        Raises:
            BusClosedError, UnknownEventTypeError, IdentityRequiredError, SequenceProvidedError, InvalidEventError,
            RedactionFailedError: in this order; nothing was published (a failed redaction is itself an event).
        """
        ...

    def publish_nowait(self, event: Event) -> Event:
        """Publish `event` without an await, for code that must not lose its turn.

        On a durable bus the number is still 0: it is given when the event is stored.

        Raises:
            BusStalledError, BusBacklogError: beside those of `publish`, by a bus whose store does not keep up.
        """
        ...

    def subscribe(self, filter: Filter) -> Subscription:
        """Return a live stream of the events that match `filter`; it starts now.

        Raises:
            BusClosedError, IdentityScopeRequiredError, SubscriberLimitReachedError: in this order.
        """
        ...

    async def replay(self, cursor: Cursor, filter: Filter) -> list[Event]:
        """Return the retained events after `cursor` that match `filter`, oldest first.

        To reconnect without a gap: subscribe first, replay from the last sequence seen, skip duplicates.

        Raises:
            BusClosedError, ReplayUnavailableError, IdentityScopeRequiredError, CursorTooOldError: in this order.
        """
        ...

    def last_sequence(self, who: Identity | Quadruple) -> int:
        """Return the number of a recent event of the session, 0 if none is known; later events have higher ones."""
        return 0

    async def aclose(self) -> None:
        """End every stream. Closing twice does nothing."""
        ...


class RunBuffer(Protocol):
    """The unstored events of a run that this worker executes; the run's next commit stores them."""

    def add(self, event: Event, data: NewEvent) -> None:
        """Add an event that the run published. Never: waits or raises."""
        ...

    def add_usage(self, tokens: int, cost: int) -> None:
        """Add what a call of a model used that no event tells of: tokens, and millionths of a US dollar."""
        ...

    def flush_soon(self) -> None:
        """Store the added events now: another publisher is about to store a later event about the run."""
        ...


@runtime_checkable
class RecordBus(EventBus, Protocol):
    """A bus over a store of record: the events that a run publishes are stored in the commits of that run."""

    @property
    def store(self) -> Store:
        """The store in which it keeps events."""
        ...

    def attach_run(self, who: Quadruple, buffer: RunBuffer) -> Callable[[], None]:
        """Add the events that the run `who` itself publishes to `buffer` from now on; returns what detaches it.

        Meanwhile `publish` returns at once for them, with the number still 0. Events that others publish about the run
        are stored by the bus as usual.
        """
        ...

    def add_usage(self, who: Quadruple, *, tokens: int, cost: int) -> None:
        """Count a call of a model that no event tells of in the totals of the run `who`, if this worker executes it.

        `cost` is in millionths of a US dollar.
        """
        ...

    def write(self, events: Iterable[tuple[Event, NewEvent]]) -> None:
        """Store events that a detached run left behind, as if they were published now."""
        ...

    def prepare(self, event: Event) -> tuple[Event, NewEvent]:
        """The event as it will be delivered, and what a commit stores of it: validated, redacted, with its time."""
        ...

    async def follow(self, filter: Filter) -> None:
        """Deliver to the subscribers of `filter` whatever is stored once this returns, by any process.

        Raises:
            HarborageError: the store cannot be read.
        """
        ...

    def deliver(self, events: Sequence[Event], committed: Committed) -> None:
        """Deliver to subscribers the events of one session that a commit has stored, in this order."""
        ...


class RunWriter(Protocol):
    """Commits changes that a run makes of other rows, under the lease of the worker that executes the run."""

    async def __call__(
        self,
        changes: Commit,
        events: Sequence[tuple[Event, NewEvent]] = (),
        accepted: Callable[[], None] | None = None,
        *,
        can_wait: bool = False,
    ) -> Committed:
        """Commit `changes` with everything the run has noted so far, and deliver the prepared `events` with them.

        `accepted` is called once a store in memory has accepted the commit and before anything has changed.
        `can_wait` is for a pause that is resolved, and whose run goes on at once: the change rides with the run's next
        commit. If another caller has resolved the pause by then, that commit is refused and the worker leaves the run.

        Raises:
            CommitRefusedError, RowNotFoundError: a condition of the changes does not hold; nothing was written.
            RunLeftError: the worker has lost the run, or the store did not answer; nothing was written.
        """
        ...


BUS_DRIVERS: DriverTable[Callable[..., EventBus]] = DriverTable(
    "events", {"durable": "harborage.events.durable_bus:make", "inmem": "harborage.events.memory_bus:MemoryEventBus"}
)
"""The buses that configuration may name. Code passes the objects themselves."""
