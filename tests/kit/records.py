"""The record of one run in a list, for what writes records without a host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.runtime.durable.journal import decode_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harborage.runtime.durable.journal import Entry


class ListRecord:
    """Keeps the entries of one run, with an await for each batch."""

    append_now = write = None

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    async def append(self, run_id: str, entries: Sequence[bytes]) -> None:
        self.kept += entries

    def entries(self) -> list[Entry]:
        """What was kept, read."""
        return decode_entries(self.kept, "r")
