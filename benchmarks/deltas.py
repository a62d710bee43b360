"""Streamed answers: from a model to a reader of the run's events, and from a server through a provider's driver.

The bare side of the first is a generator, a queue and a reader. That of the second is an HTTP client, a split on blank
lines, one typed decode a piece and an append; both read the same 3,000 pieces from the same server, which is a process
of its own, so that only the reading counts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import msgspec

from benchmarks.agents import WHO, streaming_runtime
from benchmarks.gate import answer_arrives
from benchmarks.measure import Row, in_turn
from harborage import EventType
from harborage.identity import bound
from harborage.llm import ChatMessage, CompleteRequest, ConfigSnapshot, Content, Deps, Role
from harborage.llm.openai_compat import make
from harborage.testing.conformance.llm_bench import Answer
from tests.kit.llm_server import LLMServer

_PIECES = 3000
_WORD = "word "
_LIMIT = 3.0


async def streamed_deltas() -> list[Row]:
    """CPU per piece of a streamed answer: at a reader of the run's events, and out of a driver."""
    return [await _to_reader(), await _from_server()]


async def _to_reader() -> Row:
    async with streaming_runtime([_WORD] * _PIECES) as rt:

        async def ours() -> None:
            run = await rt.start("go", who=WHO)
            seen = 0
            async for event in run.events():
                seen += event.type == EventType.LLM_COMPLETION_CHUNK
            assert seen >= _PIECES, seen

        mine, theirs = await in_turn(ours, _queued)
    name = "delta, from the model to a reader of the run"
    return Row(name=name, unit="µs CPU", ours=mine / _PIECES * 1e6, bare=theirs / _PIECES * 1e6, limit=_LIMIT)


async def _queued() -> None:
    queue: asyncio.Queue[str | None] = asyncio.Queue(256)

    async def answer() -> None:
        for _ in range(_PIECES):
            await answer_arrives()
            await queue.put(_WORD)
        await queue.put(None)

    task = asyncio.create_task(answer())
    seen = 0
    while await queue.get() is not None:
        seen += 1
    await task
    assert seen == _PIECES


async def _from_server() -> Row:
    """CPU per piece out of the driver, with a listener, beside the bare reader."""
    async with _server() as url:
        driver = make(ConfigSnapshot(provider="vllm", model="m", base_url=url), Deps(artifacts=None, bus=None))
        client = httpx2.AsyncClient(timeout=None)
        heard: list[str] = []
        request = CompleteRequest(
            messages=[ChatMessage(Role.USER, Content("go"))],
            stream=True,
            on_content=lambda delta, done: heard.append(delta),
        )

        async def ours() -> None:
            heard.clear()
            with bound(WHO):
                answer = await driver.complete(request)
            assert len(heard) == _PIECES + 1, len(heard)
            assert len(answer.content) == _PIECES * len(_WORD)

        async def bare() -> None:
            assert len(await _bare(client, url)) == _PIECES * len(_WORD)

        try:
            mine, theirs = await in_turn(ours, bare)
        finally:
            await driver.close()
            await client.aclose()
    per_piece = 1e6 / _PIECES
    name = "delta, from a server out of its driver"
    return Row(name=name, unit="µs CPU", ours=mine * per_piece, bare=theirs * per_piece, limit=_LIMIT)


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta


class _Chunk(msgspec.Struct):
    choices: list[_Choice]


_decode = msgspec.json.Decoder(_Chunk).decode


async def _bare(client: httpx2.AsyncClient, url: str) -> str:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "go"}]}
    text: list[str] = []
    rest = b""
    async with client.stream("POST", f"{url}/chat/completions", json=body) as response:
        async for piece in response.aiter_raw():
            *events, rest = (rest + piece).split(b"\n\n")
            for event in events:
                data = event[6:]
                if data != b"[DONE]" and (choices := _decode(data).choices):
                    text.append(choices[0].delta.content or "")
    return "".join(text)


@asynccontextmanager
async def _server() -> AsyncIterator[str]:
    """The address of a server in a process of its own, which ends with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.deltas", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


async def _serve() -> None:
    """Answer every call with the same pieces, until nobody is there to ask."""
    async with LLMServer(otherwise=Answer(content=_WORD * _PIECES, piece=len(_WORD))) as server:
        print(server.base_url(), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
