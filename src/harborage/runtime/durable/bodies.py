"""Large values of a record, kept once by their content: an entry holds the digest in place of the value.

Pure. `extract_bodies` takes large values out before entries are written; `read_whole` puts them back.
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
"""A value of more bytes of JSON is stored apart from its entry."""

_MARK: Final = b'{"$body":"'
_END: Final = b'"}'
_VALUES: Final = ("request", "payload", "result", "arrivals", "carry", "woken", "finish", "notes")


def extract_bodies(entries: Sequence[bytes], run_id: str) -> tuple[Sequence[bytes], Mapping[str, bytes]]:
    """Return the entries without their large values, and those values by SHA-256 in hex."""
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
    """Return the digests of an entry that replace values, by field."""
    return {
        field: value[len(_MARK) : -len(_END)].decode() for field, value in _values(entry) if value.startswith(_MARK)
    }


def insert_bodies(entry: Entry, bodies: Mapping[str, bytes]) -> Entry:
    """Return the entry with its values; `bodies` are by digest."""
    found = {field: msgspec.Raw(bodies[digest]) for field, digest in digests_of(entry).items()}
    return msgspec.structs.replace(entry, **found) if found else entry


async def fetch_bodies(
    entries: Sequence[Entry], fetch: Callable[[str], Awaitable[bytes]], *, first: int = 0
) -> Sequence[Entry]:
    """Return the entries with their values; the first has number `first`, and each body is fetched once.

    Raises:
        EntryDamagedError: a body is missing, or is not the stored one; it names the entry, too.
    """
    wanted = {digest: index for index, entry in enumerate(entries, first) for digest in digests_of(entry).values()}
    if not wanted:
        return entries
    found = {digest: await _fetch_body(digest, index, fetch) for digest, index in wanted.items()}
    return [insert_bodies(entry, found) for entry in entries]


async def _fetch_body(digest: str, index: int, fetch: Callable[[str], Awaitable[bytes]]) -> bytes:
    try:
        return await fetch(digest)
    except EntryDamagedError as error:
        raise EntryDamagedError(error.run_id, index, digest) from error


async def read_whole(
    run_id: str, stored: Sequence[bytes], fetch: Callable[[str], Awaitable[bytes]], *, first: int = 0
) -> Sequence[Entry]:
    """Return a run's entries from number `first` on, with their values.

    An entry of an older format gets its bodies before it is upgraded, so that no upcast reads a digest as a value.

    Raises:
        JournalCorruptError: one of them is no entry.
        EntryDamagedError: `fetch` found no body.
    """
    if any(map(is_outdated, stored)):
        stored = [await _insert_in_json(data, fetch) if is_outdated(data) else data for data in stored]
    entries = decode_entries(stored, run_id, first)
    if not any(_MARK in data for data in stored):
        return entries
    return await fetch_bodies(entries, fetch, first=first)


async def _insert_in_json(data: bytes, fetch: Callable[[str], Awaitable[bytes]]) -> bytes:
    """Return an entry of an older format with its bodies inserted."""
    members = msgspec.json.decode(data)
    for field in _VALUES:
        value = members.get(field)
        if isinstance(value, dict) and value.keys() == {"$body"}:
            members[field] = msgspec.Raw(await fetch(value["$body"]))
    return codec.encode(members)


def _values(entry: Entry) -> list[tuple[str, bytes]]:
    """Return the values inside an entry, as recorded bytes."""
    return [
        (field, bytes(value))
        for field in _VALUES
        if isinstance(value := getattr(entry, field, None), msgspec.Raw) and value
    ]
