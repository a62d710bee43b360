"""Large values of a record, kept once by their content: an entry holds the digest in place of the value.

Pure. Whoever writes entries takes large values out, whoever reads them puts them back; in between nobody sees it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from harborage import codec
from harborage.runtime.durable.journal import Entry, decode_entries, decode_entry, encode_entry, is_outdated
from harborage.store.errors import EntryDamagedError

LARGE: Final = 8 * 1024
"""Bytes of JSON from which a value is kept apart from its entry."""

_MARK: Final = b'{"$body":"'
_END: Final = b'"}'
_VALUES: Final = ("request", "payload", "result", "arrivals", "carry", "woken", "finish", "notes")


def taken_out(entries: Sequence[bytes], run_id: str) -> tuple[Sequence[bytes], Mapping[str, bytes]]:
    """The entries with their large values taken out, and those values by SHA-256 in hex."""
    if max(map(len, entries), default=0) <= LARGE:
        return entries, {}
    bodies: dict[str, bytes] = {}
    return [_slim(entry, run_id, bodies) for entry in entries], bodies


def _slim(data: bytes, run_id: str, bodies: dict[str, bytes]) -> bytes:
    if len(data) <= LARGE:
        return data
    entry = decode_entry(data, run_id, -1)
    slim: dict[str, msgspec.Raw] = {}
    for field, value in _values(entry):
        if len(value) > LARGE:
            digest = hashlib.sha256(value).hexdigest()
            bodies[digest] = value
            slim[field] = msgspec.Raw(_MARK + digest.encode() + _END)
    return encode_entry(msgspec.structs.replace(entry, **slim)) if slim else data


def digests_of(entry: Entry) -> dict[str, str]:
    """Which fields of an entry hold a digest in place of their value."""
    return {
        field: value[len(_MARK) : -len(_END)].decode() for field, value in _values(entry) if value.startswith(_MARK)
    }


def filled(entry: Entry, bodies: Mapping[str, bytes]) -> Entry:
    """The entry with its values put back; `bodies` are by digest."""
    found = {field: msgspec.Raw(bodies[digest]) for field, digest in digests_of(entry).items()}
    return msgspec.structs.replace(entry, **found) if found else entry


async def with_bodies(
    entries: Sequence[Entry], fetch: Callable[[str], Awaitable[bytes]], *, first: int = 0
) -> Sequence[Entry]:
    """The entries whole, the first of which has number `first`; each body is fetched once.

    Raises:
        EntryDamagedError: a body is not there, or not what was kept; it names the entry, too.
    """
    wanted = {digest: index for index, entry in enumerate(entries, first) for digest in digests_of(entry).values()}
    if not wanted:
        return entries
    found = {digest: await _fetched(digest, index, fetch) for digest, index in wanted.items()}
    return [filled(entry, found) for entry in entries]


async def _fetched(digest: str, index: int, fetch: Callable[[str], Awaitable[bytes]]) -> bytes:
    try:
        return await fetch(digest)
    except EntryDamagedError as error:
        raise EntryDamagedError(error.run_id, index, digest) from error


async def read_whole(
    run_id: str, stored: Sequence[bytes], fetch: Callable[[str], Awaitable[bytes]], *, first: int = 0
) -> Sequence[Entry]:
    """A run's entries from number `first` on, whole. One of an older format gets its bodies back before it is brought
    up to date, so that no upcast meets a digest in place of a value.

    Raises:
        JournalCorruptError: one of them is none.
        EntryDamagedError: what `fetch` raises for a body that is not there.
    """
    if any(map(is_outdated, stored)):
        stored = [await _refilled(data, fetch) if is_outdated(data) else data for data in stored]
    entries = decode_entries(stored, run_id, first)
    if not any(_MARK in data for data in stored):
        return entries
    return await with_bodies(entries, fetch, first=first)


async def _refilled(data: bytes, fetch: Callable[[str], Awaitable[bytes]]) -> bytes:
    """An entry of an older format with its bodies in their places."""
    members = msgspec.json.decode(data)
    for field in _VALUES:
        value = members.get(field)
        if isinstance(value, dict) and value.keys() == {"$body"}:
            members[field] = msgspec.Raw(await fetch(value["$body"]))
    return codec.encode(members)


def _values(entry: Entry) -> list[tuple[str, bytes]]:
    """The values inside an entry, as the bytes they were recorded as."""
    return [
        (field, bytes(value))
        for field in _VALUES
        if isinstance(value := getattr(entry, field, None), msgspec.Raw) and value
    ]
