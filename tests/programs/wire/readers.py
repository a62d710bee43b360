"""Clients that follow a run at whichever server answers: that of `harborage.client`, and a plain reader of streams."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import httpx2
import msgspec

from harborage.client import Patience, connect
from tests.kit.sse import Frame, parse_frame

if TYPE_CHECKING:
    from harborage.identity import Identity

ENDS: Final = frozenset({"task.completed", "task.failed", "task.cancelled"})
_PATIENCE: Final = Patience(first_pause=0.05, longest_pause=0.5, total=60, stream_idle=20)
_PAUSE_S: Final = 0.1


class Followed(msgspec.Struct, kw_only=True):
    """What a client got of its run: the numbers of its events in order, and how it went."""

    run_id: str = ""
    last_id: int = 0
    numbers: list[int] = []
    types: list[str] = []
    connections: int = 0
    broken: list[str] = []


async def follow_with_client(urls: Sequence[str], token: str, who: Identity, goal: str, got: Followed) -> None:
    """Start a run and follow it with the client of this package, which knows all servers."""
    async with connect(urls, token=token, patience=_PATIENCE) as remote:
        run = await remote.start(goal, who=who, key=f"run-{who.user_id}")
        got.run_id = run.id
        async for event in run.events():
            got.numbers.append(event.sequence)
            got.types.append(str(event.type))
        await run.finished()


async def follow_plainly(urls: Sequence[str], token: str, who: Identity, goal: str, got: Followed) -> None:
    """The same by requests of one's own: a stream that breaks is opened at the next server, behind its last id."""
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(20.0)) as client:
        at = await _begin(client, urls, who, goal, got)
        while not (got.types and got.types[-1] in ENDS):
            got.connections += 1
            try:
                await _read(client, urls[at % len(urls)], got)
            except httpx2.HTTPError:
                at += 1
                await asyncio.sleep(_PAUSE_S)


async def _begin(client: httpx2.AsyncClient, urls: Sequence[str], who: Identity, goal: str, got: Followed) -> int:
    body = {"query": goal, "idempotency_key": f"run-{who.user_id}"}
    at = 0
    while True:
        try:
            answer = await client.post(f"{urls[at % len(urls)]}/v1/control/start", json=body)
            answer.raise_for_status()
        except httpx2.HTTPError:
            at += 1
            await asyncio.sleep(_PAUSE_S)
            continue
        got.run_id = answer.json()["task_id"]
        return at


async def _read(client: httpx2.AsyncClient, url: str, got: Followed) -> None:
    params, headers = {"run": got.run_id, "children": "1"}, {"last-event-id": str(got.last_id)}
    async with client.stream("GET", f"{url}/v1/events", params=params, headers=headers) as answer:
        answer.raise_for_status()
        numbers, rest = [], b""
        async for piece in answer.aiter_raw():
            *whole, rest = (rest + piece).split(b"\n\n")
            for frame in map(parse_frame, whole):
                got.last_id = got.last_id if frame.id is None else frame.id
                if frame.event:
                    numbers.append(frame.sequence)
                    _take(frame, got)
            if numbers != sorted(set(numbers)):
                got.broken.append(f"numbers of one connection do not grow: {numbers}")
            if got.types and got.types[-1] in ENDS:
                break


def _take(frame: Frame, got: Followed) -> None:
    got.numbers.append(frame.sequence)
    got.types.append(frame.event)
    if frame.event == "bus.dropped":
        got.broken.append("events were dropped")
