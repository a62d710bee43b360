"""The scripted model follows a script for each run, streams, and remembers what it was asked."""

from __future__ import annotations

import asyncio

import pytest

from harborage.identity import Identity, Quadruple, bound
from harborage.llm import (
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    Content,
    IdentityMissingError,
    LLMClient,
    Role,
    TextPart,
    ToolCallStructured,
)
from harborage.llm.scripted import ScriptExhaustedError
from harborage.testing.llm import ScriptedLLM, calls_tools, says

pytestmark = pytest.mark.anyio


def asks(text: str) -> CompleteRequest:
    """A request in which the user says `text`."""
    return CompleteRequest(messages=[ChatMessage(Role.USER, Content(text=text))])


def a_run(run_id: str):
    """The block in which that run is the ambient one."""
    return bound(Quadruple("t", "u", "s", run_id))


async def test_every_run_has_the_script_from_its_beginning():
    """Two runs in turns each get first the first line and then the second; all requests are kept, by run too."""
    llm = ScriptedLLM(["one", "two"])
    for line in ("one", "two"):
        for run_id in ("r-1", "r-2"):
            with a_run(run_id):
                assert (await llm.complete(asks(f"{run_id} {line}"))).content == line
    assert [call.request.messages[0].content.text for call in llm.of("r-2")] == ["r-2 one", "r-2 two"]
    assert len(llm.requests) == 4
    assert isinstance(llm, LLMClient)


async def test_lines():
    """A line is an answer, a text, a function of the request, or an error, which is raised and remembered."""
    failure = ValueError("no")
    llm = ScriptedLLM([says("a", reasoning="r"), "b", lambda request: says(request.messages[0].content.text), failure])
    with a_run("r"):
        assert (await llm.complete(asks("x"))).reasoning == "r"
        assert (await llm.complete(asks("x"))).content == "b"
        assert (await llm.complete(asks("echo"))).content == "echo"
        with pytest.raises(ValueError, match="no"):
            await llm.complete(asks("x"))
    assert llm.calls[-1].error is failure
    assert llm.calls[-1].response is None


async def test_the_end_of_the_script():
    """One question too many is an error that names the run."""
    with a_run("r-9"), pytest.raises(ScriptExhaustedError, match="r-9"):
        await ScriptedLLM().complete(asks("x"))


async def test_a_script_by_text():
    """A run whose user says a given text follows its own script to the end."""
    llm = ScriptedLLM(["root"], by_text={"child": ["c1", "c2"]})
    parts = Content(parts=[TextPart("for the child")])
    with a_run("r-2"):
        first = await llm.complete(CompleteRequest(messages=[ChatMessage(Role.USER, parts)]))
        assert (first.content, (await llm.complete(asks("other"))).content) == ("c1", "c2")
    with a_run("r-1"):
        assert (await llm.complete(asks("go"))).content == "root"


async def test_streaming():
    """The reasoning and then the content come in pieces, each with one end; nobody has to listen."""
    received: list[tuple[str, str, bool]] = []
    with a_run("unheard"):
        await ScriptedLLM(["abc"]).complete(CompleteRequest(stream=True))
    request = CompleteRequest(
        stream=True,
        on_content=lambda delta, done: received.append(("content", delta, done)),
        on_reasoning=lambda delta, done: received.append(("reasoning", delta, done)),
    )
    llm = ScriptedLLM([says("abc", reasoning="r")], piece=2)
    with a_run("r"):
        await llm.complete(request)
    assert received == [
        ("reasoning", "r", False),
        ("reasoning", "", True),
        ("content", "ab", False),
        ("content", "c", False),
        ("content", "", True),
    ]


async def test_a_client_as_any_other():
    """It needs an identity, and answers nothing once it is closed."""
    llm = ScriptedLLM(["a"])
    with pytest.raises(IdentityMissingError):
        await asyncio.create_task(llm.complete(asks("x")))
    with bound(Identity("t", "u", "s")):
        await llm.close()
        await llm.close()
        with pytest.raises(ClientClosedError):
            await llm.complete(asks("x"))


def test_calls():
    """Calls are written by name and arguments; ids begin anew with each answer unless they are given."""
    answer = calls_tools(("a", {"x": 1}), ("b", b"raw"), content="c", reasoning="r")
    assert answer.tool_calls == (
        ToolCallStructured("call-0", "a", b'{"x":1}', 0),
        ToolCallStructured("call-1", "b", b"raw", 1),
    )
    assert (answer.content, answer.reasoning) == ("c", "r")
    assert calls_tools(("a", {}), ids=["own"]).tool_calls[0].id == "own"
