"""A list of names by the thousand, in a record store that can list nothing: written in chunks, safe for many processes.

Each chunk belongs to the writer who claimed it, under a number that can be claimed once; only its owner adds to it. So
no writer ever overwrites another's entry, and adding one costs the same however many there are. Entries are for
finding things: one that leads nowhere does no harm, so write it before, or together with, what it leads to.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from harborage import codec
from harborage.concurrency import together
from harborage.ids import new_id
from harborage.state.errors import EventIdConflictError, RecordNotFoundError, StateError
from harborage.state.store import StateRecord, StateStore

if TYPE_CHECKING:
    from harborage.identity import Quadruple

CHUNK: Final = 64
"""How many entries one chunk holds."""

AT_ONCE: Final = 32
"""How many records are read at once."""

Entry: TypeAlias = tuple[str, ...]


class DirectoryCorruptError(StateError):
    """A chunk of a directory cannot be read; the store was changed from outside. The text names the record."""


class _Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """`low` is only in the record that says where the chunks that were not dropped begin."""

    entries: list[Entry] = []
    owner: str = ""
    low: Annotated[int, msgspec.Meta(ge=0)] = 0


class Directory:
    """The entries under one place and kind, in the order in which their chunks were claimed.

    `place` and `kind` name the records: the chunk numbered n is claimed by `kind/n`, which holds its first entry and
    is never written again; its owner keeps the others in `kind/n+`.
    """

    __slots__ = ("_end", "_kind", "_lock", "_mine", "_number", "_place", "_store")

    def __init__(self, store: StateStore, place: Quadruple, kind: str) -> None:
        self._store = store
        self._place = place
        self._kind = kind
        self._lock = asyncio.Lock()
        self._end: int | None = None
        self._number = 0
        self._mine: list[Entry] | None = None

    async def add(self, entry: Entry) -> bool:
        """Keep `entry`; True when it is the first one there ever was.

        Raises:
            StateError: the store refused; the entry may be kept all the same, or not.
        """
        async with self._lock:
            if self._mine is None or len(self._mine) >= CHUNK - 1:
                return await self._claim(entry)
            await self._extend(self._number, [*self._mine, entry])
            self._mine.append(entry)
            return False

    async def entries(self) -> list[Entry]:
        """Every entry that was kept before the call, by any process; entries that were added twice come twice.

        Raises:
            DirectoryCorruptError: a chunk cannot be read.
        """
        return [entry for chunk in await self.chunks() for entry in chunk]

    async def chunks(self) -> list[list[Entry]]:
        """The same, chunk by chunk."""
        chunks: list[list[Entry]] = []
        # Most lists are empty, and asked for all the same.
        lowest, begun = await together(self._load(f"{self._kind}/low"), self._load(f"{self._kind}/0"))
        if lowest is None and begun is None:
            return chunks
        low = 0 if lowest is None else lowest.low
        while True:
            first = low + len(chunks)
            wanted = range(first, first + (AT_ONCE if chunks else 2))
            found = await together(*(self._chunk(number) for number in wanted))
            chunks += [chunk for chunk in found if chunk is not None]
            if None in found:
                if low and not chunks and not await self._is_claimed(low - 1):
                    says = f"record '{self._kind}/low' of a directory names chunk {low}, which is beyond its end"
                    raise DirectoryCorruptError(says)
                return chunks

    async def oldest(self) -> list[Entry]:
        """The entries of the first chunk that was not dropped; empty when there is none."""
        while (found := await self._chunk(await self._low())) is not None and not found:
            await self.drop_oldest()  # a crash had left it half dropped
        return found or []

    async def drop_oldest(self) -> None:
        """Forget the first chunk. An entry that its owner adds to it afterwards is lost, so let it be an old one."""
        low = await self._low()
        if await self._chunk(low) is None:
            return
        # An empty chunk stays in its place, so that no reader takes it for the end of the list.
        kind = f"{self._kind}/{low}"
        await self._store.save(StateRecord(new_id(), self._place, kind, codec.encode(_Chunk())))
        await self._store.delete(self._place, f"{kind}+")
        data = codec.encode(_Chunk(low=low + 1))
        await self._store.save(StateRecord(new_id(), self._place, f"{self._kind}/low", data))

    async def clear(self) -> None:
        """Forget every entry, and that there ever was one. No caller may add to it meanwhile."""
        # Dropped chunks keep their place, so the claims alone say where the list ends, whatever else is damaged.
        end = 0
        while await self._is_claimed(end):
            end += 1
        for number in reversed(range(end)):  # from the end, so that after a crash the next call finds the others
            await self._store.delete(self._place, f"{self._kind}/{number}+")
            await self._store.delete(self._place, f"{self._kind}/{number}")
        await self._store.delete(self._place, f"{self._kind}/low")
        self._end, self._number, self._mine = None, 0, None

    async def _claim(self, entry: Entry) -> bool:
        """Begin a chunk of our own with `entry`, behind all others."""
        number = await self._find_end()
        while True:
            kind = f"{self._kind}/{number}"
            # The id makes the claim differ from another writer's of the same entry, which would count as a repetition.
            data = codec.encode(_Chunk(entries=[entry], owner=new_id()))
            try:
                await self._store.save(StateRecord(f"{kind}/{self._place.run_id}", self._place, kind, data))
            except EventIdConflictError:
                number += 1
                continue
            self._end, self._number, self._mine = number + 1, number, []
            return number == 0

    async def _find_end(self) -> int:
        """The first number that is not claimed, or one that was free a moment ago."""
        low = free = self._end if self._end is not None else await self._low()
        step = 1
        while await self._load(f"{self._kind}/{free}") is not None:
            low = free
            free, step = free + step, step * 2
        if step > 2:
            # Somewhere in (low, free] the claims end.
            while free - low > 1:
                middle = (low + free) // 2
                if await self._load(f"{self._kind}/{middle}") is None:
                    free = middle
                else:
                    low = middle
        return free

    async def _extend(self, number: int, entries: list[Entry]) -> None:
        data = codec.encode(_Chunk(entries=entries))
        await self._store.save(StateRecord(new_id(), self._place, f"{self._kind}/{number}+", data))

    async def _chunk(self, number: int) -> list[Entry] | None:
        first, more = await together(self._load(f"{self._kind}/{number}"), self._load(f"{self._kind}/{number}+"))
        return None if first is None else [*first.entries, *(more.entries if more is not None else ())]

    async def _low(self) -> int:
        found = await self._load(f"{self._kind}/low")
        return 0 if found is None else found.low

    async def _is_claimed(self, number: int) -> bool:
        """Whether there is such a chunk, readable or not."""
        try:
            await self._store.load(self._place, f"{self._kind}/{number}")
        except RecordNotFoundError:
            return False
        return True

    async def _load(self, kind: str) -> _Chunk | None:
        try:
            record = await self._store.load(self._place, kind)
        except RecordNotFoundError:
            return None
        try:
            found: _Chunk = codec.decode(record.data, _Chunk)
        except msgspec.DecodeError as error:
            raise DirectoryCorruptError(f"record {kind!r} of a directory cannot be read: {error}") from error
        return found
