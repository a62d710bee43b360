"""The runs and open questions of a session, page by page."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from harborage import Agent, Identity, Runtime, tool
from harborage.errors import InvalidOptionError
from harborage.identity import IdentityRequiredError
from harborage.ids import new_id
from harborage.runtime.durable.engine import RunPhase
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.postgres_fixtures import server
from tests.kit.tables import each_row

__all__ = ["server"]

pytestmark = pytest.mark.anyio

PORTO = {"shop": "porto", "kind": "a b"}


@tool(effects="external", approval="always")
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def storage(request: pytest.FixtureRequest, tmp_path: Any) -> str | None:
    """Where the runs are."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("server").url
        return url
    return None if request.param == "memory" else f"sqlite:{tmp_path / 'runs.db'}"


@pytest.fixture
def me() -> Identity:
    """Somebody who has no runs yet."""
    return Identity("t", "u", new_id())


def talker() -> Agent[Any, Any]:
    """An agent that says one thing."""
    return Agent("talker", model=ScriptedLLM([says("hello")]))


async def test_runs_are_listed_newest_first_and_page_by_page(storage: str | None, me: Identity) -> None:
    """Each page goes on behind the one before, and the last says that it is the last."""
    agent = talker()
    async with Runtime([agent], storage=storage) as rt:
        ids = []
        for n in range(5):
            run = await rt.start(agent, f"goal {n}", who=me, tags={"n": str(n % 2), **PORTO})
            await run.result()
            ids.insert(0, run.id)
        await (await rt.start(agent, "mine", who=replace(me, user_id="v"), tags=PORTO)).result()
        first = await rt.runs(who=me, limit=2)
        second = await rt.runs(who=me, limit=2, after=first.next)
        last = await rt.runs(who=me, limit=2, after=second.next)
        assert [one.run_id for one in (*first, *second, *last)] == ids
        assert (len(first), len(last), bool(first.next), last.next) == (2, 1, True, "")
        assert (first[0].goal, first[0].phase, first[0].tags) == (
            "goal 4",
            RunPhase.FINISHED,
            {"n": "0", **PORTO},
        )
        whole = await rt.runs(who=me, limit=5)
        assert (len(whole), whole.next) == (5, "")


async def test_runs_are_found_by_all_their_tags_and_their_status(storage: str | None, me: Identity) -> None:
    """A tag is the whole name and the whole text; nothing is a pattern."""
    model = ScriptedLLM([says("done")], by_text={"two": [calls_tools(("refund", {"order": "7"}))]})
    agent = Agent("shop", tools=[refund], model=model)
    async with Runtime([agent], storage=storage) as rt:
        done = await rt.start(agent, "one", who=me, tags={"shop": "porto", "Rate": "100%_\\"})
        await done.result()
        asks = await rt.start(agent, "two", who=me, tags={"shop": "lisbon"})
        await asks.wait_pending()

        async def found(**wanted: Any) -> list[str]:
            return [one.run_id for one in await rt.runs(who=me, **wanted)]

        assert await found(status="waiting") == [asks.id]
        assert await found(status="complete") == [done.id]
        assert await found(status="failed") == await found(status="blocked") == []
        assert await found(tags={"shop": "porto"}) == [done.id]
        assert await found(tags={"shop": "porto", "Rate": "100%_\\"}) == [done.id]
        for absent in ({"shop": "Porto"}, {"shop": "port"}, {"shop": "porto", "x": "y"}, {"Rate": "100%%"}):
            assert await found(tags=absent) == []
        assert await found(tags={"shop": "porto"}, status="waiting") == []


async def test_open_questions_are_answered_from_their_list(storage: str | None, me: Identity) -> None:
    """Those of the session alone, newest first; one that was answered is not there any more."""
    model = ScriptedLLM([calls_tools(("refund", {"order": "7"})), says("done")])
    agent = Agent("shop", tools=[refund], model=model)
    async with Runtime([agent], storage=storage) as rt:
        runs = [await rt.start(agent, "refund", who=who) for who in (me, me, me, replace(me, tenant_id="x"))]
        for run in runs:
            await run.wait_pending()
        first = await rt.pending(who=me, limit=2)
        rest = await rt.pending(who=me, limit=2, after=first.next)
        assert {one.run_id for one in (*first, *rest)} == {run.id for run in runs[:3]}
        assert (len(first), len(rest), rest.next, first[0].tool) == (2, 1, "", "refund")
        for one in (*first, *rest):
            await one.approve()
        for run in runs[:3]:
            assert (await run.result()).output == "done"
        assert len(await rt.pending(who=me)) == 0
        await runs[3].cancel(hard=True)


@each_row(
    "method, wanted, text",
    [
        ("runs", {"status": "parked"}, "runs: status='parked': expected one of 'pending'"),
        ("runs", {"status": "wating"}, "did you mean 'waiting'?"),
        ("runs", {"limit": 0}, "runs: limit=0: expected a whole number from 1 on"),
        ("runs", {"limit": 1001}, "a number up to 1000; read on with after=page.next"),
        ("runs", {"limit": True}, "runs: limit=True"),
        ("runs", {"after": "7"}, "runs: after='7': expected the `next` of the page before"),
        ("runs", {"after": 7}, "the `next` of the page before"),
        ("runs", {"tags": {"a": 1}}, "runs: tags"),
        ("pending", {"after": "x-y"}, "pending: after='x-y'"),
        ("pending", {"limit": -1}, "pending: limit=-1"),
    ],
)
async def test_a_list_that_cannot_be_is_refused(method: str, wanted: dict[str, Any], text: str) -> None:
    """By the name of what is wrong."""
    me = Identity("t", "u", "s")
    async with Runtime([talker()]) as rt:
        with pytest.raises(InvalidOptionError) as caught:
            await getattr(rt, method)(who=me, **wanted)
        assert text in str(caught.value)
        with pytest.raises(IdentityRequiredError):
            await getattr(rt, method)(who=None)
