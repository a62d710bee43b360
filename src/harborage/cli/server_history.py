"""`harborage replay`, `freeze` and `fork` of a run on a server: the server reads its record, and repeats it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from harborage.cli.server import open_server
from harborage.cli.status import end_or_wait
from harborage.cli.storage import WrongUseError
from harborage.cli.text import masked, printable

if TYPE_CHECKING:
    from harborage.client import RemoteRun
    from harborage.protocol.wire.runs import DifferenceRow, FreezeAnswer, ReplayAnswer

_WAITING: Final = 5


@asynccontextmanager
async def _opened(url: str, run: str) -> AsyncIterator[RemoteRun[Any]]:
    """The run on a server that a person named."""
    async with open_server(url) as server:
        record = await server.find(run)
        yield server.remote.get(record.run_id, who=record.who)


async def replay(url: str, run: str, agent: str, *, is_json: bool) -> int:
    """Replay a run on its server, print how that came out, and return the exit code."""
    async with _opened(url, run) as remote:
        answer = await remote.replay(agent=agent)
    if is_json:
        _print_json(answer)
    else:
        _print(f"run {answer.id}: {_summary(answer)}")
    return 0 if answer.is_same else 1


def _summary(answer: ReplayAnswer) -> str:
    if answer.difference is not UNSET:
        return _told(answer.difference)
    part = "" if answer.is_whole else ", as far as it is recorded"
    return f"same as recorded: steps {answer.steps}, model calls {answer.model_calls}{part}"


def _told(difference: DifferenceRow) -> str:
    diff = "" if difference.diff is UNSET else f"\n{difference.diff}"
    return f"{difference.what}{diff}"


async def freeze(url: str, run: str, agent: str, out: Path, *, force: bool) -> int:
    """Write the test that a server makes of a run, and return the exit code.

    Raises:
        WrongUseError: a file is there already, or the server named one outside the folder; nothing was written.
    """
    async with _opened(url, run) as remote:
        frozen = await remote.freeze(agent=agent)
    for path in _write(frozen, out, force=force):
        _print(str(path))
    return 0


def _write(frozen: FreezeAnswer, out: Path, *, force: bool) -> list[Path]:
    places = [(out / file.path, file.content) for file in frozen.files]
    for place, _ in places:
        if not place.resolve().is_relative_to(out.resolve()):
            raise WrongUseError(f"the server named {place}, which is not in {out}; nothing was written")
        if place.exists() and not force:
            raise WrongUseError(f"{place} exists already; --force overwrites it")
    for place, content in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content, "utf-8")
    return [place for place, _ in places]


async def fork(url: str, run: str, at: int, *, is_json: bool, **options: Any) -> int:
    """Fork a run on its server, wait for the fork's end, show where the two differ, and return the exit code."""
    async with _opened(url, run) as parent:
        forked = await parent.fork(at, **options)
        sys.stderr.write(f"run {forked.id}: fork of {parent.id} at step {at}\n")
        ending = await end_or_wait(forked.finished, forked.pending)
        compared = await parent.compare(forked.id)
    code = _WAITING if ending is None else ending.code
    if is_json:
        told = None if compared.difference is UNSET else _told(compared.difference)
        _print_json(
            {
                "run": forked.id,
                "parent": parent.id,
                "at": at,
                "reason": "waiting" if ending is None else ending.reason,
                "answer": "" if ending is None else ending.answer,
                "exit_code": code,
                "difference": told,
            }
        )
        return code
    _print(compared.diff or "both runs took the same steps")
    if ending is None:
        sys.stderr.write(f"harborage: run {forked.id} waits for an answer; see: harborage pending --url {url}\n")
    elif code:
        sys.stderr.write(f"harborage: {printable(ending.message)}\n")
    return code


def _print(text: str) -> None:
    shown = str(masked(text))
    sys.stdout.write("".join(f"{printable(line)}\n" for line in shown.splitlines()))


def _print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.encode(masked(msgspec.to_builtins(value))).decode() + "\n")
