"""Finds the run that a person named: by its handle, its id, a part of either, or `last`.

What names no run or several is an error that says which ones may be meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from harborage.cli.handles import LAST, as_read, handles, similar
from harborage.cli.run_list import agent_name
from harborage.cli.status import root_runs, status_of
from harborage.cli.storage import WrongUseError
from harborage.cli.text import age
from harborage.clock import SYSTEM_CLOCK
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.history import all_runs, find_run
from harborage.runtime.history.reading import is_part
from harborage.store import RunQuery
from harborage.store.times import moment

if TYPE_CHECKING:
    from harborage.store import RunRow, Store

_SHOWN: Final = 5


class AmbiguousRunError(WrongUseError):
    """Several runs have the name; the text lists them. `found` are their ids."""

    def __init__(self, wanted: str = "", candidates: Sequence[str] = (), found: Sequence[str] = ()) -> None:
        self.wanted = wanted
        self.found = tuple(found)
        more = f" and {len(found) - len(candidates)} more" if len(found) > len(candidates) else ""
        super().__init__(f"{wanted!r} could be any of {len(found)} runs: {'; '.join(candidates)}{more}")


async def find_named_run(store: Store, wanted: str, *, where: str, is_unfinished: bool = False) -> RunRow:
    """Return the run that `wanted` names; `where` names the store in errors.

    A handle may be in small letters, with `o` for 0 and `i` or `l` for 1. `last` is the newest run that has no parent.
    Of several runs of a name `is_unfinished` takes the started one that has not ended.

    Raises:
        RunNotFoundError: there is none; the text names those with similar handles.
        AmbiguousRunError: there are several; the text lists them.
    """
    exact = (await store.runs(RunQuery(run_ids=(wanted,), limit=1))).rows if wanted else ()
    if exact:
        return exact[0]
    rows = await all_runs(store, RunQuery()) if wanted else []
    chosen = choose_run(rows, wanted, where=where, is_unfinished=is_unfinished)
    return await find_run(store, wanted, where=where) if chosen is None else chosen  # it says where it looked


def choose_run(rows: Sequence[RunRow], wanted: str, *, where: str, is_unfinished: bool = False) -> RunRow | None:
    """Return the one of `rows`, oldest first, that `wanted` names; None when it is not even like one of them.

    Raises:
        RunNotFoundError: there is none; the text names those with similar handles.
        AmbiguousRunError: there are several; the text lists them.
    """
    if wanted.lower() == LAST and rows:
        return next((one for one in reversed(rows) if not one.parent), rows[-1])
    typed = {wanted, as_read(wanted)}
    found = [one for one in rows if any(is_part(text, one.run_id) for text in typed)]
    if not found:
        _refuse_similar(wanted, rows, where)
        return None
    if is_unfinished and len(found) > 1:
        started = root_runs([one for one in found if not one.status.is_final])
        found = started if len(started) == 1 else found
    if len(found) > 1:
        names = handles(one.run_id for one in rows)
        newest = found[::-1][:_SHOWN]
        raise AmbiguousRunError(wanted, [_describe(one, names) for one in newest], [one.run_id for one in found])
    return found[0]


def _refuse_similar(wanted: str, rows: Sequence[RunRow], where: str) -> None:
    """Say that there is no such run, and which ones have a similar handle, if there are any.

    Raises:
        RunNotFoundError: there are some.
    """
    names = handles(one.run_id for one in rows)
    near = similar(wanted, names.values()) if wanted else []
    if not near:
        return
    meant = "; ".join(_describe(one, names) for name in near for one in rows if names[one.run_id] == name)
    raise RunNotFoundError(wanted, message=f"no run {wanted!r} in {where}; did you mean {meant}?")


def _describe(row: RunRow, names: dict[str, str]) -> str:
    ago = age(SYSTEM_CLOCK.now() - moment(row.created_at))
    return f"{names[row.run_id]} ({agent_name(row)}, {status_of(row)}, {ago} ago)"
