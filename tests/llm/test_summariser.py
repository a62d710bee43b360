"""Turns of a conversation are folded into a running summary, by one call under the session's identity."""

from __future__ import annotations

import asyncio

import pytest

from harborage.identity import Identity, bound, effective_quadruple
from harborage.llm import (
    CompleteRequest,
    CompleteResponse,
    IdentityMissingError,
    LLMConfigError,
    LLMError,
    RateLimitedError,
    Role,
    TextPart,
)
from harborage.llm.summariser import PROMPT_VERSION, ModelSummariser, SummaryFailedError
from harborage.memory import Turn
from harborage.testing.llm import ScriptedLLM, user_text
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")


def turns(*pairs: tuple[str, str]) -> tuple[Turn, ...]:
    """Turns of these messages and answers."""
    return tuple(Turn(user_message=user, assistant_response=answer) for user, answer in pairs)


async def test_one_call_with_two_messages():
    """The task is the system's message, the material is the user's, and nothing else is sent."""
    model = ScriptedLLM(["  they met \n"])
    summary = await ModelSummariser(model).summarise(WHO, "before", turns(("hi", "hello"), ("bye", "so long")))
    assert summary == "they met"
    [request] = model.requests
    system, user = request.messages
    assert (system.role, user.role) == (Role.SYSTEM, Role.USER)
    assert user.content.text == "[Previous summary]\nbefore\n\n[New turns]\nU: hi\nA: hello\nU: bye\nA: so long"
    assert request == CompleteRequest(messages=(system, user))


async def test_nothing_yet():
    """Empty parts are marked as such, so that the model invents nothing in their place."""
    model = ScriptedLLM(["nothing happened"])
    await ModelSummariser(model).summarise(WHO, " ", [])
    assert user_text(model.requests[0]) == "[Previous summary]\n(none)\n\n[New turns]\n(none)"


async def test_a_model_of_its_own():
    """The summary may be made by another model than the client's own."""
    model = ScriptedLLM(["x"])
    await ModelSummariser(model, model="small").summarise(WHO, "", turns(("a", "b")))
    assert model.requests[0].model == "small"


async def test_the_sessions_identity():
    """The call is made under the identity that was given, and the caller's own is back afterwards."""
    model = ScriptedLLM(["x"])
    with bound(Identity("other", "u", "s").with_run("r")):
        await ModelSummariser(model).summarise(WHO, "", turns(("a", "b")))
        assert effective_quadruple() == Identity("other", "u", "s").with_run("r")
    assert model.calls[0].who == WHO.with_run("")


@each_row("who", [Identity("", "u", "s"), Identity("t", "", "s"), Identity("t", "u", "")])
async def test_an_incomplete_identity(who):
    """Without the whole triple no call is made."""
    model = ScriptedLLM(["x"])
    with pytest.raises(IdentityMissingError):
        await ModelSummariser(model).summarise(who, "", [])
    assert model.requests == []


async def test_a_cancelled_caller():
    """The cancellation is reported before anything is looked at, the identity included."""
    model = ScriptedLLM(["x"])

    async def call():
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await ModelSummariser(model).summarise(Identity("", "", ""), "", [])

    task = asyncio.ensure_future(call())
    await asyncio.wait([task])
    assert task.cancelled()
    assert model.requests == []


async def test_a_failed_call():
    """The model's failure is the cause of the summary's, never an empty summary."""
    error = RateLimitedError("slow down")
    with pytest.raises(SummaryFailedError, match="slow down") as caught:
        await ModelSummariser(ScriptedLLM([error])).summarise(WHO, "before", [])
    assert caught.value.__cause__ is error
    assert isinstance(caught.value, LLMError)


async def test_an_empty_answer():
    """A model that says nothing has made no summary."""
    with pytest.raises(SummaryFailedError, match="empty"):
        await ModelSummariser(ScriptedLLM([" \n"])).summarise(WHO, "before", [])


async def test_a_cancellation_is_no_failure():
    """A call that is cancelled stays cancelled."""
    started = asyncio.Event()

    class Waiting:
        async def complete(self, request):
            started.set()
            await asyncio.Event().wait()

        async def close(self):
            pass

    task = asyncio.ensure_future(ModelSummariser(Waiting()).summarise(WHO, "", []))
    await started.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_long_turns_stay_light():
    """A pasted document is cut, and no single text comes near what counts as heavy."""
    model = ScriptedLLM(["x"])
    await ModelSummariser(model).summarise(WHO, "p" * 100_000, turns(("u" * 100_000, "a" * 100_000)) * 3)
    parts = model.requests[0].messages[1].content.parts
    assert parts is not None
    assert all(isinstance(part, TextPart) and len(part.text) < 20_000 for part in parts)


async def test_a_long_message_loses_its_middle():
    """A summary's prompt stays small: beginning and end of a long message are sent, and how much is left out."""
    model = ScriptedLLM(["x"])
    await ModelSummariser(model).summarise(WHO, "", turns(("a" * 50_000 + "END", "short")))
    text = user_text(model.requests[0])
    assert len(text) < 10_000
    assert "[41811 characters left out]" in text
    assert "END" in text


async def test_many_at_once():
    """128 sessions get their own summaries, each call under its own identity."""
    model = ScriptedLLM([lambda request: CompleteResponse(user_text(request)[-5:])])
    summariser = ModelSummariser(model)

    async def one(number: int) -> str:
        return await summariser.summarise(Identity("t", "u", f"s-{number}"), "", turns(("q", f"{number:05}")))

    assert await asyncio.gather(*map(one, range(128))) == [f"{number:05}" for number in range(128)]
    assert {call.who.session_id for call in model.calls} == {f"s-{number}" for number in range(128)}


def test_without_a_client():
    """A summariser without a model is refused when it is made, and its prompt has a version."""
    with pytest.raises(LLMConfigError):
        ModelSummariser(None)
    assert PROMPT_VERSION == "v1"
