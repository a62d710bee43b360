"""The reference planner on the real chain of a model client: what is long, heavy or too much does not end a run."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.drivers import DriverTable
from harborage.events import MemoryEventBus
from harborage.identity import Identity
from harborage.llm import (
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Deps,
    ImagePart,
    ModelProfile,
    Role,
    TextPart,
)
from harborage.llm.opening import open_llm
from harborage.planner.react import ReActPlanner
from harborage.runtime.host import Runtime
from harborage.testing.llm import ScriptedLLM, calls_tools, user_text
from harborage.tools import SideEffect, tool
from harborage.tools.builtin import artifact_fetch
from tests.kit.provider_rules import check_request
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")
Chains = Callable[..., AbstractAsyncContextManager[Runtime]]


@tool(effects=SideEffect.READ)
async def page(number: int) -> str:
    """A page of a book."""
    return f"page {number} " + "word " * 400


@tool(effects=SideEffect.READ)
async def book() -> str:
    """A whole book."""
    return "line of it\n" * 6_000


@tool(effects=SideEffect.READ)
async def broken() -> str:
    """Fails with a whole page of reasons."""
    raise PermissionError("no " * 30_000)


TOOLS = [page, book, broken, artifact_fetch()]


@asynccontextmanager
async def chained(llm: ScriptedLLM, *, window: int = 200_000, **profile: Any) -> AsyncIterator[Runtime]:
    """A runtime whose planner asks `llm` through every layer of the chain."""
    bus, artifacts = MemoryEventBus(), MemoryArtifactStore()
    config = ConfigSnapshot(
        driver="scripted", model="m", profiles={"m": ModelProfile(context_window_tokens=window, **profile)}
    )
    drivers = DriverTable("llm", {"scripted": lambda cfg, deps: llm})
    client = await open_llm(config, Deps(artifacts=artifacts, bus=bus), drivers=drivers)
    planner = ReActPlanner(client, max_steps=99)
    async with Runtime(planner=planner, tools=TOOLS, bus=bus, artifacts=artifacts) as runtime:
        yield runtime
    await client.close()
    await bus.aclose()


def whole(request: CompleteRequest) -> str:
    """Everything that a request says in text, parts put together again."""
    texts = []
    for message in request.messages:
        parts = [part.text for part in message.content.parts or () if isinstance(part, TextPart)]
        texts.append(message.content.text or "".join(parts))
    return "\n".join(texts)


async def test_a_picture_is_seen_at_every_step() -> None:
    """Inline, as long as the model takes pictures inline."""
    llm = ScriptedLLM([calls_tools(("page", {"number": 1})), "a cat"])
    async with chained(llm, inline_limit_bytes=1 << 20) as runtime:
        image = await runtime.artifacts.put_bytes(
            ArtifactScope(*_triple()), b"\x89PNG" + bytes(50_000), mime_type="image/png", filename="cat.png"
        )
        run = await runtime.start("what is this?", who=WHO, input_artifacts=[image.id])
        assert (await run.finished()).payload == "a cat"
    for request in llm.requests:
        check_request(request)
        first = next(message for message in request.messages if message.role is Role.USER)
        (picture,) = [part for part in first.content.parts or () if isinstance(part, ImagePart)]
        assert picture.data_url.startswith("data:image/png;base64,")


async def test_what_was_kept_outside_can_be_read() -> None:
    """A heavy result is an excerpt; fetching it brings more than the guard against leaks would let pass in one text."""

    def fetches(request: CompleteRequest) -> CompleteResponse:
        ref = re.findall(r'artifact_fetch\(ref="(\w+)"', whole(request))[-1]
        return calls_tools(("artifact_fetch", {"ref": ref}))

    llm = ScriptedLLM([calls_tools(("book", {})), fetches, "read"])
    async with chained(llm) as runtime:
        assert (await (await runtime.start("read it", who=WHO)).finished()).payload == "read"
    check_request(llm.requests[-1])
    assert whole(llm.requests[1]).count("line of it") < 2_000
    assert whole(llm.requests[2]).count("line of it") > 5_000


@each_row("where", ["goal", "context", "prose"])
async def test_long_words_are_passed_on(where: str) -> None:
    """What people write, and what the model wrote itself, may be longer than a heavy result."""
    long = "a word and " * 5_000
    prose = long if where == "prose" else ""
    llm = ScriptedLLM([calls_tools(("page", {"number": 1}), content=prose), "done"])
    async with chained(llm) as runtime:
        run = await runtime.start(long if where == "goal" else "go", who=WHO)
        if where == "context":
            await run.inject({"a": [long[:4_000]] * 3})
        assert (await run.finished()).payload == "done"
    check_request(llm.requests[-1])
    assert whole(llm.requests[-1]).count("a word and ") > 700


async def test_a_long_error_is_cut() -> None:
    """A tool that fails at length fails its call and not the run."""
    llm = ScriptedLLM([calls_tools(("broken", {})), calls_tools(("broken", {}), ("broken", {})), "done"])
    async with chained(llm) as runtime:
        assert (await (await runtime.start("go", who=WHO)).finished()).payload == "done"
    answers = [message.content.text for message in llm.requests[-1].messages if message.role is Role.TOOL]
    assert [("no no" in one, len(one) < 10_000) for one in answers if one] == [(True, True)] * 3


async def test_a_sub_tasks_long_answer() -> None:
    """It is reduced like the result of any tool, with directions to the rest."""
    spawn = {"spec": {"query": "be the child", "retain_turn": True}}
    llm = ScriptedLLM([calls_tools(("_spawn_task", spawn)), "done"], by_text={"be the child": ["x" * 40_000]})
    async with chained(llm) as runtime:
        run = await runtime.start("be the parent", who=WHO)
        assert (await run.finished()).payload == "done"
    shown = llm.of(run.id)[-1].request.messages[-1].content.text
    assert shown is not None
    assert "artifact_fetch(ref=" in shown
    assert len(shown) < 20_000


async def test_a_window_that_is_too_small_for_the_history() -> None:
    """The guard of the chain refuses the prompt before it is sent; a fold of the history fits, and the run goes on."""
    llm = ScriptedLLM([*[calls_tools(("page", {"number": number})) for number in range(12)], "read"])
    async with chained(llm, window=6_000) as runtime:
        assert (await (await runtime.start("read it all", who=WHO)).finished()).payload == "read"
    assert len(llm.requests) == 13
    assert "Made without a model" in user_text(llm.requests[-1])
    for request in llm.requests:
        check_request(request)
        assert len(whole(request)) < 24_000


def _triple() -> tuple[str, str, str]:
    return WHO.tenant_id, WHO.user_id, WHO.session_id
