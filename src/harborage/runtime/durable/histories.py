"""What a journal's entries mean for their run: the history that counts, and the steps that another run may begin with.

Pure: entries in, values out. Every host that keeps its runs in a journal reads it through this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from harborage import codec
from harborage.planner import Finish
from harborage.runtime.durable.journal import (
    Ended,
    Entry,
    JournalCorruptError,
    Patched,
    Rolled,
    Started,
    decode_entries,
    encode_entry,
)
from harborage.runtime.loop.seam import RunRequest


class History(NamedTuple):
    """One history of a run: what it began with, what is recorded of it, and how many rollovers came before."""

    request: RunRequest
    entries: Sequence[Entry]
    number: int


def history_prefix(number: int) -> str:
    """What the positions of a run's history begin with; nothing for the first one."""
    return f"{number}~" if number else ""


def read_value(recorded: msgspec.Raw, type: Any, where: str) -> Any:
    """A recorded value of this type; `where` is how the error names its place.

    Raises:
        JournalCorruptError: it is of another shape.
    """
    try:
        return codec.decode(bytes(recorded), type)
    except msgspec.ValidationError as error:
        raise JournalCorruptError(f"{where}: {error}") from error


def request_of(run_id: str, entries: Sequence[Entry]) -> RunRequest:
    """What the run was started with.

    Raises:
        JournalCorruptError: its first entry does not say.
    """
    if not entries or not isinstance(entries[0], Started):
        found = type(entries[0]).__name__ if entries else "nothing"
        raise JournalCorruptError(f"run {run_id}, entry 0: a run begins with `started`, not {found}")
    request: RunRequest = read_value(entries[0].request, RunRequest, f"run {run_id}, entry 0")
    return request


def finish_of(last: Entry, run_id: str) -> Finish | None:
    """What a run returned, by its last entry; None when it failed.

    Raises:
        JournalCorruptError: this is no end of a run.
    """
    if not isinstance(last, Ended):
        raise JournalCorruptError(f"run {run_id}: it has ended, but its last entry is {type(last).__name__}")
    if last.finish is None:
        return None
    finish: Finish = read_value(last.finish, Finish, f"run {run_id}, its last entry")
    return finish


def latest_history(request: RunRequest, entries: Sequence[Entry]) -> History:
    """The history of a run that counts: what came before its last rollover does not.

    Raises:
        JournalCorruptError: what the rollover carried cannot be read.
    """
    rolled = [index for index, entry in enumerate(entries) if isinstance(entry, Rolled)]
    if not rolled:
        return History(request, entries, 0)
    last = entries[rolled[-1]]
    assert isinstance(last, Rolled)
    carried = read_value(last.carry, RunRequest, f"run {request.who.run_id}, entry {rolled[-1]}")
    return History(carried, entries[rolled[-1] + 1 :], len(rolled))


def steps_of(seed: Sequence[bytes], run_id: str) -> list[bytes]:
    """The steps of another run's last history, as those of a first one, for the run `run_id` to begin with.

    What that run was asked for, and how it ended, is its own affair.

    Raises:
        JournalCorruptError: the seed holds something that is no entry.
    """
    if not seed:
        return []
    entries = decode_entries(seed, run_id)
    prefix = history_prefix(sum(isinstance(entry, Rolled) for entry in entries))
    steps: list[bytes] = []
    for data, entry in zip(seed, entries, strict=True):
        match entry:
            case Rolled():
                steps.clear()
            case Started() | Ended():
                pass
            case Patched():
                steps.append(data)
            case _ if entry.position.startswith(prefix):
                moved = msgspec.structs.replace(entry, position=entry.position.removeprefix(prefix))
                steps.append(encode_entry(moved) if prefix else data)
            case _:
                pass  # a straggler of an earlier history
    return steps
