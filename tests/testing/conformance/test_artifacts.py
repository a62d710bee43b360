"""The suite for artifact stores catches the faults it is there for."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from harborage.artifacts import ArtifactRef, ArtifactScope, ArtifactStore, MemoryArtifactStore
from harborage.testing.conformance import artifacts as suite
from harborage.testing.conformance.checks import ConformanceError


class ForgetsTheTenant(MemoryArtifactStore):
    """Reads every tenant's artifacts."""

    async def get(self, scope: ArtifactScope, id: str) -> bytes | None:
        for ref in await super().list(ArtifactScope("", scope.user_id, scope.session_id)):
            if ref.id == id:
                return await super().get(ref.scope, id)
        return await super().get(scope, id)


class ReadsTasksFromTheSession(MemoryArtifactStore):
    """Shows a task's artifacts to a read for the session."""

    async def exists(self, scope: ArtifactScope, id: str) -> bool:
        return await super().exists(scope, id) or any(ref.id == id for ref in await super().list(scope))

    async def get(self, scope: ArtifactScope, id: str) -> bytes | None:
        for ref in await super().list(scope):
            if ref.id == id:
                return await super().get(ref.scope, id)
        return await super().get(scope, id)


class LastWordsWin(MemoryArtifactStore):
    """Replaces what was said of the same bytes."""

    async def put_bytes(self, scope: ArtifactScope, data: bytes, **words: Any) -> ArtifactRef:
        known = await super().put_bytes(scope, data, **words)
        await super().delete(scope, known.id)
        return await super().put_bytes(scope, data, **words)


class ListsExactlyOneTask(MemoryArtifactStore):
    """Does not take an empty task as any."""

    async def list(self, scope: ArtifactScope) -> builtins.list[ArtifactRef]:
        return [ref for ref in await super().list(scope) if ref.scope.task_id == scope.task_id]


class ListsInAnyOrder(MemoryArtifactStore):
    """Lists backwards."""

    async def list(self, scope: ArtifactScope) -> builtins.list[ArtifactRef]:
        return (await super().list(scope))[::-1]


class AlwaysDeletes(MemoryArtifactStore):
    """Says that it deleted what was not there."""

    async def delete(self, scope: ArtifactScope, id: str) -> bool:
        await super().delete(scope, id)
        return True


class SharesTheSource(MemoryArtifactStore):
    """Hands out its own dictionaries."""

    async def get_ref(self, scope: ArtifactScope, id: str) -> ArtifactRef | None:
        self._check(scope, "get_ref")
        stored = self._find(scope, id)
        return stored and stored.ref


class JoinsNames(MemoryArtifactStore):
    """Keys scopes by their joined names, in lower case."""

    async def put_bytes(self, scope: ArtifactScope, data: bytes, **words: Any) -> ArtifactRef:
        joined = msgspec.structs.replace(scope, tenant_id=scope.tenant_id.lower())
        return msgspec.structs.replace(await super().put_bytes(joined, data, **words), scope=scope)

    async def get_ref(self, scope: ArtifactScope, id: str) -> ArtifactRef | None:
        found = await super().get_ref(msgspec.structs.replace(scope, tenant_id=scope.tenant_id.lower()), id)
        return found and msgspec.structs.replace(found, scope=scope)


class AnswersAfterClose(MemoryArtifactStore):
    """Goes on after close."""

    async def aclose(self) -> None:
        """Do nothing."""


FAULTS: dict[type[MemoryArtifactStore], Callable[[ArtifactStore], object]] = {
    ForgetsTheTenant: suite.owners_never_meet,
    ReadsTasksFromTheSession: suite.a_task_is_a_scope_of_its_own,
    LastWordsWin: suite.the_same_bytes_are_one_artifact,
    ListsExactlyOneTask: suite.a_listing_takes_empty_parts_as_anything,
    ListsInAnyOrder: suite.a_listing_takes_empty_parts_as_anything,
    AlwaysDeletes: suite.deleting_removes,
    SharesTheSource: suite.callers_share_no_memory_with_the_store,
    JoinsNames: suite.names_that_look_alike_do_not_meet,
    AnswersAfterClose: suite.a_closed_store_says_so,
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_a_faulty_store_is_caught_by_the_scenario_for_its_fault(fault: type[MemoryArtifactStore]) -> None:
    """Each planted fault fails the suite, in the scenario that names it."""

    async def open_faulty() -> ArtifactStore:
        return fault()

    with pytest.raises(ExceptionGroup) as caught:
        await suite.run_conformance(open_faulty)
    notes = [note for error in caught.value.exceptions for note in error.__notes__]
    assert any(note.startswith(f"scenario {FAULTS[fault].__name__}:") for note in notes), notes


async def test_a_store_that_forgets_is_not_durable() -> None:
    """The durability check fails a store that starts empty each time."""

    async def open_memory() -> ArtifactStore:
        return MemoryArtifactStore()

    with pytest.raises(ConformanceError, match="after a restart"):
        await suite.check_durability(open_memory)


def test_the_list_has_every_scenario() -> None:
    """No scenario is written and then forgotten: each coroutine that takes a store is in the tuple, once."""
    wanted = {"store": "ArtifactStore", "return": "None"}
    written = [
        value
        for value in vars(suite).values()
        if getattr(value, "__module__", "") == suite.__name__ and getattr(value, "__annotations__", {}) == wanted
    ]
    assert list(suite.SCENARIOS) == written
    assert all(scenario.__doc__ for scenario in suite.SCENARIOS)
