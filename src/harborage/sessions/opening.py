"""How a session is opened by a commit of its own, or by the commit that starts a run in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from harborage import codec
from harborage.events import Event, EventType, Payload, SessionOpenedPayload, unix_ns
from harborage.sessions.model import SessionClosedError, SessionNotFoundError, session_of
from harborage.store import Committed, OpenSession
from harborage.store.times import micros

if TYPE_CHECKING:
    from datetime import datetime

    from harborage.events import RecordBus
    from harborage.identity import Identity
    from harborage.sessions.model import Session
    from harborage.store import SessionChange, SessionRow


class Publish(Protocol):
    """Publishes an event of a session."""

    def __call__(self, type: EventType, who: Identity, payload: Payload) -> None: ...


class Opening(NamedTuple):
    """A session that a commit opens, unless it is open; `committed` takes what the store says of it."""

    session: OpenSession
    announce: Callable[[SessionChange], None]
    on_opened: Callable[[Session], None] | None = None

    def committed(self, done: SessionChange) -> Session:
        """Publish that the session was opened, if it was, and return it.

        Raises:
            SessionClosedError: it was closed.
        """
        session = found_session(self.session.who, done.row)
        if session.closed:
            raise closed_error(session)
        if done.is_changed:
            self.announce(done)
        if self.on_opened is not None:
            self.on_opened(session)
        return session


def opening_of(
    owner: Identity,
    context: dict[str, Any],
    now: datetime,
    bus: RecordBus | None,
    publish: Publish,
    on_opened: Callable[[Session], None] | None,
) -> Opening:
    """Return how the session of `owner` is opened: with its event in the same commit, where `bus` stores it there."""
    kept, at = codec.encode(context, "session"), micros(now)
    body = SessionOpenedPayload(owner.session_id, unix_ns(now))
    if bus is None:

        def announce(_: SessionChange) -> None:
            publish(EventType.SESSION_OPENED, owner, body)

        return Opening(OpenSession(who=owner, context=kept, at=at), announce, on_opened)
    event, data = bus.prepare(Event(EventType.SESSION_OPENED, owner.with_run(""), body))

    def deliver(done: SessionChange) -> None:
        bus.deliver([event], Committed(first=done.first, place=done.place))

    return Opening(OpenSession(who=owner, context=kept, at=at, events=(data,)), deliver, on_opened)


def found_session(who: Identity, row: SessionRow | None) -> Session:
    """Return the session of a row.

    Raises:
        SessionNotFoundError: there is no row.
        SessionCorruptError: it cannot be read.
    """
    if row is None:
        raise SessionNotFoundError(who.session_id)
    return session_of(row)


def closed_error(session: Session) -> SessionClosedError:
    """Return the error of what is asked of a closed session."""
    return SessionClosedError(session.id, session.closed_at, session.closed_reason)
