"""`runs.set_overrides` over a served runtime: what is accepted, for whom, and what the event tells."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent
from harborage.runtime.loop.seam import ModelOverrides
from harborage.runtime.overrides import take_overrides
from harborage.testing.llm import ScriptedLLM, says
from tests.kit.serving import STORAGES, Served, serving
from tests.kit.wire import ADA, BEN

pytestmark = pytest.mark.anyio


@pytest.fixture(params=STORAGES)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    """A server over a runtime with one agent."""
    async with serving(storage=request.param, folder=tmp_path) as one:
        yield one


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (None, ModelOverrides()),
        ({}, ModelOverrides()),
        ({"session_id": "s-1", "temperature": 1, "top_p": 1}, ModelOverrides(temperature=1, top_p=1)),
        ({"reasoning_effort": None, "temperature": None, "max_tokens": None}, ModelOverrides()),
        (
            {"reasoning_effort": "low", "max_tokens": 5, "system_prompt_override": "be kind"},
            ModelOverrides(reasoning_effort="low", max_tokens=5, system_prompt="be kind"),
        ),
    ],
)
async def test_what_is_set_waits_for_the_next_run(served: Served, overrides: Any, expected: ModelOverrides) -> None:
    """A blank set is legal; nobody else takes it."""
    reply = await served.wire.post("runs.set_overrides", {"identity": {}, "overrides": overrides})
    assert (reply.status, set(reply.json)) == (200, {"applied_at", "protocol_version"})
    assert not reply.json["applied_at"].startswith("0001")
    assert await take_overrides(served.rt.parts.state, BEN) is None
    assert await take_overrides(served.rt.parts.state, ADA) == expected


async def test_the_event_has_no_value(served: Served) -> None:
    """It says which fields were set, and by whom."""
    overrides = {"temperature": 0, "system_prompt_override": "s3cret"}
    await served.wire.post("runs.set_overrides", {"overrides": overrides})
    (event,) = await served.events("runs.overrides_set", ADA)
    actor = event.pop("Actor")
    assert (actor["TenantID"], actor["UserID"], actor["SessionID"]) == ("acme", "ada", "s-1")
    assert event == {
        "SessionID": "s-1",
        "SetReasoningEffort": False,
        "SetTemperature": True,
        "SetTopP": False,
        "SetMaxTokens": False,
        "SetSystemPrompt": True,
    }


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"overrides": {"session_id": "s-2", "temperature": 9}}, 403, "scope_mismatch"),
        ({"overrides": {"reasoning_effort": "extreme"}}, 400, "invalid_request"),
        ({"overrides": {"temperature": 2.5}}, 400, "invalid_request"),
        ({"overrides": {"temperature": "hot"}}, 400, "invalid_request"),
        ({"overrides": {"top_p": -1}}, 400, "invalid_request"),
        ({"overrides": {"max_tokens": 0}}, 400, "invalid_request"),
        ({"overrides": {"top_k": 1}}, 400, "invalid_request"),
        ({"identity": {"user": "ben"}, "overrides": {}}, 401, "identity_required"),
    ],
)
async def test_refusals_set_nothing(served: Served, body: Any, status: int, code: str) -> None:
    """Another session is refused before the values, for an admin, too."""
    for scopes in ((), ("admin",)):
        reply = await served.wire.post("runs.set_overrides", body, scopes=scopes)
        assert (reply.status, reply.code) == (status, code)
    assert await take_overrides(served.rt.parts.state, ADA) is None
    assert await served.events("runs.overrides_set") == []


async def test_the_next_start_over_the_wire_takes_them_once(tmp_path: Path) -> None:
    """Its model is asked with them, and that of the run after it is not."""
    model = ScriptedLLM([says("done")])
    async with serving([Agent("shop", model=model)], storage="sqlite", folder=tmp_path) as served:
        await served.wire.post("runs.set_overrides", {"overrides": {"temperature": 0.25}})
        found = []
        for who in (BEN, ADA, ADA):
            started = await served.wire.post("start", {"query": "go"}, who=who)
            run = await served.rt.run(started.json["task_id"], who=who)
            await run.result()
            found += [call.request.temperature for call in model.of(run.id)]
    assert found == [None, 0.25, None]
