"""Finding a run in a store by a few characters of its id, and reading its record whole."""

from __future__ import annotations

import builtins
from functools import partial
from typing import Final

from harborage.errors import HarborageError
from harborage.runtime.engines.bodies import read_whole
from harborage.runtime.journal import encode_entry
from harborage.state.runs import RunFilter, RunRecord, RunStore

__all__ = ["RunPrefixError", "RunUnknownError", "all_runs", "find_run", "read_run"]

_PAGE: Final = 500
_SHOWN: Final = 5


class RunUnknownError(HarborageError):
    """No run with that id is kept here. `wanted` is what was asked for."""

    def __init__(self, wanted: str = "", where: str = "") -> None:
        self.wanted = wanted
        place = f" in {where}" if where else ""
        missing = f"no run {wanted!r}{place}" if wanted else f"an empty id names no run{place}" if where else ""
        super().__init__(f"{missing}; 'harborage runs list' shows those there are" if missing else "")


class RunPrefixError(HarborageError):
    """Several runs have an id that begins so. `wanted` is the prefix, `found` the ids."""

    def __init__(self, wanted: str = "", found: tuple[str, ...] = ()) -> None:
        self.wanted = wanted
        self.found = found
        shown = ", ".join(found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        super().__init__(f"{wanted!r} could be any of {len(found)} runs: {shown}{more}; give more of the id")


async def all_runs(store: RunStore, filter: RunFilter) -> builtins.list[RunRecord]:
    """Every kept run that the filter wants, oldest first."""
    found: builtins.list[RunRecord] = []
    while page := await store.list(filter, after=found[-1].run_id if found else "", limit=_PAGE):
        found += page
    return found


async def find_run(store: RunStore, wanted: str, *, where: str = "") -> RunRecord:
    """The run whose id is `wanted` or begins with it; `where` names the store in errors.

    Raises:
        RunUnknownError: there is none.
        RunPrefixError: there are several.
    """
    if not wanted:
        raise RunUnknownError("", where)
    exact = await store.list(RunFilter(run_id=wanted), limit=1)
    if exact:
        return exact[0]
    found = [one for one in await all_runs(store, RunFilter()) if one.run_id.startswith(wanted.upper())]
    if not found:
        raise RunUnknownError(wanted, where)
    if len(found) > 1:
        raise RunPrefixError(wanted, tuple(one.run_id for one in found))
    return found[0]


async def read_run(store: RunStore, run_id: str) -> builtins.list[bytes]:
    """A run's record, its large values put back in their places; empty for an unknown run.

    Raises:
        EntryMissingError, JournalCorruptError: it is damaged; the text names the entry.
    """
    entries = await read_whole(run_id, await store.read(run_id), partial(store.body, run_id))
    return [encode_entry(one) for one in entries]
