"""Tool names that a provider would refuse are sent under others, and neither the caller nor the tools see them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harborage.identity import Quadruple, bound
from harborage.llm import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    Deps,
    Role,
    ToolCallStructured,
    ToolDeclaration,
)
from harborage.llm.chain.corrections import Naming, wire_names
from harborage.testing.llm import ScriptedLLM, says

pytestmark = pytest.mark.anyio

LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")
DEPS = Deps(artifacts=None, bus=None)


def request(*names: str, called: str = "") -> CompleteRequest:
    """A request that declares these tools, with one call in its history."""
    history = [ChatMessage(Role.USER, Content(text="go"))]
    if called:
        call = ToolCallStructured("c1", called)
        history.append(ChatMessage(Role.ASSISTANT, Content(), tool_calls=(call,)))
        history.append(ChatMessage(Role.TOOL, Content(text="done"), tool_call_id="c1"))
    return CompleteRequest(messages=history, tools=[ToolDeclaration(name) for name in names])


async def ask(inner: ScriptedLLM, asked: CompleteRequest) -> CompleteResponse:
    """One call through the layer."""
    with bound(Quadruple("t", "u", "s", "r")):
        return await Naming(inner, ConfigSnapshot(), DEPS).complete(asked)


async def test_legal_names_pass_untouched() -> None:
    """The very same request reaches the client inside."""
    inner = ScriptedLLM([says("ok")])
    asked = request("search", "read-file_2", called="search")
    await ask(inner, asked)
    assert inner.requests == [asked]
    assert inner.requests[0] is asked


async def test_an_illegal_name_is_another_one_on_the_way() -> None:
    """In declarations, in the history and in the answer; the caller sees its own name everywhere."""
    inner = ScriptedLLM([CompleteResponse(tool_calls=[ToolCallStructured("x", "clock_now", b'{"a":1}')])])
    asked = request("clock.now", "search", called="clock.now")
    answer = await ask(inner, asked)
    (seen,) = inner.requests
    assert [tool.name for tool in seen.tools] == ["clock_now", "search"]
    assert seen.messages[1].tool_calls[0].name == "clock_now"
    assert answer.tool_calls[0] == ToolCallStructured("x", "clock.now", b'{"a":1}')
    assert asked.tools[0].name == "clock.now"


async def test_a_renamed_message_is_made_once() -> None:
    """The same message gets the same names in a run's next request, and is the same object there."""
    inner = ScriptedLLM([says("ok")] * 3)
    asked = request("clock.now", called="clock.now")
    for tools in (asked.tools, asked.tools, (*asked.tools, ToolDeclaration("clock_now"))):
        await ask(inner, replace(asked, tools=tools))
    first, second, third = (seen.messages[1] for seen in inner.requests)
    assert first is second
    assert first.tool_calls[0].name == "clock_now"
    assert third.tool_calls[0].name.startswith("clock_now_")


async def test_a_name_without_a_substitute_comes_back_as_it_is() -> None:
    """What the model makes up is the caller's to refuse."""
    inner = ScriptedLLM([CompleteResponse(tool_calls=[ToolCallStructured("x", "made_up")])])
    assert (await ask(inner, request("clock.now"))).tool_calls[0].name == "made_up"


@given(st.frozensets(st.text(max_size=80), max_size=8))
def test_every_tool_has_one_legal_name_of_its_own(names: frozenset[str]) -> None:
    """Whatever tools are called, no two share a name on the way, and the same tools always get the same names."""
    wire = wire_names(names)
    travelling = [wire.get(name, name) for name in names]
    assert len(set(travelling)) == len(names)
    assert all(LEGAL.fullmatch(name) for name in travelling)
    assert wire_names(names) == wire
