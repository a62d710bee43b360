"""Turns of a conversation are folded into a running summary, by one call under the session's identity."""

from __future__ import annotations

import asyncio

import pytest

from harborage.identity import Identity, bound, effective_quadruple
from harborage.llm import (
    CompleteRequest,
    CompleteResponse,
    IdentityMissingError,
    InvalidConfigError,
    LLMError,
    RateLimitedError,
    Role,
    TextPart,
)
from harborage.llm.content import CHUNK_BYTES, chunk_lines
from harborage.llm.summariser import PROMPT_VERSION, ConversationSummariser, SummaryFailedError
from harborage.testing.llm import ScriptedLLM, user_text
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")


async def test_one_call_with_two_messages():
    """The task is the system's message, the material is the user's, and nothing else is sent."""
    model = ScriptedLLM(["  they met \n"])
    summary = await ConversationSummariser(model).summarise(WHO, "before", [("hi", "hello"), ("bye", "so long")])
    assert summary == "they met"
    [request] = model.requests
    system, user = request.messages
    assert (system.role, user.role) == (Role.SYSTEM, Role.USER)
    assert user.content.text == "[Previous summary]\nbefore\n\n[New turns]\nU: hi\nA: hello\nU: bye\nA: so long"
    assert request == CompleteRequest(messages=(system, user))


async def test_nothing_yet():
    """What is empty is said to be, so that the model invents nothing in its place."""
    model = ScriptedLLM(["nothing happened"])
    await ConversationSummariser(model).summarise(WHO, " ", [])
    assert user_text(model.requests[0]) == "[Previous summary]\n(none)\n\n[New turns]\n(none)"


async def test_a_model_of_its_own():
    """The summary may be made by another model than the client's own."""
    model = ScriptedLLM(["x"])
    await ConversationSummariser(model, model="small").summarise(WHO, "", [("a", "b")])
    assert model.requests[0].model == "small"


async def test_the_sessions_identity():
    """The call is made under the identity that was given, and the caller's own is back afterwards."""
    model = ScriptedLLM(["x"])
    with bound(Identity("other", "u", "s").with_run("r")):
        await ConversationSummariser(model).summarise(WHO, "", [("a", "b")])
        assert effective_quadruple() == Identity("other", "u", "s").with_run("r")
    assert model.calls[0].who == WHO.with_run("")


@each_row("who", [Identity("", "u", "s"), Identity("t", "", "s"), Identity("t", "u", "")])
async def test_an_incomplete_identity(who):
    """Without the whole triple no call is made."""
    model = ScriptedLLM(["x"])
    with pytest.raises(IdentityMissingError):
        await ConversationSummariser(model).summarise(who, "", [])
    assert model.requests == []


async def test_a_cancelled_caller():
    """The cancellation is reported before anything is looked at, the identity included."""
    model = ScriptedLLM(["x"])

    async def call():
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await ConversationSummariser(model).summarise(Identity("", "", ""), "", [])

    task = asyncio.ensure_future(call())
    await asyncio.wait([task])
    assert task.cancelled()
    assert model.requests == []


async def test_a_failed_call():
    """The model's failure is the cause of the summary's, never an empty summary."""
    error = RateLimitedError("slow down")
    with pytest.raises(SummaryFailedError, match="slow down") as caught:
        await ConversationSummariser(ScriptedLLM([error])).summarise(WHO, "before", [])
    assert caught.value.__cause__ is error
    assert isinstance(caught.value, LLMError)


async def test_an_empty_answer():
    """A model that says nothing has made no summary."""
    with pytest.raises(SummaryFailedError, match="empty"):
        await ConversationSummariser(ScriptedLLM([" \n"])).summarise(WHO, "before", [])


async def test_a_cancellation_is_no_failure():
    """A call that is cancelled stays cancelled."""
    started = asyncio.Event()

    class Waiting:
        async def complete(self, request):
            started.set()
            await asyncio.Event().wait()

        async def close(self):
            pass

    task = asyncio.ensure_future(ConversationSummariser(Waiting()).summarise(WHO, "", []))
    await started.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_long_turns_stay_light():
    """A pasted document is cut, and no single text comes near what counts as heavy."""
    model = ScriptedLLM(["x"])
    await ConversationSummariser(model).summarise(WHO, "p" * 100_000, [("u" * 100_000, "a" * 100_000)] * 3)
    parts = model.requests[0].messages[1].content.parts
    assert parts is not None
    assert all(isinstance(part, TextPart) and len(part.text) < 20_000 for part in parts)


async def test_many_at_once():
    """128 sessions get their own summaries, each call under its own identity."""
    model = ScriptedLLM([lambda request: CompleteResponse(user_text(request)[-5:])])
    summariser = ConversationSummariser(model)

    async def one(number: int) -> str:
        return await summariser.summarise(Identity("t", "u", f"s-{number}"), "", [("q", f"{number:05}")])

    assert await asyncio.gather(*map(one, range(128))) == [f"{number:05}" for number in range(128)]
    assert {call.who.session_id for call in model.calls} == {f"s-{number}" for number in range(128)}


def test_without_a_client():
    """A summariser without a model is refused when it is made, and its prompt has a version."""
    with pytest.raises(InvalidConfigError):
        ConversationSummariser(None)
    assert PROMPT_VERSION == "v1"


def test_pieces_say_the_same():
    """Short lines are one text; long ones become parts that together say the same."""
    assert chunk_lines(["a", "b"]).text == "a\nb"
    assert chunk_lines([]).text == ""
    lines = [f"line {number} " + "x" * 90 for number in range(200)]
    parts = chunk_lines(lines).parts
    assert parts is not None
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    assert "".join(texts) == "\n".join(lines)
    assert all(len(text) <= CHUNK_BYTES for text in texts)
    assert len(texts) > 4
