"""A runtime on a server: starts that happen once, conversations, lists page by page, and what does not travel."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harborage import Image
from harborage.artifacts import ArtifactScope
from harborage.client import Patience, RemoteError, connect
from harborage.errors import InvalidOptionError, UnknownOptionError
from harborage.identity import Identity, IdentityRequiredError
from harborage.runtime.chat import SessionBusyError
from harborage.runtime.durable.engine import RunNotFoundError, RunPhase
from harborage.runtime.loop.limits import Limits
from harborage.runtime.messages import Message, Speaker, earlier_messages
from harborage.store import RunQuery
from tests.app.test_media import PNG
from tests.kit.remote_host import Host
from tests.kit.served import token_of
from tests.kit.sockets import WITHIN_S
from tests.kit.wire import ADA, BEN

pytestmark = pytest.mark.anyio


async def runs_of(host: Host, who: Identity = ADA) -> list[str]:
    """The runs that there are of a user."""
    rows = await host.runtime.parts.store.runs(RunQuery(tenant=who.tenant_id, user=who.user_id))
    return [row.run_id for row in rows.rows]


async def test_a_start_whose_answer_is_lost_starts_one_run(host: Host) -> None:
    """Connections that are cut in the middle of answers cost attempts, never a second run."""
    left = iter([0, 10, 120, 60, 0])
    _, url = await host.proxy(lambda: next(left, 1 << 20))
    remote = await host.client(url=url)
    run = await remote.start("support", "Say hello", who=ADA)
    assert await runs_of(host) == [run.id]


async def test_a_key_names_one_run(host: Host) -> None:
    """The same key in the session is the same run; another request with it is refused."""
    first = await host.remote.start("support", "Say hello", who=ADA, key="k")
    assert (await host.remote.start("support", "Say hello", who=ADA, key="k")).id == first.id
    with pytest.raises(RemoteError) as caught:
        await host.remote.start("support", "Say something else", who=ADA, key="k")
    assert caught.value.code == "invalid_request"
    elsewhere = Identity(ADA.tenant_id, ADA.user_id, "s-9")
    assert (await host.remote.start("support", "Say hello", who=elsewhere, key="k")).id != first.id


async def test_an_agent_that_is_not_there_is_refused(host: Host) -> None:
    """The name is the server's; without one it is the first agent."""
    with pytest.raises(RemoteError) as caught:
        await host.remote.start("nobody", "Say hello", who=ADA)
    assert caught.value.code == "not_found"
    run = await host.remote.start("Say hello", who=ADA)
    assert (await run.status()).agent == "support"


async def test_the_token_says_for_whom_a_run_is(host: Host) -> None:
    """Without `who` it is the principal of the token; somebody else is refused."""
    run = await host.remote.start("support", "Say hello")
    assert run.who == ADA.with_run(run.id)
    assert await host.remote.identity() == ADA
    with pytest.raises(IdentityRequiredError):
        await host.remote.start("support", "Say hello", who=BEN)
    async with connect(host.url, token="opaque") as remote:
        with pytest.raises(IdentityRequiredError, match="who="):
            await remote.start("support", "Say hello")


async def test_one_token_serves_many_sessions(host: Host) -> None:
    """The session is the caller's choice; runs of one are not those of another."""
    other = Identity(ADA.tenant_id, ADA.user_id, "another")
    run = await host.remote.start("support", "Say hello", who=other)
    assert [one.run_id for one in await host.remote.runs(who=other)] == [run.id]
    assert [one.run_id for one in await host.remote.runs(who=ADA)] == []


async def test_runs_are_listed_page_by_page(host: Host) -> None:
    """Newest first, each once; a status narrows them."""
    runs = [await host.remote.start("support", "Say hello", who=ADA) for _ in range(5)]
    async with asyncio.timeout(WITHIN_S):
        for run in runs:
            await run.finished()
    found: list[str] = []
    after = ""
    while True:
        page = await host.remote.runs(who=ADA, limit=2, after=after)
        found += [one.run_id for one in page]
        after = page.next
        if not after:
            break
    assert found == [run.id for run in reversed(runs)]
    complete = await host.remote.runs(who=ADA, status="complete")
    assert {one.phase for one in complete} == {RunPhase.FINISHED}
    assert len(complete) == 5
    assert len(await host.remote.runs(who=ADA, status="waiting")) == 0


async def test_lists_refuse_what_they_cannot_do(host: Host) -> None:
    """A status that there is not, a page that is too large, a place that is none."""
    with pytest.raises(InvalidOptionError, match="status"):
        await host.remote.runs(who=ADA, status="sleeping")
    with pytest.raises(InvalidOptionError, match="limit"):
        await host.remote.runs(who=ADA, limit=201)
    with pytest.raises(InvalidOptionError, match="after"):
        await host.remote.pending(who=ADA, after="x")
    with pytest.raises(IdentityRequiredError):
        await host.remote.runs(who=Identity("", "", ""))


async def test_a_conversation_goes_on(host: Host) -> None:
    """Each message is a run of its session, one after the other; a busy one is refused where that is wanted."""
    chat = host.remote.session("support", who=ADA)
    async with asyncio.timeout(WITHIN_S):
        assert (await chat.send("Say hello")).output == "Hello there."
        slow = await chat.start("linger")
        refusing = host.remote.session("support", who=ADA, busy="refuse")
        with pytest.raises(SessionBusyError):
            await refusing.send("And now?")
        await slow.cancel(hard=True)
        async with chat.stream("nothing") as run:
            assert (await run.result()).output == "Nothing."


async def test_a_picture_goes_along(host: Host) -> None:
    """Files of a goal are put into the session first, and the run has them."""
    run = await host.remote.start("support", ["Say hello", Image(PNG)], who=ADA)
    async with asyncio.timeout(WITHIN_S):
        await run.finished()
    kept = await host.runtime.artifacts.list(ArtifactScope.of(ADA))
    assert [(ref.mime_type, ref.size_bytes) for ref in kept] == [("image/png", len(PNG))]


async def test_limits_tags_and_earlier_messages_travel(host: Host) -> None:
    """The run has them as one that is started here, and is found by its tags."""
    said = Message(role=Speaker.USER, text="My colour is blue."), Message(role=Speaker.ASSISTANT, text="Noted.")
    run = await host.remote.start(
        "support", "linger", who=ADA, limits=Limits(steps=1, seconds=60), tags={"shop": "porto"}, messages=said
    )
    other = await host.remote.start("support", "Say hello", who=ADA, tags={"shop": "lisbon"})
    assert [one.run_id for one in await host.remote.runs(who=ADA, tags={"shop": "porto"})] == [run.id]
    assert [one.run_id for one in await host.remote.runs(who=ADA, tags={"shop": "lisbon"}, status="complete")] in (
        [],
        [other.id],
    )
    assert [one.run_id for one in await host.runtime.runs(who=ADA, tags={"shop": "porto"})] == [run.id]
    record = await (await host.runtime.run(run.id, who=ADA)).history()
    assert earlier_messages(record) == said
    shown = await run.history()
    assert (shown.run.limits.steps, shown.run.limits.seconds) == (1, 60)
    with pytest.raises(InvalidOptionError, match="messages"):
        await host.remote.start("support", "hi", who=ADA, messages="hi")  # type: ignore[call-overload]
    with pytest.raises(InvalidOptionError, match="tags"):
        await host.remote.runs(who=ADA, tags={"": "x"})
    await run.cancel(hard=True)


async def test_what_does_not_travel_is_refused_by_name(host: Host) -> None:
    """Options of a local start that the protocol has not, and names that are no options at all."""
    options: list[dict[str, Any]] = [{"deps": 1}, {"max_steps": 3}]
    for option in options:
        with pytest.raises(UnknownOptionError, match="protocol has no such option"):
            await host.remote.start("support", "Say hello", who=ADA, **option)
    with pytest.raises(UnknownOptionError, match="did you mean priority"):
        await host.remote.start("support", "Say hello", who=ADA, prioritty=3)  # type: ignore[call-overload]
    with pytest.raises(InvalidOptionError, match="goal"):
        await host.remote.start("support", " ", who=ADA)
    with pytest.raises(InvalidOptionError, match="agent"):
        await host.remote.start(object(), "Say hello", who=ADA)  # type: ignore[call-overload]
    assert await runs_of(host) == []


async def test_a_handle_of_a_run_that_is_not_there(host: Host) -> None:
    """`run` looks it up, `get` does so at its first use; a run of another user is not there either."""
    run = await host.remote.start("support", "Say hello", who=ADA)
    assert (await host.remote.run(run.id, who=ADA)).id == run.id
    with pytest.raises(RunNotFoundError):
        await (await host.client(BEN)).run(run.id, who=BEN)
    with pytest.raises(InvalidOptionError):
        host.remote.get("", who=ADA)


async def test_the_events_of_a_session_are_watched_until_the_caller_stops(host: Host) -> None:
    """All runs of the session, from a number on."""
    run = await host.remote.start("support", "Say hello", who=ADA)
    async with asyncio.timeout(WITHIN_S):
        await run.finished()
        stream = host.remote.events(who=ADA, after=0, types=["task.completed"])
        event = await anext(stream)
        await stream.aclose()
    assert event.type == "task.completed"


async def test_a_client_outlives_a_server_that_is_gone_for_a_while(host: Host) -> None:
    """A request waits out a short absence, within its patience."""
    proxy, url = await host.proxy()
    proxy.is_down = True
    patience = Patience(first_pause=0.01, longest_pause=0.05, total=WITHIN_S, attempts=1000)
    async with connect(url, token=token_of(ADA), patience=patience) as remote, asyncio.TaskGroup() as group:
        starting = group.create_task(remote.start("support", "Say hello", who=ADA))
        await asyncio.wait({starting}, timeout=0.1)
        proxy.is_down = False
    assert await runs_of(host) == [starting.result().id]
