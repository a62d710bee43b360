"""The keys with which a server signs what it gives out and takes back later: links to artifacts, questions in a chat.

They are in the record store, so every server over the same store accepts what another one has signed, also after a
restart. No key is ever replaced: a server that finds none that is young enough adds one, and which key has signed
stands beside the signature.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from harborage.events import unix_ns
from harborage.identity import Quadruple
from harborage.ids import new_id
from harborage.state.directory import Directory

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.state import StateStore

SIGNS_FOR: Final = timedelta(days=7)
"""How long a key signs."""

READS_FOR: Final = timedelta(days=15)
"""How long what it has signed is accepted: the longest that anything signed is good for after its last day, and one
more day for clocks that differ."""

_PLACE: Final = Quadruple("harborage", "server", "signing")
_KIND: Final = "server.signing_keys"
_KEY_BYTES: Final = 32
_LOOK_AGAIN_S: Final = 1.0


class Key(NamedTuple):
    """A key and when it was made, in nanoseconds since 1970."""

    id: str
    made: int
    secret: bytes

    def sign(self, what: bytes, purpose: str) -> bytes:
        """Return the signature of `what`, which is good for this purpose alone."""
        return hmac.digest(self.secret, purpose.encode() + b"\x00" + what, hashlib.sha256)

    def has_signed(self, what: bytes, purpose: str, signature: bytes) -> bool:
        """Whether a signature is this key's."""
        return hmac.compare_digest(signature, self.sign(what, purpose))


class SigningKeys:
    """The keys of all servers over one record store, as far as this one has read them.

    `state` returns the store, which is another one once the served code was replaced.
    """

    def __init__(self, state: Callable[[], StateStore], clock: Timers) -> None:
        self._state = state
        self._clock = clock
        self._keys: dict[str, Key] = {}
        self._lock = asyncio.Lock()
        self._looked_at = -_LOOK_AGAIN_S

    async def current(self) -> Key:
        """Return the key that signs now.

        Raises:
            StateError: the store refused.
        """
        found = self._youngest()
        if found is not None:
            return found
        async with self._lock:
            found = self._youngest()
            if found is None:
                await self._read()
                found = self._youngest()
            return await self._add() if found is None else found

    async def find(self, id: str) -> Key | None:
        """Return the key of this id; None where there is none, or it is too old.

        One that is not known yet is looked for once a second, so that made-up ids cost the store nothing.

        Raises:
            StateError: the store refused.
        """
        if id not in self._keys:
            async with self._lock:
                if id not in self._keys and self._clock.monotonic() - self._looked_at >= _LOOK_AGAIN_S:
                    await self._read()
        found = self._keys.get(id)
        return None if found is None or self._age(found) > READS_FOR else found

    def _age(self, key: Key) -> timedelta:
        return timedelta(microseconds=(unix_ns(self._clock.now()) - key.made) / 1_000)

    def _youngest(self) -> Key | None:
        found = max(self._keys.values(), key=lambda key: key.made, default=None)
        return None if found is None or self._age(found) > SIGNS_FOR else found

    async def _read(self) -> None:
        self._looked_at = self._clock.monotonic()
        for entry in await Directory(self._state(), _PLACE, _KIND).entries():
            try:
                key_id, made, secret = entry
                key = Key(key_id, int(made), bytes.fromhex(secret))
            except ValueError:
                continue  # the entry of a later version
            self._keys[key.id] = key

    async def _add(self) -> Key:
        key = Key(new_id(), unix_ns(self._clock.now()), secrets.token_bytes(_KEY_BYTES))
        await Directory(self._state(), _PLACE, _KIND).add((key.id, str(key.made), key.secret.hex()))
        self._keys[key.id] = key
        return key
