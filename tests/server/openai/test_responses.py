"""Runs as responses, with the SDK of OpenAI as the client: items, streams, approvals, background, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from harborage import Agent, Runtime, WorkflowContext, tool, workflow
from harborage.artifacts import ArtifactScope
from harborage.llm import CompleteRequest
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.openai_client import sdk, serving_sdk
from tests.kit.wire import ADA, BEN, EVE, WITHIN_S


@tool(effects="external", approval="always")
async def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} for {order}"


@tool(effects="read")
async def look(order: str) -> str:
    """Look an order up."""
    if order == "0":
        raise ValueError("no such order")
    return f"{order} is on its way"


def script(*lines: Any) -> Agent[Any, Any]:
    """An agent whose model says these lines."""
    return Agent("support", model=ScriptedLLM(lines), tools=[refund, look])


@asynccontextmanager
async def responding(*lines: Any) -> AsyncIterator[AsyncOpenAI]:
    """A client of an agent whose model says these lines."""
    async with Runtime([script(*lines)], storage="memory:") as runtime, sdk(runtime) as client:
        yield client


REFUND = calls_tools(("refund", {"order": "7", "euros": 40}))
LOOK = calls_tools(("look", {"order": "7"}), content="Let me look.")


async def types_of(stream: Any) -> tuple[list[str], Any]:
    """The types of the events of a stream without repetitions, and its last event; numbers grow by one."""
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    types = [event.type for event in events]
    return [one for at, one in enumerate(types) if at == 0 or types[at - 1] != one], events[-1]


async def test_an_answer_is_a_response() -> None:
    """Its id is that of the run, and it can be read again."""
    async with responding("hello") as client:
        made = await client.responses.create(model="support", input="hi", metadata={"shop": "porto"})
        assert (made.output_text, made.status, made.model) == ("hello", "completed", "support")
        assert made.usage is not None
        assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens
        again = await client.responses.retrieve(made.id)
        assert (again.output, again.metadata) == (made.output, {"shop": "porto"})


async def test_calls_are_items_that_nobody_executes() -> None:
    """With their arguments and what came of them; text beside a call is commentary."""
    async with responding(LOOK, calls_tools(("look", {"order": "0"})), "It is on its way.") as client:
        made = await client.responses.create(model="support", input="order 7?")
        beside, call, failed, answer = made.output
        assert (beside.type, beside.phase) == ("message", "commentary")
        assert (call.type, call.name, call.arguments) == ("mcp_call", "look", '{"order":"7"}')
        assert (call.output, call.status, call.error) == ("7 is on its way", "completed", None)
        assert failed.type == "mcp_call"
        assert failed.status == "failed"
        assert answer.type == "message"
        assert answer.phase == "final_answer"
        assert made.output_text == "Let me look.\n\nIt is on its way."


async def test_a_stream_tells_each_item_in_order() -> None:
    """And ends with the whole response, which is the one that is read afterwards."""
    async with responding(LOOK, "It is on its way.") as client:
        stream = await client.responses.create(model="support", input="order 7?", stream=True)
        types, last = await types_of(stream)
        message = ["output_item.added", "content_part.added", "output_text.delta", "output_text.done"]
        message += ["content_part.done", "output_item.done"]
        call = ["output_item.added", "mcp_call.in_progress", "mcp_call_arguments.done", "mcp_call.completed"]
        whole = ["created", "in_progress", *message, *call, "output_item.done", *message, "completed"]
        assert types == [f"response.{one}" for one in whole]
        again = await client.responses.retrieve(last.response.id)
        assert again.output == last.response.output


async def test_the_helpers_of_the_sdk_understand_a_stream() -> None:
    """They put the response together from its events."""
    async with responding(LOOK, "It is on its way.") as client:
        async with client.responses.stream(model="support", input="order 7?") as stream:
            texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            final = await stream.get_final_response()
        assert "".join(texts) == final.output_text == "Let me look.\n\nIt is on its way."


async def test_a_conversation_goes_on_from_a_response() -> None:
    """What was said and called until there reaches the model; it may branch."""
    seen: list[str] = []

    def last(request: CompleteRequest) -> Any:
        seen.append("\n".join(str(one.content.text) for one in request.messages))
        return says("blue")

    agent: Any = Agent("support", model=ScriptedLLM(by_text={"colour": [last], "hi": ["hello"]}))
    async with Runtime([agent], storage="memory:") as runtime, sdk(runtime) as client:
        first = await client.responses.create(model="support", input="hi, I am Ada")
        for _ in range(2):
            second = await client.responses.create(
                model="support", input="which colour?", previous_response_id=first.id, instructions="One word."
            )
            assert second.output_text == "blue"
            assert second.previous_response_id == first.id
        assert all("hi, I am Ada" in one and "hello" in one and "One word." in one for one in seen)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(("approves", "expected"), [(True, "refunded 40 for 7"), (False, "too much")])
async def test_a_call_waits_for_approval(approves: bool, expected: str, is_streamed: bool) -> None:
    """As an item that the next request answers; the run goes on."""

    def last(request: CompleteRequest) -> Any:
        return says(f"Result: {request.messages[-1].content.text}")

    async with responding(REFUND, last) as client:
        first = await client.responses.create(model="support", input="refund 7")
        (asked,) = first.output
        assert asked.type == "mcp_approval_request"
        assert (asked.name, asked.arguments) == ("refund", '{"euros":40,"order":"7"}')
        assert first.status == "completed"
        answer: Any = {
            "type": "mcp_approval_response",
            "approval_request_id": asked.id,
            "approve": approves,
            "reason": None if approves else "too much",
        }
        if is_streamed:
            stream = await client.responses.create(
                model="support", input=[answer], previous_response_id=first.id, stream=True
            )
            types, event = await types_of(stream)
            made = event.response
            assert types[-1] == "response.completed"
        else:
            made = await client.responses.create(model="support", input=[answer])
        assert made.id == first.id
        assert expected in made.output_text
        (call,) = [one for one in made.output if one.type == "mcp_call"]
        assert (call.approval_request_id, call.status) == (asked.id, "completed" if approves else "failed")


async def test_an_approval_may_be_words() -> None:
    """After the response that asks; what is neither yes nor no is refused, and nothing happens."""
    async with responding(REFUND, "done") as client:
        first = await client.responses.create(model="support", input="refund 7")
        options: Any = {"model": "support", "previous_response_id": first.id}
        with pytest.raises(openai.ConflictError) as caught:
            await client.responses.create(input="why?", **options)
        assert caught.value.code == "waiting_for_answer"
        made = await client.responses.create(input="approve", **options)
        assert (made.id, made.output_text) == (first.id, "done")


@workflow
async def restock(ctx: WorkflowContext, goal: str) -> str:
    """Order tea."""
    count: int = await ctx.ask("How many?", int)
    return f"ordered {count}"


async def test_a_question_is_a_message_that_the_next_input_answers() -> None:
    """A value of another type is refused."""
    async with Runtime([restock], storage="memory:") as runtime, sdk(runtime) as client:
        first = await client.responses.create(model="restock", input="tea")
        assert first.output_text.startswith("How many?")
        options: Any = {"model": "restock", "previous_response_id": first.id}
        with pytest.raises(openai.BadRequestError, match="does not fit"):
            await client.responses.create(input="a lot", **options)
        assert (await client.responses.create(input="20", **options)).output_text == "ordered 20"
        with pytest.raises(openai.BadRequestError, match="no instructions"):
            await client.responses.create(model="restock", input="tea", instructions="Hurry.")


class Slow:
    """A model that answers once it may."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def complete(self, request: CompleteRequest) -> Any:
        """Wait, then answer."""
        self.asked.set()
        await self.may_answer.wait()
        return says("at last")

    async def close(self) -> None: ...


async def test_a_run_in_the_background_is_read_later() -> None:
    """Until it ends it is in progress, and takes no other input."""
    model = Slow()
    agent: Any = Agent("support", model=model)
    async with Runtime([agent], storage="memory:") as runtime, sdk(runtime) as client:
        made = await client.responses.create(model="support", input="hi", background=True)
        assert made.status in ("queued", "in_progress")
        with pytest.raises(openai.ConflictError) as caught:
            await client.responses.create(model="support", input="ho", previous_response_id=made.id)
        assert caught.value.code == "response_in_progress"
        model.may_answer.set()
        async with asyncio.timeout(WITHIN_S):
            await (await runtime.run(made.id, who=ADA)).finished()
        assert (await client.responses.retrieve(made.id)).output_text == "at last"


async def test_a_response_is_cancelled() -> None:
    """At once; again it stays as it is. It is not deleted."""
    model = Slow()
    agent: Any = Agent("support", model=model)
    async with Runtime([agent], storage="memory:") as runtime, sdk(runtime) as client:
        made = await client.responses.create(model="support", input="hi", background=True)
        async with asyncio.timeout(WITHIN_S):
            await model.asked.wait()
        for _ in range(2):
            assert (await client.responses.cancel(made.id)).status == "cancelled"
        with pytest.raises(openai.APIStatusError) as caught:
            await client.responses.delete(made.id)
        assert (caught.value.status_code, caught.value.code) == (405, "method_not_allowed")


async def test_a_wait_that_is_over_leaves_a_response_in_progress() -> None:
    """It can be read later; a stream says so and ends."""
    model = Slow()
    agent: Any = Agent("support", model=model)
    async with Runtime([agent], storage="memory:") as runtime, sdk(runtime, answer_timeout=0.05) as client:
        made = await client.responses.create(model="support", input="hi")
        assert made.status == "in_progress"
        stream = await client.responses.create(model="support", input="hi", stream=True)
        types, last = await types_of(stream)
        assert types == ["response.created", "response.in_progress", "error"]
        assert last.code == "run_in_progress"
        model.may_answer.set()


@pytest.mark.parametrize("stores", [True, False])
async def test_a_client_that_leaves_a_stream(stores: bool) -> None:
    """The run goes on, unless the response was not to be stored."""
    model = Slow()
    agent: Any = Agent("support", model=model)
    async with Runtime([agent], storage="memory:") as runtime, serving_sdk(runtime) as served:
        client = served.client()
        async with asyncio.timeout(WITHIN_S):
            stream = await client.responses.create(model="support", input="hi", stream=True, store=stores)
            event = await anext(aiter(stream))
            assert event.type == "response.created"
            await model.asked.wait()
            await stream.response.aclose()
            await served.server.openai.requests.idle()
            model.may_answer.set()
            finish = await (await runtime.run(event.response.id, who=ADA)).finished()
        assert (finish.reason == "goal") is stores


async def test_a_server_that_stops_ends_its_requests() -> None:
    """The run goes on elsewhere."""
    model = Slow()
    agent: Any = Agent("support", model=model)
    async with Runtime([agent], storage="memory:") as runtime, serving_sdk(runtime) as served:
        client = served.client().with_options(max_retries=0)
        asking = asyncio.create_task(client.responses.create(model="support", input="hi"))
        async with asyncio.timeout(WITHIN_S):
            await model.asked.wait()
            served.server.drain()
            with pytest.raises(openai.InternalServerError) as caught:
                await asking
        assert (caught.value.status_code, caught.value.code) == (503, "server_stopping")
        assert not (await runtime.runs(who=ADA))[0].phase.is_final
        model.may_answer.set()


async def test_a_failed_run_is_a_failed_response() -> None:
    """With its error, in a stream too."""
    async with responding(RuntimeError("no luck"), RuntimeError("no luck")) as client:
        made = await client.responses.create(model="support", input="hi")
        assert made.status == "failed"
        assert made.error is not None
        assert "did not reach its goal" in made.error.message
        types, last = await types_of(await client.responses.create(model="support", input="hi", stream=True))
        assert (types[-1], last.response.status) == ("response.failed", "failed")


async def test_files_and_calls_of_earlier_turns_are_input() -> None:
    """An artifact of the session by its id; items of an earlier response may come back."""
    async with Runtime([script(LOOK, "done", "again")], storage="memory:") as runtime, sdk(runtime) as client:
        scope = ArtifactScope(ADA.tenant_id, ADA.user_id, ADA.session_id)
        ref = await runtime.artifacts.put_text(scope, "order 7", filename="order.txt")
        content: Any = [{"type": "input_text", "text": "read it"}, {"type": "input_file", "file_id": ref.id}]
        first = await client.responses.create(model="support", input=[{"role": "user", "content": content}])
        items: Any = [one.model_dump(exclude_none=True) for one in first.output]
        made = await client.responses.create(model="support", input=[*items, {"role": "user", "content": "go on"}])
        assert made.status == "completed"
        content[1]["file_id"] = "nothing"
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(model="support", input=[{"role": "user", "content": content}])


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"conversation": "c"}, "conversation"),
        ({"max_output_tokens": 9}, "max_output_tokens"),
        ({"reasoning": {"effort": "high"}}, "reasoning"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"background": True, "store": False}, "background"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"type": "mcp_approval_response", "approval_request_id": "x", "approve": True}]}, "input"),
    ],
)
async def test_what_is_not_served_is_refused_by_its_name(options: dict[str, Any], param: str) -> None:
    """Nothing is started."""
    async with responding("hello") as client:
        given: dict[str, Any] = {"model": "support", "input": "hi", **options}
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(**given)
        assert caught.value.param == param


async def test_a_response_of_another_principal_is_not_there() -> None:
    """Neither to read, to cancel, to approve, nor to go on from; nor is one in another session."""
    async with Runtime([script(REFUND, "done")], storage="memory:") as runtime, serving_sdk(runtime) as served:
        ada = served.client(ADA)
        made = await ada.responses.create(model="support", input="refund 7")
        answer: Any = {"type": "mcp_approval_response", "approval_request_id": made.output[0].id, "approve": True}
        clients = [served.client(BEN, "admin"), served.client(EVE)]
        clients.append(ada.with_options(default_headers={"X-Harbor-Session": "s-9"}))
        for other in clients:
            for ask in (
                other.responses.retrieve(made.id),
                other.responses.cancel(made.id),
                other.responses.create(model="support", input=[answer]),
                other.responses.create(model="support", input="yes", previous_response_id=made.id),
            ):
                with pytest.raises(openai.NotFoundError):
                    await ask
        assert (await ada.responses.create(model="support", input=[answer])).output_text == "done"
