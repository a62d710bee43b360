"""The artifacts of a run's session as its planner is shown them: right at every step, listed only when they may differ.

A store that tracks its changes is asked for a number at each step; one that others may change as well is listed again
after a second, too. Every other store is listed at each step.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias

from harborage.artifacts import ArtifactScope, ArtifactStore, TracksChanges
from harborage.errors import error_reason
from harborage.planner import ArtifactManifestEntry, build_artifact_manifest
from harborage.state.errors import DatabaseError

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.identity import Quadruple

Manifest: TypeAlias = tuple[ArtifactManifestEntry, ...]

_STALE_S: Final = 1.0


def tracker_of(store: ArtifactStore) -> TracksChanges | None:
    """What says whether a listing of `store` is still right; None for one that does not. It costs more than a step of a
    run does: ask once."""
    return store if isinstance(store, TracksChanges) else None


class SessionArtifacts:
    """What the session of one run holds, newest first. `tracker` is `tracker_of` its store."""

    __slots__ = ("_clock", "_count", "_listed_at", "_logger", "_scope", "_shown", "_store", "_tracker", "_who")

    def __init__(
        self,
        store: ArtifactStore,
        who: Quadruple,
        *,
        tracker: TracksChanges | None,
        clock: Timers,
        logger: logging.Logger,
    ) -> None:
        self._store = store
        self._tracker = tracker
        self._who = who
        self._scope = ArtifactScope(who.tenant_id, who.user_id, who.session_id)
        self._clock = clock
        self._logger = logger
        self._shown: Manifest = ()
        self._count: int | None = None
        self._listed_at = 0.0

    async def current(self) -> Manifest:
        """The artifacts as of now; the very same tuple as long as none came or went. Without any when listing fails.

        Raises:
            DatabaseError: the database cannot be read; the step is to be taken again.
        """
        known = self.unchanged()
        if known is not None:
            return known
        count = None if self._tracker is None else self._tracker.changes(self._scope)
        try:
            shown = tuple(build_artifact_manifest(await self._store.list(self._scope)) or ())
        except DatabaseError:
            raise
        except Exception as error:  # noqa: BLE001 - a planner can decide without the list, and the log says why it must
            self._logger.warning(
                "run %s: the session's artifacts are not listed: %s", self._who.run_id, error_reason(error)
            )
            self._shown, self._count = (), None
            return self._shown
        self._count, self._listed_at = count, self._clock.monotonic()
        if shown != self._shown:
            self._shown = shown
        return self._shown

    def unchanged(self) -> Manifest | None:
        """The artifacts as they were listed last, where the store says that none came or went since; else None."""
        tracker = self._tracker
        if tracker is None or self._count is None or tracker.changes(self._scope) != self._count:
            return None
        is_stale = tracker.is_shared and self._clock.monotonic() - self._listed_at >= _STALE_S
        return None if is_stale else self._shown


def recorded_of(known: Manifest, shown: Manifest) -> tuple[Manifest | None, Manifest]:
    """What a record that has `known` needs to have `shown`: the whole list or None, and the new ones before it."""
    if shown is known or shown == known:
        return None, ()
    fresh = len(shown) - len(known)
    if known and fresh > 0 and shown[fresh:] == known:
        return None, shown[:fresh]
    return shown, ()
