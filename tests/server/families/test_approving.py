"""Approvals over the wire: arguments that are changed in place, and approvals that hold for more than one call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, tool
from harborage.identity import Identity
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.serving import STORAGES, Served, serving
from tests.kit.wire import ADA, BEN
from tests.server.families.test_control import begin, ended, outcome, to, waits

pytestmark = pytest.mark.anyio

TEA = {"item": "tea", "count": 20, "api_key": "k-123"}
OIL = {"item": "oil", "count": 1}
WITHIN_S = 20.0


class Shop:
    """Keeps what was ordered."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []

    def agent(self, *arguments: dict[str, Any]) -> Agent[Any, Any]:
        """An agent that makes these orders, one in each step."""

        @tool(effects="external", approval="always")
        async def order(item: str, count: int, api_key: str = "") -> str:
            """Order goods."""
            self.orders.append({"item": item, "count": count, "api_key": api_key})
            return "ordered"

        script = [*(calls_tools(("order", one)) for one in arguments), says("done")]
        return Agent("buyer", model=ScriptedLLM(script), tools=[order])


@pytest.fixture
def shop() -> Shop:
    """Nothing is ordered yet."""
    return Shop()


@pytest.fixture(params=STORAGES)
async def served(request: pytest.FixtureRequest, tmp_path: Path, shop: Shop) -> AsyncIterator[Served]:
    """A server whose agent orders tea twice, and then oil."""
    async with serving([shop.agent(TEA, TEA, OIL)], storage=request.param, folder=tmp_path) as one:
        yield one


async def approve(served: Served, run_id: str, event_id: str, who: Identity = ADA, **payload: Any) -> None:
    """Approve what a run waits for."""
    token = await waits(served, run_id, who)
    reply = await served.wire.post("approve", to(run_id, {"token": token, **payload}, event_id=event_id), who=who)
    assert reply.status == 200, reply.body


async def test_a_patch_changes_what_the_approver_changed(served: Served, shop: Shop) -> None:
    """Masked values stay what they are, although no approver ever saw them; the event says that it was edited."""
    run_id = await begin(served)
    await approve(served, run_id, "a", args_patch={"count": 12})
    await approve(served, run_id, "b", args_patch={"api_key": None, "item": "soap"})
    await approve(served, run_id, "c")
    await ended(served, run_id)
    assert shop.orders == [
        {"item": "tea", "count": 12, "api_key": "k-123"},
        {"item": "soap", "count": 20, "api_key": ""},
        {"item": "oil", "count": 1, "api_key": ""},
    ]
    approved = [(one["EventID"], one["Edited"]) for one in await served.events("tool.approved")]
    assert approved == [("a", True), ("b", True), ("c", False)]
    for pause in await served.events("tool.approval_requested"):
        assert "k-123" not in str(pause)


async def test_arguments_that_do_not_fit_leave_the_pause_open(served: Served, shop: Shop) -> None:
    """As a patch or as a whole: the control fails, and the call waits for another answer."""
    run_id = await begin(served)
    token = await waits(served, run_id)
    wrong: list[dict[str, Any]] = [
        {"args_patch": {"count": "x"}},
        {"args_patch": {"count": None}},
        {"args_patch": {"colour": "red"}},
        {"args": {"item": "tea"}},
    ]
    for at, payload in enumerate(wrong):
        await approve(served, run_id, f"e{at}", **payload)
        published = await outcome(served, f"e{at}")
        assert (published["Outcome"], published["Err"]) == ("failed", "payload_invalid"), payload
        assert await waits(served, run_id) == token
    assert not await served.events("pause.resumed")
    listed = (await served.wire.post("pause.list")).json["snapshots"]
    assert [one["token"] for one in listed] == [token]
    await approve(served, run_id, "right", args_patch={"count": 1})
    assert (await outcome(served, "right"))["Outcome"] == "applied"


async def test_an_approval_for_the_run_holds_for_its_tool(served: Served, shop: Shop) -> None:
    """Whatever the arguments; the next run asks again, and so does another principal's."""
    run_id = await begin(served)
    await approve(served, run_id, "a", remember="run")
    await ended(served, run_id)
    assert [one["count"] for one in shop.orders] == [20, 20, 1]
    assert len(await served.events("pause.requested")) == 1
    for who in (ADA, BEN):
        await waits(served, await begin(served, who), who)


async def test_an_approval_for_always_holds_for_the_arguments(served: Served, shop: Shop) -> None:
    """Of the call as it was patched, in every run of the principal, until it is revoked."""
    first = await begin(served)
    await approve(served, first, "a", remember="always")
    await approve(served, first, "b", args_patch={"count": 2}, remember="always")  # the second tea passed; this is oil
    await ended(served, first)
    second = await begin(served)
    await waits(served, second)
    assert len(shop.orders) == 5  # tea passes twice, and oil waits: two of it were allowed
    await waits(served, await begin(served, BEN), BEN)
    grants = await served.rt.grants.list(who=ADA)
    assert [(one.tool, str(one.remember), one.args) for one in grants] == [
        ("order", "always", {**TEA, "api_key": "***"}),
        ("order", "always", {"item": "oil", "count": 2}),
    ]
    assert [one.granted_by for one in grants] == [ADA, ADA]
    await served.rt.grants.revoke(grants[0].id, who=ADA)
    third = await begin(served)
    await waits(served, third)
    assert len(shop.orders) == 5


async def test_what_is_remembered_outlives_the_process(tmp_path: Path, shop: Shop) -> None:
    """For the run that goes on elsewhere, and for the runs of another process."""
    first, second = shop.agent(TEA, OIL), shop.agent(OIL, TEA)
    async with serving([first], storage="sqlite", folder=tmp_path) as served:
        run_id = await begin(served)
        await waits(served, run_id)
    async with serving([first], storage="sqlite", folder=tmp_path) as served:
        await approve(served, run_id, "a", remember="always")
        await waits(served, run_id)  # for the oil
        await approve(served, run_id, "b", remember="run")
        await ended(served, run_id)
    async with serving([second], storage="sqlite", folder=tmp_path) as served:
        (grant,) = await served.rt.grants.list(who=ADA)  # that of the run has ended with it
        assert str(grant.remember) == "always"
        run_id = await begin(served)
        await approve(served, run_id, "c")
        await ended(served, run_id)
    assert [one["item"] for one in shop.orders] == ["tea", "oil", "oil", "tea"]


async def test_only_the_approval_of_a_call_is_remembered(served: Served) -> None:
    """A rejection, and the pause of a run that a control parked, take neither a patch nor a memory."""
    run_id = await begin(served)
    token = await waits(served, run_id)
    reply = await served.wire.post("reject", to(run_id, {"token": token, "remember": "run"}, event_id="r"))
    assert reply.status == 200
    assert (await outcome(served, "r"))["Err"] == "payload_invalid"
    await served.wire.post("pause", to(run_id, event_id="p"))
    await approve(served, run_id, "a", remember="run")
    assert (await outcome(served, "p"))["Outcome"] == "applied"
    run = await served.rt.run(run_id, who=ADA)
    async with asyncio.timeout(WITHIN_S):
        pause = await run.wait_pending()
    assert pause.tool == ""
    body = to(run_id, {"token": pause.token, "remember": "run"}, event_id="b")
    assert (await served.wire.post("approve", body)).status == 200
    assert (await outcome(served, "b"))["Err"] == "payload_invalid"
    assert len(await run.waiting()) == 1


async def test_events_name_the_step_and_the_call(served: Served) -> None:
    """The same in all events of a call, one for each; the question says who may answer it, and until when."""
    run_id = await begin(served)
    await approve(served, run_id, "a", remember="run")
    await ended(served, run_id)
    for kind in ("pause.requested", "tool.approval_requested", "tool.approved"):
        (event,) = await served.events(kind)
        assert (event["Step"], event["CallID"]) == (1, "1"), kind
    (asked,) = await served.events("pause.requested")
    assert (asked["Default"], asked["Approvers"]) == ("reject", ["user:ada", "scope:admin"])
    assert asked["Deadline"].endswith("Z")
    for kind in ("tool.invoked", "tool.completed"):
        assert [(one["Step"], one["CallID"]) for one in await served.events(kind)] == [(1, "1"), (2, "2"), (3, "3")]
    assert [one["Step"] for one in await served.events("planner.decision")] == [1, 2, 3, 4]
    second = await begin(served)
    await waits(served, second)
    await served.wire.post("user_message", to(second, {"message": "hi"}, event_id="m"))
    await approve(served, second, "b")
    assert (await outcome(served, "m"))["Step"] == 2


async def test_calls_side_by_side_have_ids_of_their_own(tmp_path: Path, shop: Shop) -> None:
    """By step and branch, counted from 1."""
    agent = shop.agent(TEA)
    both = calls_tools(("order", TEA), ("order", OIL))
    agent = agent.replace(model=ScriptedLLM([both, says("done")]))
    async with serving([agent], storage="sqlite", folder=tmp_path) as served:
        run_id = await begin(served)
        run = await served.rt.run(run_id, who=ADA)
        async with asyncio.timeout(WITHIN_S):
            while len(await run.pending()) < 2:
                await run.wait_pending()
        asked = [(one["Step"], one["CallID"]) for one in await served.events("tool.approval_requested")]
        assert sorted(asked) == [(1, "1.1"), (1, "1.2")]
