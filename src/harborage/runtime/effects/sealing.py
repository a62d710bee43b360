"""Texts that a peer gave, to be given back as they are: sealed where they are recorded, so that no reader of a journal,
an export or a log learns them.

The key is in the record store, so that every process over the same store opens what another one has sealed.
"""

from __future__ import annotations

import asyncio
import base64
import os
from typing import TYPE_CHECKING, Final

from harborage.errors import HarborageError
from harborage.identity import Quadruple
from harborage.ids import new_id

if TYPE_CHECKING:
    from harborage.state.store import StateStore

_PLACE: Final = Quadruple("harborage", "runtime", "sealing")
_KIND: Final = "runtime.sealing_keys"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class SealBrokenError(HarborageError):
    """A sealed text cannot be opened: its key is gone, or it was changed."""


class Seals:
    """Seals texts with a key of the store, which is made when it is first needed."""

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._keys: dict[str, bytes] = {}
        self._lock = asyncio.Lock()

    async def seal(self, text: str) -> str:
        """Return a text sealed."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # loaded where there is something to seal

        async with self._lock:
            if not self._keys:
                await self._read()
            if not self._keys:
                await self._add()
        key_id, key = next(iter(self._keys.items()))
        nonce = os.urandom(_NONCE_BYTES)
        sealed = AESGCM(key).encrypt(nonce, text.encode("utf-8", "surrogatepass"), key_id.encode())
        return f"{key_id}.{base64.b64encode(nonce + sealed).decode()}"

    async def open(self, sealed: str) -> str:
        """Return the text that was sealed.

        Raises:
            SealBrokenError: it cannot be opened.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key_id, _, body = sealed.partition(".")
        if key_id not in self._keys:
            await self._read()
        key = self._keys.get(key_id)
        if key is None:
            raise SealBrokenError("what a peer gave to be kept cannot be opened here: its key is not in this store")
        try:
            raw = base64.b64decode(body, validate=True)
            opened = AESGCM(key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], key_id.encode())
        except (InvalidTag, ValueError) as error:
            raise SealBrokenError("what a peer gave to be kept was changed, and cannot be opened") from error
        return opened.decode("utf-8", "surrogatepass")

    async def _read(self) -> None:
        from harborage.state.directory import Directory

        for entry in await Directory(self._state, _PLACE, _KIND).entries():
            self._keys.setdefault(entry[0], bytes.fromhex(entry[1]))

    async def _add(self) -> None:
        from harborage.state.directory import Directory

        key_id, key = new_id(), os.urandom(_KEY_BYTES)
        await Directory(self._state, _PLACE, _KIND).add((key_id, key.hex()))
        self._keys[key_id] = key
