"""A scoped view reaches its own scope and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from harborage.artifacts import (
    ArtifactError,
    ArtifactRef,
    ArtifactScope,
    IdentityRequiredError,
    MemoryArtifactStore,
    ScopedArtifacts,
    ScopeMismatchError,
)

SCOPE = ArtifactScope("tenant", "user", "session", "task")
OTHER = ArtifactScope("other", "user", "session", "task")


async def test_it_puts_reads_lists_and_deletes_in_its_scope() -> None:
    """Every verb works without naming the scope, by id and by reference."""
    store = MemoryArtifactStore()
    mine = ScopedArtifacts(store, SCOPE)
    ref = await mine.put_bytes(b"x", mime_type="a/b", filename="f", namespace="n", source={"tool": "t"})
    text = await mine.put_text("y", mime_type="c/d", filename="g", namespace="m", source={"tool": "u"})
    assert (ref.scope, ref.mime_type, ref.filename, ref.namespace, ref.source) == (
        SCOPE,
        "a/b",
        "f",
        "n",
        {"tool": "t"},
    )
    assert (text.mime_type, text.filename, text.namespace, text.source) == ("c/d", "g", "m", {"tool": "u"})
    assert await store.get(SCOPE, ref.id) == b"x"
    for handle in (ref, ref.id):
        assert await mine.get(handle) == b"x"
        assert await mine.get_ref(handle) == ref
        assert await mine.exists(handle)
    assert await mine.list() == [text, ref]
    assert [await mine.delete(ref), await mine.delete(ref.id)] == [True, False]
    assert await mine.get(ref) is None
    assert await mine.get_ref(ref) is None


async def test_a_reference_of_another_scope_is_refused() -> None:
    """A foreign reference is an error by every verb, and the foreign artifact stays."""
    store = MemoryArtifactStore()
    foreign = await store.put_bytes(OTHER, b"theirs")
    mine = ScopedArtifacts(store, SCOPE)
    for verb in (mine.get, mine.get_ref, mine.exists, mine.delete):
        with pytest.raises(ScopeMismatchError) as caught:
            await verb(foreign)
        assert caught.value.id == foreign.id
    assert await store.exists(OTHER, foreign.id)
    assert await mine.get(foreign.id) is None


class LeakyStore(MemoryArtifactStore):
    """A store that answers with another owner's reference."""

    async def get_ref(self, scope: ArtifactScope, id: str) -> ArtifactRef | None:
        ref = await super().get_ref(scope, id)
        return ref and msgspec.structs.replace(ref, scope=OTHER)

    async def list(self, scope: ArtifactScope) -> list[ArtifactRef]:
        return [msgspec.structs.replace(ref, scope=OTHER) for ref in await super().list(scope)]


async def test_a_store_that_answers_from_another_scope_is_caught() -> None:
    """What a driver returns is checked, not trusted."""
    mine = ScopedArtifacts(LeakyStore(), SCOPE)
    ref = await mine.put_bytes(b"x")
    with pytest.raises(ScopeMismatchError):
        await mine.get_ref(ref)
    with pytest.raises(ScopeMismatchError):
        await mine.list()


async def test_a_list_uses_the_whole_scope() -> None:
    """A task's view lists the task; a session's view lists its tasks too, and no other session."""
    store = MemoryArtifactStore()
    session = ArtifactScope("tenant", "user", "session")
    of_task, of_session = await store.put_bytes(SCOPE, b"task"), await store.put_bytes(session, b"session")
    await store.put_bytes(OTHER, b"foreign")
    assert await ScopedArtifacts(store, SCOPE).list() == [of_task]
    assert await ScopedArtifacts(store, session).list() == [of_session, of_task]


def test_it_needs_a_store_and_a_complete_scope() -> None:
    """Both are checked when it is made; the error says what is missing."""
    with pytest.raises(ArtifactError, match="needs a store"):
        ScopedArtifacts(None, SCOPE)
    with pytest.raises(IdentityRequiredError, match="user_id"):
        ScopedArtifacts(MemoryArtifactStore(), ArtifactScope("t", "", "s"))
