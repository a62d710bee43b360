"""What a provider has kept of a prompt stays its beginning: a run only adds to it, whatever it stores and reads."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from harborage import Identity, Runtime, RuntimeOptions, tool
from harborage.artifacts import ArtifactScope
from harborage.llm import ChatMessage, CompleteRequest, CompleteResponse, ToolCallStructured, Usage
from harborage.tools import CallContext

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")
USAGE = Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2)


@tool
async def large(number: int) -> str:
    """Get something large."""
    return f"{number}" * 100_000


@tool
async def drop(call: CallContext, ref: str) -> str:
    """Delete a stored file."""
    scope = ArtifactScope(call.who.tenant_id, call.who.user_id, call.who.session_id)
    assert call.artifacts is not None
    await call.artifacts.delete(scope, ref)
    return "gone"


class Model:
    """Asks for what its script says, with the ref of the first stored file in place of REF; keeps its requests."""

    def __init__(self, *script: tuple[str, str]) -> None:
        self._script = script
        self.requests: list[CompleteRequest] = []

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        number = len(self.requests)
        self.requests.append(request)
        if number >= len(self._script):
            return CompleteResponse("done", usage=USAGE)
        name, args = self._script[number]
        found = re.search(r"default_[0-9a-f]{12}", "".join(map(text_of, request.messages)))
        data = args.replace("REF", found.group() if found else "")
        return CompleteResponse(tool_calls=[ToolCallStructured(f"c{number}", name, data.encode())], usage=USAGE)

    async def close(self) -> None:
        return None


def text_of(message: ChatMessage) -> str:
    return message.content.text or repr(message.content.parts)


def is_kept(before: CompleteRequest, after: CompleteRequest) -> bool:
    """Whether `after` begins as `before` did, up to what stood behind its history, and declares the same tools."""
    kept = list(before.messages)
    if "came or went since the run began" in text_of(kept[-1]):
        kept.pop()
    return list(after.messages[: len(kept)]) == kept and after.tools == before.tools


async def run(rt: Runtime) -> None:
    started = await rt.start("go", who=WHO)
    assert (await asyncio.wait_for(started.finished(), 20)).payload


def listed(request: CompleteRequest) -> list[str]:
    """The blocks that list artifacts, in order."""
    return [text_of(one) for one in request.messages if "<session_artifacts_list>" in text_of(one)]


async def test_storing_and_reading_large_results_keeps_the_beginning_of_the_prompt() -> None:
    """The new files stand behind the history, where they change nothing that came before."""
    script = [("large", '{"number":1}'), ("artifact_fetch", '{"ref":"REF"}'), ("large", '{"number":2}')]
    model = Model(*script, ("artifact_fetch", '{"ref":"REF"}'))
    async with Runtime(model=model, tools=[large]) as rt:
        await run(rt)
    assert len(model.requests) == 5
    assert all(is_kept(*pair) for pair in zip(model.requests, model.requests[1:], strict=False))
    assert [len(listed(one)) for one in model.requests] == [0, 1, 1, 1, 1]
    assert [text.count("tool-result-large.json") for one in model.requests for text in listed(one)] == [1, 1, 2, 2]


async def test_files_of_an_earlier_run_stand_in_front_and_those_that_go_are_named_behind() -> None:
    """The next run lists them where they do not move; a file that is deleted meanwhile is said to be gone."""
    first = Model(("large", '{"number":1}'))
    async with Runtime(model=first, tools=[large, drop]) as rt:
        await run(rt)
        second = Model(("large", '{"number":2}'), ("drop", '{"ref":"REF"}'))
        first._script, first.requests = second._script, second.requests
        await run(rt)
    assert all(is_kept(*pair) for pair in zip(second.requests, second.requests[1:], strict=False))
    blocks = [listed(one) for one in second.requests]
    assert [len(one) for one in blocks] == [1, 2, 2]
    assert blocks[0][0] == blocks[2][0]
    assert "No longer there: default_" in blocks[2][1]
    assert "No longer there" not in blocks[1][1]


async def test_a_run_that_is_carried_on_elsewhere_keeps_the_beginning_too(tmp_path: Path) -> None:
    """What the session held at the first step is read off the record."""
    began, may_end = asyncio.Event(), asyncio.Event()

    @tool(effects="read")
    async def hold() -> str:
        """Wait."""
        began.set()
        await may_end.wait()
        return "held"

    model = Model(("large", '{"number":1}'), ("hold", "{}"), ("large", '{"number":2}'))
    parts: dict[str, Any] = {"model": model, "tools": [large, hold], "storage": f"sqlite:{tmp_path / 'runs.db'}"}
    async with Runtime(**parts, options=RuntimeOptions()) as rt:
        started = await rt.start("go", who=WHO)
        await asyncio.wait_for(began.wait(), 20)
    may_end.set()
    async with Runtime(**parts) as rt:
        again = await rt.run(started.id, who=WHO)
        assert (await asyncio.wait_for(again.finished(), 20)).payload
    assert len(model.requests) == 4
    assert all(is_kept(*pair) for pair in zip(model.requests, model.requests[1:], strict=False))
