"""The pauses that one process remembers: the open ones, and the last settled ones of each tenant.

It also holds who wants to be woken when a pause is settled. It knows no store, no bus and no clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from harborage.runtime.pauses.model import Pause

if TYPE_CHECKING:
    from harborage.identity import Quadruple

__all__ = ["RESOLVED_PER_TENANT", "Ledger"]

RESOLVED_PER_TENANT = 1_000

Wake = Callable[[Pause], None]

logger = logging.getLogger(__name__)


def _nothing() -> None:
    """Calls nothing off: the wake-up has happened."""


class Ledger:
    """Pauses by token and by tenant. A settled one stays readable until `retained` later ones of its tenant are."""

    def __init__(self, retained: int = RESOLVED_PER_TENANT) -> None:
        self._retained = retained
        self._pauses: dict[str, Pause] = {}
        self._open: dict[str, dict[str, None]] = {}
        self._resolved: dict[str, dict[str, None]] = {}
        self._keys: dict[tuple[Quadruple, str], str] = {}
        self._trajectories: dict[str, bytes] = {}
        self._wakers: dict[str, list[Wake]] = {}

    def get(self, token: str) -> Pause | None:
        """The pause with this token, if it is remembered."""
        return self._pauses.get(token)

    def by_key(self, owner: Quadruple, key: str) -> Pause | None:
        """The pause that this owner asked for under `key`, if it is remembered."""
        token = self._keys.get((owner, key))
        return None if token is None else self._pauses.get(token)

    def trajectory(self, token: str) -> bytes | None:
        """The serialised trajectory kept for an open pause."""
        return self._trajectories.get(token)

    def of_tenant(self, tenant: str) -> Iterator[Pause]:
        """Every remembered pause of a tenant."""
        for tokens in (self._open.get(tenant, {}), self._resolved.get(tenant, {})):
            for token in tokens:
                yield self._pauses[token]

    def tenants(self) -> tuple[str, ...]:
        """The tenants that have an open pause here."""
        return tuple(self._open)

    def has_resolved(self, tenant: str) -> bool:
        """Whether any settled pause of the tenant is remembered."""
        return bool(self._resolved.get(tenant))

    def open(self, pause: Pause, trajectory: bytes | None) -> None:
        """Remember a pause that was just asked for, and its trajectory where nobody else keeps it."""
        self._pauses[pause.token] = pause
        self._open.setdefault(pause.identity.tenant_id, {})[pause.token] = None
        if pause.key:
            self._keys[pause.identity, pause.key] = pause.token
        if trajectory is not None:
            self._trajectories[pause.token] = trajectory

    def settle(self, pause: Pause) -> None:
        """Remember a pause as settled, and forget the oldest settled one when there are too many."""
        tenant = pause.identity.tenant_id
        self._close(pause)
        self._pauses[pause.token] = pause.without_trajectory()
        if pause.key:
            self._keys[pause.identity, pause.key] = pause.token
        resolved = self._resolved.setdefault(tenant, {})
        resolved[pause.token] = None
        while len(resolved) > self._retained:
            oldest = next(iter(resolved))
            del resolved[oldest]
            self._forget(oldest)

    def drop(self, token: str) -> None:
        """Forget an open pause that turned out to be gone."""
        pause = self._pauses.get(token)
        if pause is not None and pause.is_paused:
            self._close(pause)
            self._forget(token)

    def wake(self, pause: Pause) -> None:
        """Tell everybody who waits for this pause, each once. One that fails is logged and keeps nobody from waking."""
        for wake in self._wakers.pop(pause.token, ()):
            _call(wake, pause)

    def listen(self, token: str, wake: Wake) -> Callable[[], None]:
        """Have `wake` called when the pause is settled, at once if it was; the returned function calls it off."""
        pause = self._pauses.get(token)
        if pause is not None and not pause.is_paused:
            _call(wake, pause)
            return _nothing
        # A function of its own for each listener, so that calling one off never takes another equal one along.
        waker: Wake = lambda settled: wake(settled)  # noqa: E731, PLW0108
        self._wakers.setdefault(token, []).append(waker)
        return lambda: self._unlisten(token, waker)

    def _unlisten(self, token: str, waker: Wake) -> None:
        wakers = self._wakers.get(token)
        if wakers is None or waker not in wakers:
            return
        wakers.remove(waker)
        if not wakers:
            del self._wakers[token]

    def _close(self, pause: Pause) -> None:
        self._trajectories.pop(pause.token, None)
        tenant = pause.identity.tenant_id
        tokens = self._open.get(tenant)
        if tokens is not None:
            tokens.pop(pause.token, None)
            if not tokens:
                del self._open[tenant]

    def _forget(self, token: str) -> None:
        pause = self._pauses.pop(token)
        if self._keys.get((pause.identity, pause.key)) == token:
            del self._keys[pause.identity, pause.key]


def _call(wake: Wake, pause: Pause) -> None:
    try:
        wake(pause)
    except Exception:
        logger.exception("pause %s: a wake-up failed", pause.token)
