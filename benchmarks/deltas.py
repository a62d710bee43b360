"""Side by side: a streamed answer through the driver, and through the least that reads one.

The bare loop is an HTTP client, a split on blank lines, one typed decode a piece and an append. Both read the same
3,000 pieces from the same server, which is a process of its own, so that only the reading counts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import msgspec

from benchmarks.agents import WHO
from benchmarks.measure import Row, in_turn
from harborage.identity import bound
from harborage.llm import ChatMessage, CompleteRequest, ConfigSnapshot, Content, Deps, Role
from harborage.llm.openai_compat import make
from harborage.testing.llm_server import Answer, LLMServer

__all__ = ["streamed_deltas"]

_PIECES = 3000
_WORD = "word "
_LIMIT = 4.0


async def streamed_deltas() -> list[Row]:
    """CPU per piece of a streamed answer, with a listener, beside the bare loop."""
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
    name = "piece of a streamed answer"
    return [Row(name=name, unit="µs CPU", ours=mine * per_piece, bare=theirs * per_piece, limit=_LIMIT)]


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
