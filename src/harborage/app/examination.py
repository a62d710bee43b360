"""The check of a whole storage: damaged rows, missing ones, and rows that contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from harborage import codec
from harborage.errors import HarborageError, error_text
from harborage.events.rows import event_flaw
from harborage.runtime.durable.bodies import digests_of
from harborage.runtime.durable.engine import ControlUnreadableError
from harborage.runtime.durable.journal import JournalCorruptError, Started, decode_entry, is_outdated
from harborage.runtime.durable.pauses.rows import describe_damage
from harborage.runtime.loop.controls import ControlEvent
from harborage.runtime.loop.seam import RunRequest
from harborage.sessions import SessionCorruptError
from harborage.sessions.model import session_of
from harborage.store.examining import Judges
from harborage.store.suspects import check_everything

if TYPE_CHECKING:
    from harborage.store import ControlRow, SessionRow, Store
    from harborage.store.check import Disagreement

OnProgress = Callable[[str, float], None]
"""Called with the part that is being checked, and how much of it is done, from 0 to 1."""

_SHOWN: Final = 5
_BODY: Final = b'"$body"'
# What waits for no one that could end it is listed with the pending work, with the way to end it.
_PENDING: Final = frozenset({"pause_of_ended", "sleeps_with_mail", "waits_for_nothing"})
_NOUNS: Final = {"event": "session", "group": "group", "pause": "pause", "session": "session"}


class Flaws:
    """The flaws that were found: the texts of the first ones, and the number of all."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._count)

    def add(self, says: str) -> None:
        """Add a flaw; one with the same text is counted once."""
        if says not in self._shown:
            self._count += 1
            if len(self._shown) < _SHOWN:
                self._shown.append(says)

    def summary(self) -> str:
        """Return the first flaws, the number of others, and what to do."""
        more = f"; {self._count - _SHOWN} more" if self._count > _SHOWN else ""
        return f"{'; '.join(self._shown)}{more}; restore a copy that is whole"


async def examine(store: Store, flaws: Flaws, on_progress: OnProgress | None = None) -> None:
    """Add every flaw of the store to `flaws`; any number of workers may work on it meanwhile.

    Raises:
        DatabaseError: the database cannot be read on.
    """
    async for one in check_everything(store, JUDGES, on_progress=on_progress):
        if one.kind not in _PENDING:
            flaws.add(_named(one))


def _named(one: Disagreement) -> str:
    """Return the text of a flaw, after the name of its subject."""
    if one.kind.endswith(("_damaged", "_gone", "_missing")):
        return one.says
    return f"{_NOUNS.get(one.kind.partition('_')[0], 'run')} {one.subject}: {one.says}"


def _entry(run_id: str, index: int, data: bytes) -> str:
    if _BODY in data and is_outdated(data):
        return ""  # it is brought up to date once its bodies are in their places
    try:
        decode_entry(data, run_id, index)
    except JournalCorruptError as error:
        return str(error)
    return ""


def _bodies(data: bytes) -> Iterable[str]:
    return digests_of(decode_entry(data, "", 0)).values() if _BODY in data and not is_outdated(data) else ()


def _run(first_entry: bytes) -> str:
    try:
        entry = decode_entry(first_entry, "", 0)
        return codec.decode(bytes(entry.request), RunRequest).who.run_id if isinstance(entry, Started) else ""
    except (HarborageError, msgspec.MsgspecError, ValueError, RecursionError):
        return ""


def _control(sent: ControlRow) -> str:
    try:
        codec.decode(sent.data, ControlEvent)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return error_text(ControlUnreadableError(sent.run_id, sent.number, sent.event_id, error_text(error)))
    return ""


def _session(row: SessionRow) -> str:
    if not row.is_opened and not row.is_damaged:
        return ""
    try:
        session_of(row)
    except SessionCorruptError as error:
        return str(error)
    return ""


JUDGES: Final = Judges(
    entry=_entry, bodies=_bodies, run=_run, event=event_flaw, control=_control, pause=describe_damage, session=_session
)
"""What can be read by the code of today."""
