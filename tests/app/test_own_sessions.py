"""The sessions that commands open."""

from __future__ import annotations

import pytest

from harborage.app.own_sessions import bring_artifacts, close_own, is_own, own_session
from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.identity import Identity
from harborage.planner import Finish, FinishReason, PauseReason, RequestPause
from harborage.runtime.host import Runtime
from harborage.state.storage import open_storage
from harborage.testing.clock import settle
from harborage.testing.planners import ScriptedPlanner

pytestmark = pytest.mark.anyio

MINE = Identity("local", "me", own_session("1"))
PROGRAMS = Identity("local", "me", "chat")


async def test_a_commands_session_is_closed_with_its_last_run() -> None:
    """Not while one of its runs waits, and never one that a program named."""
    planner = ScriptedPlanner([RequestPause(PauseReason.AWAIT_INPUT), Finish(FinishReason.GOAL)])
    async with await open_storage("memory:") as storage, Runtime(planner=planner, storage=storage) as runtime:
        for who, is_closed in ((MINE, True), (PROGRAMS, False)):
            run = await runtime.start("go", who=who)
            while not await run.waiting():
                await settle()
            assert not await close_own(runtime, storage.store, who)
            await run.resume()
            await run.result()
            assert await close_own(runtime, storage.store, who) is is_closed
            assert (await runtime.sessions.get(who.session_id, who=who)).closed is is_closed
        assert [is_own(who.session_id) for who in (MINE, PROGRAMS)] == [True, False]


async def test_artifacts_keep_their_ids_in_another_session() -> None:
    """What was recorded of them still leads to them."""
    store = MemoryArtifactStore()
    old, new = ArtifactScope.of(MINE), ArtifactScope.of(PROGRAMS)
    ref = await store.put_bytes(old, b"data", mime_type="text/plain", filename="a.txt", namespace="notes")
    await bring_artifacts(store, MINE, PROGRAMS)
    await bring_artifacts(store, MINE, PROGRAMS)
    (found,) = await store.list(new)
    assert (found.id, found.mime_type, found.filename, found.namespace) == (ref.id, "text/plain", "a.txt", "notes")
    assert await store.get(new, ref.id) == b"data"
