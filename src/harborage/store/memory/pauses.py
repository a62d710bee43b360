"""The pauses of a store in memory: by token, by run, and the open ones, so that none is looked for among all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.store.errors import PauseAnsweredError, PauseSettledError, RowNotFoundError
from harborage.store.rows import PauseRow, PauseStatus

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.store.commit import DropAnswer, NewPause, SettlePause
    from harborage.store.queries import PauseQuery


class Pauses:
    """Every pause. Of each tenant's settled ones that belong to no run the last `keep_strays` stay."""

    def __init__(self, keep_strays: int) -> None:
        self._keep_strays = keep_strays
        self._rows: dict[str, PauseRow] = {}
        self._open: dict[str, None] = {}
        self._of_run: dict[str, dict[str, None]] = {}
        self._strays: dict[str, deque[str]] = {}

    def get(self, token: str) -> PauseRow:
        """The pause with this token.

        Raises:
            RowNotFoundError: there is none.
        """
        if (row := self._rows.get(token)) is None:
            raise RowNotFoundError(token, what="pause")
        return row

    def likely(self, query: PauseQuery) -> Iterator[PauseRow]:
        """The pauses that a query may find: few, where it names tokens or runs, or asks for open ones alone."""
        tokens: Iterable[str] = self._rows
        if query.tokens:
            tokens = dict.fromkeys(query.tokens)
        elif query.run_ids:
            tokens = [token for run_id in dict.fromkeys(query.run_ids) for token in self._of_run.get(run_id, ())]
        elif query.due is not None or query.statuses == (PauseStatus.OPEN,):
            tokens = self._open
        return (self._rows[token] for token in tokens if token in self._rows)

    def open_of(self, run_id: str) -> list[str]:
        """The open pauses of a run, oldest first."""
        return [token for token in self._of_run.get(run_id, ()) if token in self._open]

    def open_reasons(self, run_id: str) -> list[str]:
        """Why a run asks, for each of its open pauses."""
        return [self._rows[token].reason for token in self.open_of(run_id)]

    def sessions_asking(self) -> set[Identity]:
        """The sessions in which a pause is open."""
        return {self._rows[token].who for token in self._open}

    def open(self, pause: NewPause, number: int, now: int) -> bool:
        """Open a pause; False when there is one with its token."""
        if pause.token in self._rows:
            return False
        self._rows[pause.token] = PauseRow(
            number=number,
            token=pause.token,
            run_id=pause.run_id,
            who=pause.who,
            reason=pause.reason,
            opened_at=pause.at or now,
            deadline=pause.deadline,
            data=pause.data,
        )
        self._open[pause.token] = None
        self._of_run.setdefault(pause.run_id, {})[pause.token] = None
        return True

    def check_answer(self, token: str, event_id: str) -> None:
        """Accept that this control is sent to answer a pause; one that is not in this store is not checked.

        Raises:
            PauseSettledError: it was settled before, and not by this control.
            PauseAnsweredError: another answer to it is on its way.
        """
        row = self._rows.get(token)
        if row is None or row.answering == event_id:
            return
        if row.status is not PauseStatus.OPEN:
            raise PauseSettledError(row)
        if row.answering:
            raise PauseAnsweredError(row)

    def answering(self, token: str, event_id: str) -> None:
        """Note which control is on its way to answer an open pause."""
        if token in self._open:
            self._rows[token] = replace(self._rows[token], answering=event_id)

    def drop(self, drop: DropAnswer) -> None:
        """Let another answer be sent in the place of one that came to nothing."""
        if drop.token in self._open and self._rows[drop.token].answering == drop.event_id:
            self._rows[drop.token] = replace(self._rows[drop.token], answering="")

    def settle(self, settle: SettlePause, now: int, *, has_run: bool) -> None:
        """Settle an open pause. `has_run` says that its run is in this store, too."""
        row = self._rows[settle.token]
        at = settle.at or now
        self._settled(replace(row, status=settle.status, settled_at=at, settled_by=settle.by, answer=settle.answer))
        if not has_run:
            self._keep_stray(row)

    def cancel_of(self, run_id: str, now: int) -> None:
        """Cancel the open pauses of a run that has ended."""
        for token in self.open_of(run_id):
            self._settled(replace(self._rows[token], status=PauseStatus.CANCELLED, settled_at=now))

    def delete_of(self, run_id: str) -> None:
        """Delete every pause of a run."""
        for token in list(self._of_run.get(run_id, ())):
            self._delete(token)

    def drop_settled(self, before: int) -> int:
        """Delete the pauses of no run that were settled before then; how many."""
        rows = [self._rows[token] for token in self._of_run.get("", ())]
        old = [row.token for row in rows if row.settled_at is not None and row.settled_at < before]
        for token in old:
            self._delete(token)
        return len(old)

    def _settled(self, row: PauseRow) -> None:
        self._rows[row.token] = row
        del self._open[row.token]

    def _keep_stray(self, row: PauseRow) -> None:
        """No run's end ever deletes it, so it does not stay for ever."""
        strays = self._strays.setdefault(row.who.tenant_id, deque())
        strays.append(row.token)
        while len(strays) > self._keep_strays:
            self._delete(strays.popleft())

    def _delete(self, token: str) -> None:
        row = self._rows.pop(token, None)
        if row is None:
            return
        self._open.pop(token, None)
        mine = self._of_run[row.run_id]
        del mine[token]
        if not mine:
            del self._of_run[row.run_id]
