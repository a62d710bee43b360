"""The runs of a store in memory by what they belong to, so that no list looks for them among all."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, TypeVar

from harborage.identity import Identity

if TYPE_CHECKING:
    from harborage.store.queries import RunQuery
    from harborage.store.rows import RunRow

K = TypeVar("K", Identity, str)


class RunIndex:
    """The ids of the runs of each session, parent and root, oldest first."""

    def __init__(self) -> None:
        # Lists, since most hold one run, and are shortened at their beginning: the oldest run is deleted first.
        self._of_session: dict[Identity, list[str]] = {}
        self._of_parent: dict[str, list[str]] = {}
        self._of_root: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._of_session) + len(self._of_parent) + len(self._of_root)

    def add(self, row: RunRow) -> None:
        """Enter a run that was started."""
        self._of_session.setdefault(row.who, []).append(row.run_id)
        if row.parent:
            self._of_parent.setdefault(row.parent, []).append(row.run_id)
        if row.root:
            self._of_root.setdefault(row.root, []).append(row.run_id)

    def remove(self, row: RunRow) -> None:
        """Strike out a run that is deleted."""
        _remove(self._of_session, row.who, row.run_id)
        if row.parent:
            _remove(self._of_parent, row.parent, row.run_id)
        if row.root:
            _remove(self._of_root, row.root, row.run_id)

    def of_session(self, who: Identity) -> Collection[str]:
        """The runs of a session."""
        return self._of_session.get(who, ())

    def of(self, query: RunQuery) -> Iterator[Collection[str]]:
        """The runs of the session, the parent and the root that a query names; each holds all that it may find."""
        if query.tenant and query.user and query.session:
            yield self._of_session.get(Identity(query.tenant, query.user, query.session), ())
        if query.parent:
            yield self._of_parent.get(query.parent, ())
        if query.parents:
            yield [run_id for parent in dict.fromkeys(query.parents) for run_id in self._of_parent.get(parent, ())]
        if query.root:
            yield self._of_root.get(query.root, ())


def _remove(index: dict[K, list[str]], key: K, run_id: str) -> None:
    runs = index[key]
    runs.remove(run_id)
    if not runs:
        del index[key]
