"""Agents over A2A: cards, tasks, streams, questions and their answers, and what is refused.

The client is that of `a2a-sdk`, which nobody here wrote, in both versions of the protocol.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import httpx2
import msgspec
import pytest
from a2a.client import A2AClientError
from a2a.helpers import get_artifact_text, get_data_parts, get_message_text, new_raw_part, new_url_part
from a2a.types.a2a_pb2 import (
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    ListTasksRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from harborage import Agent, File, Runtime, tool
from harborage.events import PatternRedactor
from harborage.identity import Identity
from harborage.server.auth.gate import TokenGate
from harborage.server.auth.minting import development_mint, verifier_of
from harborage.testing.llm import ScriptedLLM, calls_tools, says, user_text
from tests.kit.a2a_client import VERSIONS, Peer, a2a_client
from tests.kit.mcp_client import on_socket
from tests.kit.serving import Served, serving
from tests.kit.wire import ADA, BEN, EVE, WITHIN_S, caller_headers

pytestmark = pytest.mark.anyio

CONTEXT = "context-1"


@tool(effects="external", approval="always")
async def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} for {order}"


@tool(effects="read")
async def look(order: str) -> str:
    """Look an order up."""
    return f"{order} is on its way"


ASKS = (calls_tools(("refund", {"order": "A-1", "euros": 5})), "Done.")


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """The version that the client speaks."""
    return str(request.param)


@asynccontextmanager
async def hosting(*agents: Any, storage: str = "memory:") -> AsyncIterator[str]:
    """The address of a server of these agents."""
    async with Runtime(list(agents), storage=storage) as runtime, on_socket(runtime) as url:
        yield url.removesuffix("/mcp")


def support(*script: Any, tools: tuple[Any, ...] = (refund, look), name: str = "support") -> Any:
    """An agent whose model says these lines."""
    return Agent(name, model=ScriptedLLM(script), tools=list(tools), description="Helps with orders.")


@asynccontextmanager
async def talking(*script: Any, version: str = "1.0", streams: bool = True, **more: Any) -> AsyncIterator[Peer]:
    """A client of the agent `support`."""
    async with hosting(support(*script, **more)) as base, a2a_client(base, version=version, streams=streams) as peer:
        yield peer


@asynccontextmanager
async def waiting() -> AsyncIterator[tuple[str, asyncio.Event, asyncio.Event]]:
    """A server of an agent whose tool waits: its address, what lets the tool go on, and what says that it waits."""
    gate, begun = asyncio.Event(), asyncio.Event()

    @tool(effects="read")
    async def wait() -> str:
        """Wait."""
        assert not begun.is_set(), "called twice"
        begun.set()
        await gate.wait()
        return "waited"

    async with hosting(support(calls_tools(("wait", {})), "Done.", tools=(wait,))) as base:
        yield base, gate, begun
        gate.set()


def text_of(events: list[Any]) -> str:
    """The answer as a client puts it together from the pieces of its artifact."""
    text = ""
    for event in events:
        if event.HasField("artifact_update"):
            piece = get_artifact_text(event.artifact_update.artifact)
            text = text + piece if event.artifact_update.append else piece
    return text


# ── Cards ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_every_agent_has_a_card_that_needs_no_token(version: str) -> None:
    """The server's own is that of its first agent; each says where it is called, and that a token is needed."""
    async with hosting(support("hello"), support("bye", name="night shift")) as base:
        async with a2a_client(base, version=version, who=None) as peer:
            assert (peer.card.name, peer.card.description) == ("support", "Helps with orders.")
            assert peer.card.supported_interfaces[0].url == f"{base}/v1/a2a/support"
            assert peer.card.security_schemes["bearer"].http_auth_security_scheme.scheme == "Bearer"
            assert (peer.card.capabilities.streaming, peer.card.capabilities.push_notifications) == (True, False)
            assert "refund" not in str(peer.card)
            with pytest.raises(A2AClientError):
                await peer.send("hi")
        async with a2a_client(base, "night shift", version=version) as peer:
            assert peer.card.name == "night shift"
            assert text_of(await peer.send("hi")) == "bye"


async def test_a_known_caller_is_told_more_by_the_card(version: str) -> None:
    """The extended card names the tools."""
    async with talking("hello", version=version) as peer:
        card = await peer.client.get_extended_agent_card(GetExtendedAgentCardRequest())
        assert list(card.skills[0].tags) == ["artifact_fetch", "look", "refund"]


# ── Tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_message_starts_a_task_whose_answer_comes_in_pieces(version: str) -> None:
    """First the task, then its artifact, then its end; the same task can be read afterwards."""
    async with talking(says("hello, how can I help?"), version=version) as peer:
        events = await peer.send("hi", context=CONTEXT)
        task = events[0].task
        assert (bool(task.id), task.context_id) == (True, CONTEXT)
        assert text_of(events) == "hello, how can I help?"
        pieces = [event.artifact_update for event in events if event.HasField("artifact_update")]
        assert len(pieces) > 2
        assert pieces[-1].last_chunk
        assert peer.state(events[-1].status_update) == "completed"
        read = await peer.get(task.id)
        assert (peer.state(read), get_artifact_text(read.artifacts[0])) == ("completed", "hello, how can I help?")


async def test_a_client_that_does_not_stream_gets_the_task_once_it_has_ended(version: str) -> None:
    """The answer is its artifact."""
    async with talking("hello", version=version, streams=False) as peer:
        (event,) = await peer.send("hi")
        assert (peer.state(event.task), get_artifact_text(event.task.artifacts[0])) == ("completed", "hello")


async def test_an_answer_that_is_no_text_is_data(version: str) -> None:
    """An agent with a typed output gives its value."""

    class Order(msgspec.Struct):
        """An order."""

        number: int
        is_open: bool

    answer = msgspec.json.encode({"number": 7, "is_open": True}).decode()
    agent: Any = Agent("support", model=ScriptedLLM([answer]), output=Order)
    async with hosting(agent) as base, a2a_client(base, version=version) as peer:
        task = await peer.ask("which?")
        assert get_data_parts(task.artifacts[0].parts) == [{"number": 7, "is_open": True}]


@pytest.mark.parametrize("place", ["memory:", "sqlite:"])
async def test_files_of_the_tools_are_artifacts(place: str, version: str, tmp_path: Any) -> None:
    """As links that need no token, or as bytes where the storage has none; those of other runs are not among them."""

    @tool(effects="read")
    async def report() -> File:
        """Make a report."""
        return File(b"a,b\n1,2\n", name="report.csv", mime="text/csv")

    agent = support(calls_tools(("report", {})), "Done.", tools=(report,))
    storage = place if place == "memory:" else f"sqlite:{tmp_path / 'runs.db'}"
    quiet = support("Nothing.", name="quiet")
    async with hosting(agent, quiet, storage=storage) as base, a2a_client(base, version=version) as peer:
        events = await peer.send("go", context=CONTEXT)
        streamed = [event.artifact_update.artifact for event in events if event.HasField("artifact_update")]
        for artifacts in (streamed, (await peer.get(events[0].task.id)).artifacts):
            (file,) = [one for one in artifacts if one.name == "report.csv"]
            (part,) = file.parts
            assert part.media_type == "text/csv"
            if place == "memory:":
                assert part.raw == b"a,b\n1,2\n"
            else:
                assert part.url.startswith(f"{base}/artifacts/")
                async with httpx2.AsyncClient() as http:
                    assert (await http.get(part.url)).content == b"a,b\n1,2\n"
        async with a2a_client(base, "quiet", version=version) as other:
            assert [one.artifact_id for one in (await other.ask("go", context=CONTEXT)).artifacts] == ["answer"]


async def test_calls_are_told_while_the_task_works(version: str) -> None:
    """Each with its tool, and what came of it; the text before a call is no part of the answer."""
    async with talking(calls_tools(("look", {"order": "A-1"})), "On its way.", version=version) as peer:
        events = await peer.send("where?")
        changes = [event.status_update for event in events if event.HasField("status_update")]
        calls = [one.metadata["harborage"]["call"] for one in changes if "harborage" in one.metadata]
        assert [one["tool"] for one in calls] == ["look", "look"]
        assert len({one["id"] for one in calls}) == 1
        assert text_of(events) == "On its way."


async def test_what_is_sent_reaches_the_model(version: str) -> None:
    """Texts and JSON values as words, files as files."""
    model = ScriptedLLM(["seen"])
    agent: Any = Agent("support", model=model)
    async with hosting(agent) as base, a2a_client(base, version=version) as peer:
        await peer.ask("Read this:", {"order": "A-1"}, new_raw_part(b"a,b\n1,2\n", media_type="text/csv"))
        shown = str(model.requests[0])
        assert "Read this:" in user_text(model.requests[0])
        assert "A-1" in shown
        assert "csv" in shown


async def test_a_context_is_a_session_and_a_message_that_names_none_has_a_new_one(version: str) -> None:
    """It is made by its first message."""
    async with (
        Runtime([support("hello")], storage="memory:") as runtime,
        on_socket(runtime) as url,
        a2a_client(url.removesuffix("/mcp"), version=version) as peer,
    ):
        first, second = [(await peer.send("hi"))[0].task for _ in range(2)]
        assert first.context_id
        assert first.context_id != second.context_id
        await peer.send("hi", context=CONTEXT)
        assert len(await runtime.runs(who=Identity("acme", "ada", CONTEXT))) == 1


async def test_a_message_that_is_sent_again_starts_no_second_task(version: str) -> None:
    """Within its context its id names it; with other words it is refused."""
    async with talking("hello", version=version) as peer:
        first, again = [await peer.send("hi", context=CONTEXT, id="m-1") for _ in range(2)]
        assert first[0].task.id == again[0].task.id
        assert peer.state(again[0].task) == "completed"
        with pytest.raises(InvalidParamsError):
            await peer.send("something else", context=CONTEXT, id="m-1")


async def test_a_task_that_failed_says_why(version: str) -> None:
    """In the message of its status."""
    async with talking(RuntimeError("the model is gone"), version=version) as peer:
        events = await peer.send("hi")
        assert peer.state(events[-1].status_update) == "failed"
        assert get_message_text(events[-1].status_update.status.message)


# ── Questions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_message_in_its_task_approves_a_call(version: str) -> None:
    """The stream ends with the question, for people and for programs; the answer goes on with the same task."""
    async with talking(*ASKS, version=version) as peer:
        events = await peer.send("refund it", context=CONTEXT)
        asked, task = events[-1].status_update, events[0].task.id
        assert peer.state(asked) == "input_required"
        assert "`refund` waits for your approval" in get_message_text(asked.status.message)
        (told,) = get_data_parts(asked.status.message.parts)
        assert (told["tool"], told["args"], told["takes"]) == ("refund", {"order": "A-1", "euros": 5}, "approval")
        assert peer.state(await peer.get(task)) == "input_required"
        more = await peer.send("approve", task=task, context=CONTEXT)
        assert more[0].task.id == task
        assert (text_of(more), peer.state(more[-1].status_update)) == ("Done.", "completed")


async def test_a_rejection_and_a_verdict_as_data_are_answers_too() -> None:
    """The data may name the question, and other arguments."""
    async with talking(*ASKS) as peer:
        task = (await peer.send("refund it"))[0].task.id
        more = await peer.send("reject because it is too much", task=task)
        assert any("too much" in str(event) for event in more)
        assert text_of(more) == "Done."
    async with talking(*ASKS) as peer:
        events = await peer.send("refund it")
        (told,) = get_data_parts(events[-1].status_update.status.message.parts)
        edited = {"token": told["token"], "approved": True, "editedArgs": {"order": "A-1", "euros": 3}}
        more = await peer.send(edited, task=events[0].task.id)
        assert any("refunded 3 for A-1" in str(event) for event in more)


async def test_arguments_that_the_tool_does_not_take_are_asked_again() -> None:
    """The call keeps waiting, and the peer is told why at once; arguments that are left out stay as they were."""
    async with talking(*ASKS) as peer:
        task = (await peer.send("refund it"))[0].task.id
        for wrong in ({"order": 5}, {"order": "A-1", "euros": 3, "more": 1}):
            (event,) = await peer.send({"approved": True, "editedArgs": wrong}, task=task)
            assert peer.state(event.task) == "input_required"
            assert "does not take these arguments" in get_message_text(event.task.status.message)
        more = await peer.send({"approved": True, "editedArgs": {"euros": 3}}, task=task)
        assert any("refunded 3 for A-1" in str(event) for event in more)


async def test_arguments_that_only_the_worker_can_check_are_asked_again_too(tmp_path: Any) -> None:
    """The schema says nothing against them, so they are sent; the peer does not wait for a run that waits for it."""

    @tool(effects="external", approval="always")
    async def pay(euros: Decimal) -> str:
        """Pay an amount."""
        return f"paid {euros}"

    agent = support(calls_tools(("pay", {"euros": "5"})), "Done.", tools=(pay,))
    async with hosting(agent, storage=f"sqlite:{tmp_path}/db") as base, a2a_client(base, version="1.0") as peer:
        task = (await peer.send("pay it"))[0].task.id
        wrong = {"approved": True, "editedArgs": {"euros": "five"}}
        more = await peer.send(wrong, task=task)
        last = more[-1].status_update if more[-1].HasField("status_update") else more[-1].task
        assert peer.state(last) == "input_required"
        assert text_of(await peer.send("yes", task=task)) == "Done."


async def test_words_that_are_no_verdict_are_asked_again() -> None:
    """Nothing is sent to the run, and the client is told what to say."""
    async with talking(*ASKS) as peer:
        task = (await peer.send("refund it"))[0].task.id
        (event,) = await peer.send("what do you think?", task=task)
        assert peer.state(event.task) == "input_required"
        assert "neither yes nor no" in get_message_text(event.task.status.message)
        with pytest.raises(InvalidParamsError):
            await peer.send({"approved": "perhaps"}, task=task)


async def test_an_approval_that_is_sent_again_approves_nothing_else() -> None:
    """Its message id stands for one answer, also where the run asks something new by now."""
    asks_twice = [
        calls_tools(("refund", {"order": "A-1", "euros": 5})),
        calls_tools(("refund", {"order": "A-1", "euros": 500})),
        "Done.",
    ]
    async with talking(*asks_twice) as peer:
        task = (await peer.send("refund it"))[0].task.id
        for _ in range(2):
            more = await peer.send("yes", task=task, id="yes-1")
            last = more[-1].status_update if more[-1].HasField("status_update") else more[-1].task
            assert peer.state(last) == "input_required"
            assert "500" in get_message_text(last.status.message)
        assert text_of(await peer.send("yes", task=task, id="yes-2")) == "Done."


async def test_a_message_to_a_task_that_works_steers_it() -> None:
    """The planner is told; the stream goes on to the end."""
    async with waiting() as (base, gate, begun), a2a_client(base) as peer, a2a_client(base, streams=False) as other:
        task = (await other.send("go", return_immediately=True))[0].task.id
        async with asyncio.timeout(WITHIN_S):
            await begun.wait()
        told = peer.client.send_message(peer.types.SendMessageRequest(message=peer.message("be quick", task=task)))
        async with asyncio.timeout(WITHIN_S):
            assert peer.state((await anext(told)).task) == "working"
            gate.set()
            events = [event async for event in told]
        assert peer.state(events[-1].status_update) == "completed"
        with pytest.raises(UnsupportedOperationError):
            await peer.send("and then?", task=task)


# ── Cancel, subscribe, disconnect ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_task_can_be_cancelled_once(version: str) -> None:
    """Also one that waits for a person; one that has ended is not cancelled."""
    async with talking(*ASKS, version=version) as peer:
        task = (await peer.send("refund it"))[0].task.id
        assert peer.state(await peer.cancel(task)) == "canceled"
        assert peer.state(await peer.get(task)) == "canceled"
        with pytest.raises(TaskNotCancelableError):
            await peer.cancel(task)


async def test_a_client_that_leaves_can_subscribe_to_its_task(version: str) -> None:
    """The run goes on without it; the first event is the whole task, the last its end."""
    async with waiting() as (base, gate, _), a2a_client(base, version=version) as peer:
        message = peer.types.SendMessageRequest(message=peer.message("go"))
        async with asyncio.timeout(WITHIN_S):
            stream = peer.client.send_message(message)
            task = (await anext(stream)).task.id
            await stream.aclose()
            subscribed = peer.subscribe(task)
            assert peer.state((await anext(subscribed)).task) in ("submitted", "working")
            gate.set()
            events = [event async for event in subscribed]
        assert (text_of(events), peer.state(events[-1].status_update)) == ("Done.", "completed")
        with pytest.raises(UnsupportedOperationError):
            await anext(peer.subscribe(task))


async def test_a_client_that_does_not_wait_gets_a_task_that_works() -> None:
    """It is told at once, and asks later."""
    async with waiting() as (base, gate, _), a2a_client(base, streams=False) as peer, a2a_client(base) as follower:
        (event,) = await peer.send("go", return_immediately=True)
        assert peer.state(event.task) in ("submitted", "working")
        subscribed = follower.subscribe(event.task.id)
        async with asyncio.timeout(WITHIN_S):
            await anext(subscribed)
            gate.set()
            assert [one async for one in subscribed]
        assert peer.state(await peer.get(event.task.id)) == "completed"


# ── Whose ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_tasks_of_others_are_not_found(version: str) -> None:
    """Neither those of another user nor those of another tenant: they cannot be read, cancelled, followed or told."""
    async with hosting(support(*ASKS)) as base, a2a_client(base, version=version) as peer:
        task = (await peer.send("refund it", context=CONTEXT))[0].task.id
        for who in (BEN, EVE):
            async with a2a_client(base, who=who, version=version) as other:
                for attempt in (other.get(task), other.cancel(task), other.send("approve", task=task)):
                    with pytest.raises(TaskNotFoundError):
                        await attempt
                with pytest.raises(TaskNotFoundError):
                    await anext(other.subscribe(task))
        assert peer.state(await peer.get(task)) == "input_required"


async def test_lists_have_the_callers_own_tasks() -> None:
    """By context and state, page by page; those of another agent are not among them."""
    async with hosting(support("hello"), support("bye", name="other")) as base, a2a_client(base) as peer:
        for at in range(3):
            await peer.send("hi", context=f"c-{at % 2}")
        found = await peer.client.list_tasks(ListTasksRequest(page_size=2, include_artifacts=True))
        assert (len(found.tasks), found.total_size, found.page_size) == (2, 3, 2)
        assert get_artifact_text(found.tasks[0].artifacts[0]) == "hello"
        rest = await peer.client.list_tasks(ListTasksRequest(page_size=2, page_token=found.next_page_token))
        assert len({one.id for one in (*found.tasks, *rest.tasks)}) == 3
        assert not rest.tasks[0].artifacts
        assert len((await peer.client.list_tasks(ListTasksRequest(context_id="c-0"))).tasks) == 2
        for state, count in ((TaskState.TASK_STATE_COMPLETED, 3), (TaskState.TASK_STATE_WORKING, 0)):
            assert len((await peer.client.list_tasks(ListTasksRequest(status=state))).tasks) == count
        for bad in (ListTasksRequest(page_size=101), ListTasksRequest(page_token="x")):
            with pytest.raises(InvalidParamsError):
                await peer.client.list_tasks(bad)
        async with a2a_client(base, who=BEN) as other:
            assert not (await other.client.list_tasks(ListTasksRequest())).tasks
        async with a2a_client(base, "other") as other:
            assert not (await other.client.list_tasks(ListTasksRequest())).tasks
            with pytest.raises(TaskNotFoundError):
                await other.get(found.tasks[0].id)


async def test_a_token_says_who_asks() -> None:
    """One without a session is enough; a bad one is refused before anything is read."""
    mint = development_mint()
    token, _ = mint.sign("acme", "ada")
    async with Runtime([support("hello")], storage="memory:") as runtime:
        gate = TokenGate(verifier_of(mint), redactor=PatternRedactor())
        async with on_socket(runtime, gate) as url:
            base = url.removesuffix("/mcp")
            async with a2a_client(base, who=None, token=token) as peer:
                task = await peer.ask("hi", context=CONTEXT)
                assert peer.state(task) == "completed"
            async with a2a_client(base, who=None, token="bad") as peer:
                with pytest.raises(A2AClientError):
                    await peer.get(task.id)
        assert len(await runtime.runs(who=Identity("acme", "ada", CONTEXT))) == 1


# ── What is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_notifications_are_refused(version: str) -> None:
    """Both where they are set apart, and where they come with a message; nothing starts."""
    async with talking("hello", version=version) as peer:
        config = TaskPushNotificationConfig(task_id="t", id="c", url="https://example.com/hook")
        with pytest.raises(PushNotificationNotSupportedError):
            await peer.client.get_task_push_notification_config(
                GetTaskPushNotificationConfigRequest(task_id="t", id="c")
            )
        with pytest.raises(PushNotificationNotSupportedError):
            await peer.send("hi", task_push_notification_config=config)


async def test_a_message_that_cannot_be_used_is_refused() -> None:
    """What is said names the part."""
    async with talking("hello") as peer:
        with pytest.raises(ContentTypeNotSupportedError, match="fetches no address"):
            await peer.send(new_url_part("https://example.com/secret"))
        with pytest.raises(ContentTypeNotSupportedError, match="acceptedOutputModes"):
            await peer.send("hi", accepted_output_modes=["video/mp4"])
        with pytest.raises(InvalidParamsError, match="says nothing"):
            await peer.send(" ")
        with pytest.raises(InvalidParamsError, match="messageId"):
            await peer.send("hi", id="m" * 500)
        with pytest.raises(TaskNotFoundError):
            await peer.send("hi", task="no-such-task")
        with pytest.raises(TaskNotFoundError):
            await peer.get("no-such-task")
        task = await peer.ask("hi", context=CONTEXT)
        with pytest.raises(InvalidParamsError, match="contextId"):
            await peer.send("hi", task=task.id, context="another")


def body_of(method: str = "SendMessage", params: Any = None, **more: Any) -> dict[str, Any]:
    """A request of JSON-RPC."""
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params, **more}


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    """A server without a socket."""
    async with serving([support("hello")]) as found:
        yield found


RAW = {"raw": "YQ=="}
MESSAGE = {"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        ({"id": 1, "method": "GetTask"}, -32600),
        (body_of(id=[1]), -32600),
        (body_of(id=True), -32600),
        (body_of("tasks/list"), -32601),
        (body_of(params=[1]), -32602),
        (body_of(params={}), -32602),
        (body_of(params={"message": {**MESSAGE["message"], "role": "ROLE_AGENT"}}), -32602),
        (body_of(params={"message": {**MESSAGE["message"], "parts": []}}), -32602),
        (body_of(params={"message": {**MESSAGE["message"], "parts": [{"raw": "?"}]}}), -32005),
        (
            body_of(params={"message": {**MESSAGE["message"], "parts": [RAW | {"mediaType": "x" * 256}]}}),
            -32602,
        ),
        (
            body_of(params={"message": {**MESSAGE["message"], "parts": [RAW | {"filename": "x" * 256}]}}),
            -32602,
        ),
        (body_of(params={**MESSAGE, "tenant": "rival"}), -32602),
        (body_of(params={**MESSAGE, "configuration": {"historyLength": -1}}), -32602),
        (body_of("GetTask", {"id": "x", "historyLength": -1}), -32602),
        (body_of("ListTasks", {"status": "TASK_STATE_LOST"}), -32602),
        (body_of("ListTasks", {"statusTimestampAfter": "2026-01-01T00:00:00Z"}), -32004),
        (body_of("message/send", {"message": {**MESSAGE["message"], "role": "ROLE_USER"}}), -32602),
    ],
)
async def test_a_request_of_another_form_is_refused(body: Any, code: int) -> None:
    """With the code of JSON-RPC or of A2A, and the id of the request where it has one; nothing starts."""
    async with served() as found:
        reply = await found.wire.post("", body, path="/v1/a2a")
        assert (reply.status, reply.json["error"]["code"]) == (200, code)
        assert reply.json["error"]["message"]
        is_named = isinstance(body, dict) and body.get("id") == 7
        assert reply.json["id"] == (7 if is_named else None if not isinstance(body, dict) or "jsonrpc" in body else 1)
        assert (await found.rt.runs(who=ADA))[:] == ()


async def test_the_header_of_another_version_is_refused() -> None:
    """Any 1.x is spoken as 1.0; the method says the version where the header is missing."""
    async with served() as found:
        for given, is_good in (("1.0", True), ("1.7", True), ("2.0", False), ("0.3", False), ("", True)):
            params = {"message": {**MESSAGE["message"], "messageId": f"m-{given}"}}
            reply = await found.wire.post("", body_of(params=params), path="/v1/a2a", headers={"A2A-Version": given})
            assert ("result" in reply.json) is is_good, given
            if not is_good:
                assert reply.json["error"]["code"] == -32009
                assert reply.json["error"]["data"][0]["reason"] == "VERSION_NOT_SUPPORTED"


async def test_nobody_and_no_agent_are_refused() -> None:
    """By the status of HTTP; a session of the header and one of the message must agree."""
    async with served() as found:
        reply = await found.wire.post("", body_of(params=MESSAGE), path="/v1/a2a", who=None)
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert (await found.wire.post("", body_of(params=MESSAGE), path="/v1/a2a/nobody")).status == 404
        assert (await found.wire.request("GET", "/v1/a2a/nobody/.well-known/agent-card.json")).status == 404
        assert (await found.wire.request("GET", "/v1/a2a", headers=caller_headers(ADA))).status == 405
        named = {"message": {**MESSAGE["message"], "contextId": CONTEXT}}
        headers = {"X-Harbor-Session": "another"}
        reply = await found.wire.post("", body_of(params=named), path="/v1/a2a", headers=headers)
        assert reply.json["error"]["code"] == -32602


async def test_a_server_that_stops_takes_no_messages_and_ends_its_streams() -> None:
    """The last event is an error that says so; the run goes on."""
    gate = asyncio.Event()

    @tool(effects="read")
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "waited"

    async with serving([support(calls_tools(("wait", {})), "Done.", tools=(wait,))]) as found:
        body = msgspec.json.encode(body_of("SendStreamingMessage", MESSAGE))
        async with found.wire.open("POST", "/v1/a2a", caller_headers(ADA), body) as reader:
            first = msgspec.json.decode((await reader.part() or b"").removeprefix(b"data: "))
            found.server.drain()
            rest = b"".join([part async for part in reader])
            assert b"event: error" in rest
            assert b"stopping" in rest
        reply = await found.wire.post("", body_of(params=MESSAGE), path="/v1/a2a")
        assert reply.status == 503
        task = first["result"]["task"]
        run = await found.rt.run(task["id"], who=Identity("acme", "ada", task["contextId"]))
        assert not (await run.status()).phase.is_final
        gate.set()
        assert (await run.finished()).payload == "Done."


def test_the_server_needs_no_library_of_the_protocol() -> None:
    """The protocol is spoken without it."""
    code = "import harborage.server.application, sys; assert not {'a2a', 'google.protobuf'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
