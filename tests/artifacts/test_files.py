"""The artifact store on disk keeps the port's contract, survives restarts and says clearly what the disk refuses."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from harborage import codec
from harborage.artifacts import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ArtifactRef,
    ArtifactScope,
    ArtifactStorageError,
    ArtifactStore,
    FileArtifactStore,
    UnsafePathError,
    files,
    folder,
    values,
)
from harborage.artifacts.folder import META_SUFFIX, TEMP_FOLDER
from harborage.artifacts.values import candidate_ids
from harborage.ids import new_id
from harborage.testing.conformance.artifacts import SCENARIOS, Scenario, check, check_durability

SCOPE = ArtifactScope("tenant", "user", "session")
PLACE = Path("tenant", "user", "session", "_", "default")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the store under test keeps its files: a folder inside one that tests can watch."""
    return tmp_path / "root"


def bytes_of(root: Path, ref: ArtifactRef) -> Path:
    """The file with the artifact's bytes."""
    return root / PLACE / ref.id


def entry_of(root: Path, ref: ArtifactRef) -> Path:
    """The file with what is known of the artifact."""
    return root / PLACE / f"{ref.id}{META_SUFFIX}"


def files_below(place: Path) -> list[str]:
    """Every file below a folder, by its relative name."""
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_it_keeps_the_contract(scenario: Scenario, root: Path) -> None:
    """Every scenario of the port's suite holds."""

    async def open_files() -> ArtifactStore:
        return await FileArtifactStore.open(root / new_id())

    await check(scenario, open_files)


async def test_it_survives_a_restart(root: Path) -> None:
    """A store opened on the same folder finds everything, under the oddest names."""

    async def open_same() -> ArtifactStore:
        return FileArtifactStore(root)

    await check_durability(open_same)


async def test_the_layout_is_readable(root: Path) -> None:
    """Bytes lie under tenant, user, session, task and namespace, and their entry beside them; nothing else is left."""
    store = FileArtifactStore(root)
    ref = await store.put_text(ArtifactScope("tenant", "user", "session", "task"), "hello", namespace="notes")
    assert files_below(root) == [
        f"tenant/user/session/task/notes/{ref.id}",
        f"tenant/user/session/task/notes/{ref.id}{META_SUFFIX}",
    ]
    assert (root / f"tenant/user/session/task/notes/{ref.id}").read_text() == "hello"
    plain = await store.put_text(SCOPE, "hello")
    assert bytes_of(root, plain).read_text() == "hello"
    assert codec.decode(entry_of(root, plain).read_bytes(), ArtifactRef) == plain
    await store.aclose()


async def test_making_a_store_touches_nothing(root: Path) -> None:
    """The folder is made by the first call, or by opening."""
    store = FileArtifactStore(root)
    assert os.listdir(root.parent) == []
    await store.list(SCOPE)
    assert os.listdir(root.parent) == [root.name]
    await store.aclose()


async def test_opening_removes_what_an_interrupted_write_left(root: Path) -> None:
    """Temporary files of a process that died go; other files stay."""
    (root / TEMP_FOLDER).mkdir(parents=True)
    (root / TEMP_FOLDER / "tmp.01JUNK").write_text("half")
    (root / "README").write_text("keep me")
    store = await FileArtifactStore.open(root)
    assert files_below(root) == ["README"]
    await store.aclose()


async def test_a_deleted_session_leaves_no_folder(root: Path) -> None:
    """Empty folders go with the last artifact in them; a neighbour's stay."""
    store = FileArtifactStore(root)
    neighbour = await store.put_bytes(ArtifactScope("tenant", "user", "neighbour"), b"y")
    ref = await store.put_bytes(SCOPE, b"x")
    await store.delete(SCOPE, ref.id)
    assert not (root / "tenant" / "user" / "session").exists()
    assert await store.exists(neighbour.scope, neighbour.id)
    await store.aclose()


@pytest.mark.parametrize("part", ["tenant_id", "user_id", "session_id", "task_id"])
@pytest.mark.parametrize("name", ["..", "../../outside", "a/../../outside", "..\\outside", ".", "/../outside"])
async def test_a_scope_that_climbs_is_refused(tmp_path: Path, part: str, name: str) -> None:
    """No put with a name that leads up does anything, inside the folder or outside; reads find nothing there."""
    scope = msgspec.structs.replace(SCOPE, **{part: name})
    store = FileArtifactStore(tmp_path / "root")
    (tmp_path / "outside").mkdir()
    with pytest.raises(UnsafePathError, match="would lead out"):
        await store.put_bytes(scope, b"x")
    with pytest.raises(UnsafePathError):
        await store.put_bytes(SCOPE, b"x", namespace=name)
    assert await store.get(scope, "default_0") is None
    assert await store.delete(scope, "default_0") is False
    assert await store.list(scope) == []
    assert files_below(tmp_path) == []
    await store.aclose()


async def test_a_link_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    """A link inside the folder to somewhere else is refused by put, get and delete, and left out of lists."""
    outside = tmp_path / "outside"
    away = FileArtifactStore(outside)
    ref = await away.put_bytes(SCOPE, b"secret")
    await away.aclose()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "tenant").symlink_to(outside / "tenant")
    before = files_below(outside)
    store = FileArtifactStore(tmp_path / "root")
    for call in (store.put_bytes(SCOPE, b"x"), store.get(SCOPE, ref.id), store.delete(SCOPE, ref.id)):
        with pytest.raises(UnsafePathError, match="link"):
            await call
    assert await store.list(SCOPE) == []
    assert await store.list(ArtifactScope("", "", "")) == []
    assert files_below(outside) == before
    await store.aclose()


async def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    """An operator may put the whole store elsewhere by a link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "disk")
    store = FileArtifactStore(tmp_path / "root")
    ref = await store.put_bytes(SCOPE, b"x")
    assert await store.get(SCOPE, ref.id) == b"x"
    await store.aclose()


def refuse(code: int, times: int = 1_000_000) -> Callable[..., None]:
    """A system call that fails `times` times as a disk would, and does nothing after that."""
    left = times

    def fail(*_: object) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize(
    ("call", "code", "advice"),
    [
        ("fsync", errno.ENOSPC, "free some space"),
        ("fsync", errno.EDQUOT, "quota"),
        ("replace", errno.EROFS, "read-only"),
        ("replace", errno.EACCES, "right"),
        ("replace", errno.EIO, "can be written"),
    ],
)
async def test_a_disk_that_refuses_is_named_with_what_to_do(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, advice: str
) -> None:
    """A full, read-only or broken disk gives an error with the path, the reason and a remedy; nothing half is left."""
    store = await FileArtifactStore.open(root)
    with monkeypatch.context() as broken:
        broken.setattr(folder.os, call, refuse(code))
        with pytest.raises(ArtifactStorageError, match=advice) as caught:
            await store.put_bytes(SCOPE, b"x")
    assert caught.value.path.startswith(str(root))
    assert caught.value.reason == os.strerror(code)
    assert isinstance(caught.value.__cause__, OSError)
    assert files_below(root) == []
    ref = await store.put_bytes(SCOPE, b"x")
    assert await store.get(SCOPE, ref.id) == b"x"
    await store.aclose()


async def test_a_folder_that_cannot_be_made_names_the_path(tmp_path: Path) -> None:
    """A file in the way of the folder is named, by opening and by the first call alike; no thread is left."""
    (tmp_path / "file").write_text("in the way")
    threads = own_threads()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ArtifactStorageError, match="a file is in the way") as caught:
            await FileArtifactStore.open(place)
        assert caught.value.path.startswith(str(tmp_path / "file"))
        store = FileArtifactStore(place)
        with pytest.raises(ArtifactStorageError, match="a file is in the way"):
            await store.get(SCOPE, "default_0")
        await store.aclose()
    assert own_threads() == threads


def own_threads() -> set[threading.Thread]:
    """The threads that are none of an event loop's own pool, which grows as it likes."""
    return {one for one in threading.enumerate() if not one.name.startswith("asyncio_")}


async def test_a_write_cut_short_between_bytes_and_entry_is_invisible(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes whose entry was never written are no artifact, and putting them again completes it."""
    store = FileArtifactStore(root)
    write_file = folder.write_file

    def stop_at_entries(path: Path, data: bytes, temp: Path) -> None:
        if path.name.endswith(META_SUFFIX):
            raise OSError(errno.EIO, "power cut")
        write_file(path, data, temp)

    with monkeypatch.context() as broken:
        broken.setattr(folder, "write_file", stop_at_entries)
        with pytest.raises(ArtifactStorageError):
            await store.put_bytes(SCOPE, b"x")
    assert len(files_below(root)) == 1
    assert await store.list(SCOPE) == []
    assert await store.get(SCOPE, f"default_{values.sha256_hex(b'x')[:12]}") is None
    ref = await store.put_bytes(SCOPE, b"x")
    assert await store.get(SCOPE, ref.id) == b"x"
    await store.aclose()


TORN = [b"", b"{", b'{"id":"default_0","mime', b"\xff\xfe\x00", b"[]", b'{"id": 5}', b"\0" * 64]


@pytest.mark.parametrize("torn", TORN)
async def test_a_torn_entry_is_a_clear_error_and_hurts_no_other_run(
    root: Path, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading it names the damaged file; lists leave it out and say so; the other artifacts are as they were."""
    store = FileArtifactStore(root)
    bad, good = await store.put_bytes(SCOPE, b"bad"), await store.put_bytes(SCOPE, b"good")
    entry_of(root, bad).write_bytes(torn)
    await store.aclose()

    store = await FileArtifactStore.open(root)
    for call in (store.get(SCOPE, bad.id), store.get_ref(SCOPE, bad.id), store.exists(SCOPE, bad.id)):
        with pytest.raises(ArtifactCorruptError, match=r"is damaged .*put the artifact again or delete it") as caught:
            await call
        assert caught.value.path == str(entry_of(root, bad))
    with caplog.at_level(logging.WARNING, logger="harborage.artifacts.folder"):
        assert await store.list(SCOPE) == [good]
    assert str(entry_of(root, bad)) in caplog.text
    assert await store.get(SCOPE, good.id) == b"good"
    await store.aclose()


async def test_putting_again_mends_a_torn_entry(root: Path) -> None:
    """The same bytes give the same id back, with the words of the new put."""
    store = FileArtifactStore(root)
    ref = await store.put_bytes(SCOPE, b"x", filename="old")
    entry_of(root, ref).write_bytes(b"{")
    again = await store.put_bytes(SCOPE, b"x", filename="new")
    assert (again.id, again.filename) == (ref.id, "new")
    assert await store.get(SCOPE, ref.id) == b"x"
    await store.aclose()


async def test_deleting_removes_a_torn_entry(root: Path) -> None:
    """A damaged artifact can be deleted, and is gone then."""
    store = FileArtifactStore(root)
    ref = await store.put_bytes(SCOPE, b"x")
    entry_of(root, ref).write_bytes(b"{")
    assert [await store.delete(SCOPE, ref.id), await store.delete(SCOPE, ref.id)] == [True, False]
    assert files_below(root) == []
    await store.aclose()


async def test_a_torn_entry_of_other_content_keeps_its_id(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New content never takes over the id of a damaged artifact whose bytes are different."""
    share_short_ids(monkeypatch)
    store = FileArtifactStore(root)
    bad = await store.put_bytes(SCOPE, b"bad")
    entry_of(root, bad).write_bytes(b"{")
    other = await store.put_bytes(SCOPE, b"other")
    assert other.id != bad.id
    assert bytes_of(root, bad).read_bytes() == b"bad"
    await store.aclose()


async def test_vanished_bytes_are_not_found_until_they_are_put_again(root: Path) -> None:
    """An entry without bytes is an error that names the artifact; what is known of it is still told."""
    store = FileArtifactStore(root)
    ref = await store.put_bytes(SCOPE, b"x", filename="first")
    bytes_of(root, ref).unlink()
    with pytest.raises(ArtifactNotFoundError, match="bytes are gone") as caught:
        await store.get(SCOPE, ref.id)
    assert caught.value.id == ref.id
    assert await store.get_ref(SCOPE, ref.id) == ref
    assert await store.put_bytes(SCOPE, b"x", filename="second") == ref
    assert await store.get(SCOPE, ref.id) == b"x"
    await store.aclose()


async def test_changed_bytes_are_never_returned(root: Path) -> None:
    """Content that no longer matches its hash is an error that names the file, until it is put again."""
    store = FileArtifactStore(root)
    ref = await store.put_bytes(SCOPE, b"right")
    bytes_of(root, ref).write_bytes(b"wrong")
    with pytest.raises(ArtifactCorruptError, match="does not match its hash") as caught:
        await store.get(SCOPE, ref.id)
    assert caught.value.path == str(bytes_of(root, ref))
    assert await store.put_bytes(SCOPE, b"right") == ref
    assert await store.get(SCOPE, ref.id) == b"right"
    await store.aclose()


def share_short_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all content have the same first twelve digits of its hash."""
    fake = lambda data: "a" * 12 + hashlib.sha256(data).hexdigest()[:52]  # noqa: E731
    monkeypatch.setattr(files, "sha256_hex", fake)
    monkeypatch.setattr(folder, "sha256_hex", fake)


async def test_contents_with_the_same_short_hash_are_kept_apart(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole hash is compared: other content under a taken id gets a longer one, and keeps it over a restart."""
    share_short_ids(monkeypatch)
    store = FileArtifactStore(root)
    one, two = await store.put_bytes(SCOPE, b"one"), await store.put_bytes(SCOPE, b"two")
    assert (one.id, len(two.id) - len(one.id)) == ("default_aaaaaaaaaaaa", 4)
    await store.delete(SCOPE, one.id)
    await store.aclose()

    store = FileArtifactStore(root)
    assert await store.put_bytes(SCOPE, b"two") == two
    assert await store.list(SCOPE) == [two]
    assert await store.get(SCOPE, one.id) is None
    assert await store.get(SCOPE, two.id) == b"two"
    await store.aclose()


async def test_a_file_system_that_ignores_case_does_not_mix_owners(root: Path) -> None:
    """Where two tenants' folders are one, each still sees only its own artifact and cannot remove the other's."""
    store = FileArtifactStore(root)
    theirs = await store.put_bytes(msgspec.structs.replace(SCOPE, tenant_id="TENANT"), b"x", filename="theirs")
    (root / "tenant").symlink_to(root / "TENANT")
    assert await store.get(SCOPE, theirs.id) is None
    assert await store.delete(SCOPE, theirs.id) is False
    mine = await store.put_bytes(SCOPE, b"x", filename="mine")
    assert mine.id != theirs.id
    assert await store.list(SCOPE) == [mine]
    assert await store.get(SCOPE, mine.id) == b"x"
    assert await store.get_ref(theirs.scope, theirs.id) == theirs
    await store.aclose()


async def test_content_without_a_free_id_is_refused(root: Path) -> None:
    """Where another owner holds every id that content could take, the put fails and names the folder."""
    store = FileArtifactStore(root)
    theirs = await store.put_bytes(msgspec.structs.replace(SCOPE, tenant_id="TENANT"), b"x")
    place = bytes_of(root, theirs).parent
    place.mkdir(parents=True)
    for candidate in candidate_ids("default", theirs.sha256):
        (place / f"{candidate}{META_SUFFIX}").write_bytes(codec.encode(theirs))
    with pytest.raises(ArtifactStorageError, match="held by another owner") as caught:
        await store.put_bytes(SCOPE, b"x")
    assert caught.value.path == str(place)
    await store.aclose()


async def test_putting_the_same_bytes_again_writes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content that is there is compared, not written a second time."""
    store = FileArtifactStore(root)
    ref = await store.put_bytes(SCOPE, b"x")
    monkeypatch.setattr(folder, "write_file", refuse(errno.EIO))
    assert await store.put_bytes(SCOPE, b"x") == ref
    await store.aclose()


async def test_several_stores_share_a_folder(root: Path) -> None:
    """A process that takes over another's work sees what that put after both had opened."""
    first, second = await FileArtifactStore.open(root), await FileArtifactStore.open(root)
    ref = await first.put_bytes(SCOPE, b"x")
    assert await second.get(SCOPE, ref.id) == b"x"
    assert await second.delete(SCOPE, ref.id)
    assert await first.get_ref(SCOPE, ref.id) is None
    await first.aclose()
    await second.aclose()


async def test_a_temporary_file_taken_away_is_written_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A put outlives another process that opens the folder and cleans up in the middle of it."""
    store, replace, opened = FileArtifactStore(root), os.replace, 0

    def replace_after_a_sweep(source: Path, target: Path) -> None:
        nonlocal opened
        if opened < 2:
            opened += 1
            folder.ArtifactFolder(root).open()
        replace(source, target)

    monkeypatch.setattr(folder.os, "replace", replace_after_a_sweep)
    ref = await store.put_bytes(SCOPE, b"x")
    assert opened == 2
    assert await store.get(SCOPE, ref.id) == b"x"
    await store.aclose()


async def test_a_folder_that_keeps_vanishing_ends_in_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A put gives up after a few tries instead of going on for ever."""
    store = FileArtifactStore(root)
    monkeypatch.setattr(folder.os, "replace", refuse(errno.ENOENT))
    with pytest.raises(ArtifactStorageError, match="No such file"):
        await store.put_bytes(SCOPE, b"x")
    await store.aclose()


async def test_a_slow_disk_does_not_hold_up_the_event_loop(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a write waits for the disk, the loop goes on, and so do reads of other artifacts."""
    store = FileArtifactStore(root)
    ready = await store.put_bytes(SCOPE, b"ready")
    loop, writing, disk = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def slow(handle: int) -> None:
        loop.call_soon_threadsafe(writing.set)
        assert disk.wait(timeout=30)

    monkeypatch.setattr(folder.os, "fsync", slow)
    put = asyncio.create_task(store.put_bytes(SCOPE, b"slow"))
    await writing.wait()
    assert await store.get(SCOPE, ready.id) == b"ready"
    assert not put.done()
    disk.set()
    assert await store.get(SCOPE, (await put).id) == b"slow"
    await store.aclose()


async def test_closing_waits_for_what_is_under_way(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A put that was cancelled in the middle is whole on disk when close returns."""
    store = FileArtifactStore(root)
    loop, writing, disk = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def slow(handle: int) -> None:
        loop.call_soon_threadsafe(writing.set)
        assert disk.wait(timeout=30)

    with monkeypatch.context() as slowed:
        slowed.setattr(folder.os, "fsync", slow)
        put = asyncio.create_task(store.put_bytes(SCOPE, b"x"))
        await writing.wait()
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        closing = asyncio.create_task(store.aclose())
        await asyncio.sleep(0)
        assert not closing.done()
        disk.set()
        await closing
    again = FileArtifactStore(root)
    assert [ref.size_bytes for ref in await again.list(SCOPE)] == [1]
    await again.aclose()


async def test_foreign_files_in_the_folder_are_ignored(root: Path) -> None:
    """Files that no put wrote neither show up nor get in the way."""
    store = FileArtifactStore(root)
    ref = await store.put_bytes(SCOPE, b"x")
    (root / "notes.txt").write_text("")
    (root / PLACE / "notes.txt").write_text("")
    (root / "tenant" / "user" / "notes.txt").write_text("")
    assert await store.list(ArtifactScope("", "", "")) == [ref]
    await store.delete(SCOPE, ref.id)
    assert (root / PLACE / "notes.txt").exists()
    await store.aclose()
