"""Agents over AG-UI: what a client is sent of a run, questions and their answers, and what is refused.

Every event is read with the models of `ag-ui-protocol`, which nobody here wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from ag_ui.core import Event as AgUiEvent
from ag_ui.core import RunErrorEvent
from pydantic import TypeAdapter

from harborage import Agent, Runtime, tool
from harborage.events import PatternRedactor
from harborage.identity import Identity
from harborage.server.ag_ui.answers import read_mark
from harborage.server.ag_ui.errors import RefusedError
from harborage.server.application import Server
from harborage.server.auth.gate import TokenGate
from harborage.server.auth.minting import development_mint, verifier_of
from harborage.testing.llm import ScriptedLLM, calls_tools, says, user_text
from tests.kit.serving import STORAGES, Served, serving
from tests.kit.wire import ADA, BEN, EVE, WITHIN_S, Wire, caller_headers

pytestmark = pytest.mark.anyio

EVENT: TypeAdapter[Any] = TypeAdapter(AgUiEvent)
THREAD = "thread-1"


@tool(effects="external", approval="always")
async def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} for {order}"


@tool(effects="read")
async def look(order: str) -> str:
    """Look an order up."""
    return f"{order} is on its way"


ASKS = (calls_tools(("refund", {"order": "A-1", "euros": 5})), "Done.")


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest) -> str:
    """Where the runtime keeps its runs."""
    return str(request.param)


@asynccontextmanager
async def talking(*script: Any, model: Any = None, **options: Any) -> AsyncIterator[Served]:
    """A server of the agent `support`, whose model says these lines."""
    said = ScriptedLLM(script) if model is None else model
    agent: Any = Agent("support", model=said, instructions="Be brief.", tools=[refund, look])
    async with serving([agent], **options) as served:
        yield served


def asks(text: str = "hi", run: str = "r-1", **more: Any) -> dict[str, Any]:
    """The body of a request."""
    messages = [{"id": "m-1", "role": "user", "content": text}]
    return {"threadId": THREAD, "runId": run, "messages": messages, "tools": [], "context": [], **more}


def read(body: bytes) -> Iterator[Any]:
    """The events of an answer, as the models of the protocol read them."""
    for line in body.decode().split("\n\n"):
        if line.startswith("data: "):
            event = EVENT.validate_json(line.removeprefix("data: "))
            assert not event.model_extra, event
            yield event


async def sent(served: Served, body: Any, *, who: Identity | None = ADA, agent: str = "") -> list[Any]:
    """The events that a request is answered with."""
    reply = await served.wire.post("", body, who=who, path="/v1/ag-ui" + (f"/{agent}" if agent else ""))
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"].startswith("text/event-stream")
    return list(read(reply.body))


async def refused(served: Served, body: Any, *, who: Identity | None = ADA, agent: str = "") -> tuple[int, str]:
    """The status and code of a refusal, which is an error of the protocol."""
    reply = await served.wire.post("", body, who=who, path="/v1/ag-ui" + (f"/{agent}" if agent else ""))
    assert reply.status >= 400, reply.body
    error = RunErrorEvent.model_validate_json(reply.body)
    assert error.message
    return reply.status, str(error.code)


def kinds(events: list[Any]) -> list[str]:
    """Their types, with pieces of the same message as one."""
    found: list[str] = []
    for one in events:
        if not found or found[-1] != one.type.value:
            found.append(one.type.value)
    return found


def answer(events: list[Any], payload: Any, run: str = "r-2", status: str = "resolved") -> dict[str, Any]:
    """The body of a request that answers the interrupts of another."""
    waits = events[-1].outcome.interrupts
    return asks(run=run, resume=[{"interruptId": one.id, "status": status, "payload": payload} for one in waits])


async def test_a_run_is_told_from_its_start_to_its_answer() -> None:
    """The model's thoughts and words come in pieces, and the answer once."""
    async with talking(says("hello, how can I help?", reasoning="a greeting")) as served:
        events = await sent(served, asks())
        assert kinds(events)[0] == "RUN_STARTED"
        assert (events[0].thread_id, events[0].run_id, events[0].protocol_version) == (THREAD, "r-1", "1.0")
        pieces = [one.delta for one in events if one.type == "TEXT_MESSAGE_CONTENT"]
        assert "".join(pieces) == "hello, how can I help?"
        assert len(pieces) > 1
        assert kinds(events)[-4:] == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"]
        assert (events[-1].outcome.type, events[-1].result) == ("success", "hello, how can I help?")


async def test_calls_are_shown_with_what_came_of_them(storage: str, tmp_path: Any) -> None:
    """Each has one id, from its start to its result."""
    async with talking(
        calls_tools(("look", {"order": "A-1"})), "On its way.", storage=storage, folder=tmp_path
    ) as served:
        events = await sent(served, asks(), agent="support")
        calls = [one for one in events if one.type.value.startswith("TOOL_CALL")]
        assert kinds(calls) == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"]
        assert len({one.tool_call_id for one in calls}) == 1
        assert (calls[0].tool_call_name, calls[3].content) == ("look", "A-1 is on its way")
        assert msgspec.json.decode(calls[1].delta) == {"order": "A-1"}


async def test_an_approval_is_an_interrupt_that_the_next_request_answers(storage: str, tmp_path: Any) -> None:
    """The run goes on where it waited: its call is not shown again, and its result is."""
    async with talking(*ASKS, storage=storage, folder=tmp_path) as served:
        events = await sent(served, asks())
        assert events[-1].outcome.type == "interrupt"
        (waits,) = events[-1].outcome.interrupts
        assert waits.reason == "tool_call"
        assert waits.tool_call_id == next(one for one in events if one.type == "TOOL_CALL_START").tool_call_id
        assert waits.response_schema["required"] == ["approved"]
        more = await sent(served, answer(events, {"approved": True}))
        assert "TOOL_CALL_START" not in kinds(more)
        result = next(one for one in more if one.type == "TOOL_CALL_RESULT")
        assert (result.tool_call_id, result.content) == (waits.tool_call_id, "refunded 5 for A-1")
        assert (more[-1].outcome.type, more[-1].result, more[-1].run_id) == ("success", "Done.", "r-2")


async def test_an_answer_may_edit_the_call_and_may_come_twice() -> None:
    """A request that is sent again is told the same, and the call is not made again."""
    async with talking(*ASKS) as served:
        events = await sent(served, asks())
        body = answer(events, {"approved": True, "editedArgs": {"order": "A-1", "euros": 3}})
        for _ in range(2):
            more = await sent(served, body)
            results = [one.content for one in more if one.type == "TOOL_CALL_RESULT"]
            assert results == ["refunded 3 for A-1"]
            assert more[-1].result == "Done."
        assert await refused(served, answer(events, {"approved": False})) == (409, "already_answered")


async def test_a_rejection_and_a_cancelled_interrupt_are_results_of_the_call() -> None:
    """The run goes on and says so."""
    for payload, status in (({"approved": False, "reason": "too much"}, "resolved"), (None, "cancelled")):
        async with talking(*ASKS) as served:
            events = await sent(served, asks())
            more = await sent(served, answer(events, payload, status=status))
            (result,) = [one for one in more if one.type == "TOOL_CALL_RESULT"]
            assert result.tool_call_id == events[-1].outcome.interrupts[0].tool_call_id
            assert more[-1].outcome.type == "success"


async def test_the_conversation_of_the_client_reaches_the_model() -> None:
    """So do its notes, its state and its system messages; the state is told back."""
    model = ScriptedLLM(["blue"])
    async with talking(model=model) as served:
        messages = [
            {"id": "1", "role": "system", "content": "One word."},
            {"id": "2", "role": "user", "content": "My colour is blue."},
            {"id": "3", "role": "assistant", "content": "Noted."},
            {"id": "4", "role": "user", "content": [{"type": "text", "text": "Which is my colour?"}]},
        ]
        notes = [{"description": "page", "value": "settings"}]
        events = await sent(served, asks(messages=messages, context=notes, state={"theme": "dark"}))
        assert next(one for one in events if one.type == "STATE_SNAPSHOT").snapshot == {"theme": "dark"}
        shown = str(model.requests[0])
        assert all(word in shown for word in ("One word.", "My colour is blue.", "Noted.", "settings", "dark"))
        assert user_text(model.requests[0]).count("Which is my colour?") == 1


async def test_a_client_that_leaves_ends_no_run() -> None:
    """The same request is told the same run again, to its end."""
    gate, calls = asyncio.Event(), []

    @tool(effects="read")
    async def wait() -> str:
        """Wait."""
        calls.append(1)
        await gate.wait()
        return "waited"

    agent: Any = Agent("support", model=ScriptedLLM([calls_tools(("wait", {})), "Done."]), tools=[wait])
    async with serving([agent]) as served:
        body = msgspec.json.encode(asks())
        async with served.wire.open("POST", "/v1/ag-ui", caller_headers(ADA), body) as reader:
            assert b"RUN_STARTED" in (await reader.part() or b"")
        gate.set()
        async with asyncio.timeout(WITHIN_S):
            events = await sent(served, asks())
        assert (events[-1].result, len(calls)) == ("Done.", 1)
        assert [one.content for one in events if one.type == "TOOL_CALL_RESULT"] == ["waited"]


async def test_a_server_that_stops_ends_its_streams_and_no_run() -> None:
    """The last event says what to do."""
    async with talking(*ASKS) as served:
        events = await sent(served, asks())
        served.server.drain()
        assert await refused(served, answer(events, True)) == (503, "server_stopping")
        (run,) = await served.rt.runs(who=Identity("acme", "ada", THREAD))
        assert not run.phase.is_final


async def test_questions_of_others_are_not_found() -> None:
    """Neither those of another user nor those of another tenant, whatever thread they name."""
    async with talking(*ASKS) as served:
        events = await sent(served, asks())
        for who in (BEN, EVE):
            assert await refused(served, answer(events, True), who=who) == (404, "not_found")
        assert await refused(served, {**answer(events, True), "threadId": "other"}) == (404, "not_found")
        assert (await sent(served, answer(events, True)))[-1].result == "Done."


async def test_a_thread_answers_one_message_at_a_time() -> None:
    """A new message is refused while the one before waits; another thread is free."""
    async with talking(*ASKS) as served:
        await sent(served, asks())
        assert await refused(served, asks("again", run="r-9")) == (409, "thread_busy")
        assert (await sent(served, {**asks(run="r-9"), "threadId": "t-2"}))[-1].outcome.type == "interrupt"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_request"),
        ({"threadId": "t"}, "invalid_request"),
        (asks(messages=[]), "invalid_request"),
        (asks(" "), "invalid_request"),
        (asks(run=""), "invalid_request"),
        (asks(run="r" * 500), "invalid_request"),
        (asks(tools=[{"name": "paint", "description": ""}]), "tools_unsupported"),
        (asks(messages=[{"id": "1", "role": "user", "content": [{"type": "image"}]}]), "content_unsupported"),
        (asks(resume=[{"interruptId": "x", "status": "resolved"}]), "not_found"),
        (asks(resume=[{"interruptId": "x:1:y", "status": "resolved"}]), "not_found"),
    ],
)
async def test_a_request_that_cannot_be_served_is_refused(body: Any, code: str) -> None:
    """Nothing starts, and the answer is an error of the protocol."""
    async with talking("hello") as served:
        assert (await refused(served, body))[1] == code
        assert (await served.rt.runs(who=Identity("acme", "ada", THREAD)))[:] == ()


async def test_nobody_and_no_agent_are_refused() -> None:
    """Without a caller first, and then for a name that is not served."""
    async with talking("hello") as served:
        assert await refused(served, asks(), who=None) == (401, "identity_required")
        assert await refused(served, asks(), agent="other") == (404, "agent_not_found")


async def test_a_run_that_fails_ends_with_an_error() -> None:
    """The stream says why, as its last event."""
    async with talking(RuntimeError("the model is gone")) as served:
        events = await sent(served, asks())
        assert events[-1].type == "RUN_ERROR"
        assert events[-1].code


@pytest.mark.parametrize("text", ["", "run", "run:x:token", "run:1:", ":1:token", "run:-1:token"])
def test_an_id_that_was_not_given_out_names_no_question(text: str) -> None:
    """It is not found, as those of others are."""
    with pytest.raises(RefusedError):
        read_mark(text)


async def test_a_token_without_a_session_is_enough() -> None:
    """The thread is the session; without a token nothing is served."""
    mint = development_mint()
    token, _ = mint.sign("acme", "ada")
    agent: Any = Agent("support", model=ScriptedLLM(["hello"]))
    async with Runtime([agent], storage="memory:") as runtime:
        gate = TokenGate(verifier_of(mint), redactor=PatternRedactor())
        wire = Wire(Server(runtime, gate=gate))
        body = msgspec.json.encode(asks())
        reply = await wire.request("POST", "/v1/ag-ui", body, {"authorization": f"Bearer {token}"})
        assert list(read(reply.body))[-1].result == "hello"
        assert len(await runtime.runs(who=Identity("acme", "ada", THREAD))) == 1
        assert (await wire.request("POST", "/v1/ag-ui", body)).status == 401
