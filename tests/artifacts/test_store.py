"""A store seen through one scope, and drivers by name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harborage.artifacts import (
    ARTIFACT_DRIVERS,
    ArtifactConfig,
    ArtifactError,
    ArtifactRef,
    ArtifactScope,
    ArtifactScopeError,
    ArtifactStorageError,
    FileArtifactStore,
    IdentityRequiredError,
    MemoryArtifactStore,
    ScopedArtifacts,
    open_artifacts,
)
from harborage.drivers import DriverTable, DriverUnknownError
from harborage.errors import InvalidOptionError

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
        with pytest.raises(ArtifactScopeError) as caught:
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
    with pytest.raises(ArtifactScopeError):
        await mine.get_ref(ref)
    with pytest.raises(ArtifactScopeError):
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


def test_the_table_names_the_drivers_there_are() -> None:
    """Memory and files are built in."""
    assert ARTIFACT_DRIVERS.names() == ["fs", "inmem"]


@pytest.mark.parametrize("name", ["", "inmem"])
async def test_a_blank_driver_name_means_memory(name: str) -> None:
    """The default keeps everything in memory."""
    assert isinstance(await open_artifacts(ArtifactConfig(driver=name)), MemoryArtifactStore)


async def test_files_are_kept_where_the_configuration_says(tmp_path: Path) -> None:
    """The fs driver stores below its root, which it makes."""
    store = await open_artifacts(ArtifactConfig(driver="fs", fs_root=str(tmp_path / "deep" / "root")))
    assert isinstance(store, FileArtifactStore)
    assert (tmp_path / "deep" / "root").is_dir()
    await store.put_bytes(ArtifactScope("t", "u", "s"), b"x")
    assert (tmp_path / "deep" / "root" / "t").is_dir()
    await store.aclose()


async def test_files_need_a_folder() -> None:
    """Without a root the error names the setting."""
    with pytest.raises(InvalidOptionError, match=r"artifacts\.fs_root"):
        await open_artifacts(ArtifactConfig(driver="fs"))


async def test_a_folder_that_cannot_be_made_fails_at_once(tmp_path: Path) -> None:
    """Opening names the path that is in the way, instead of the first put."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ArtifactStorageError, match="file") as caught:
        await open_artifacts(ArtifactConfig(driver="fs", fs_root=str(tmp_path / "file" / "root")))
    assert str(tmp_path / "file") in caught.value.path


async def test_a_negative_threshold_is_refused() -> None:
    """Zero is a real value, less is not."""
    await (await open_artifacts(ArtifactConfig(heavy_output_threshold_bytes=0))).aclose()
    with pytest.raises(InvalidOptionError, match="heavy_output_threshold_bytes=-1"):
        await open_artifacts(ArtifactConfig(heavy_output_threshold_bytes=-1))


async def test_an_unknown_driver_lists_those_there_are() -> None:
    """The error names what was asked for and what could have been, or `<none>`."""
    with pytest.raises(DriverUnknownError, match=r"artifacts: unknown driver tape \(registered: fs,inmem\)"):
        await open_artifacts(ArtifactConfig(driver="tape"))
    with pytest.raises(DriverUnknownError, match="<none>"):
        await open_artifacts(ArtifactConfig(), drivers=DriverTable("artifacts"))


def test_the_defaults_are_those_of_the_documentation() -> None:
    """Memory, and results from 32 KiB on become artifacts."""
    assert ArtifactConfig() == ArtifactConfig(driver="inmem", fs_root="", heavy_output_threshold_bytes=32768)
