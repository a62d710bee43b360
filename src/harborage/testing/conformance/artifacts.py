"""What every artifact store must do. Pass a function that opens an empty store:

    await run_conformance(open_store)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_store)`. A
store that outlives its process also runs `check_durability` with a function that opens the same store again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

from harborage.artifacts import ArtifactRef, ArtifactScope, ArtifactStore, ArtifactStoreClosedError, TracksChanges
from harborage.codec import UnserializableError
from harborage.identity import IdentityRequiredError
from harborage.testing.conformance.checks import check_scenario, expect, expect_equal, expect_raises, run_scenarios

OpenStore: TypeAlias = Callable[[], Awaitable[ArtifactStore]]
Scenario: TypeAlias = Callable[[ArtifactStore], Awaitable[None]]

ME = ArtifactScope("tenant", "user", "session")
MY_TASK = ArtifactScope("tenant", "user", "session", "task")
OTHERS = (
    ArtifactScope("other", "user", "session"),
    ArtifactScope("tenant", "other", "session"),
    ArtifactScope("tenant", "user", "other"),
    ArtifactScope("tenant", "user", "session", "other task"),
)
INCOMPLETE = (
    ArtifactScope("", "user", "session"),
    ArtifactScope("tenant", "", "session"),
    ArtifactScope("tenant", "user", ""),
    ArtifactScope("", "", "", "task"),
)
EVERYTHING = ArtifactScope("", "", "")
CALLERS = 100

# Names that look alike on some medium: joined with separators, escaped, folded, shortened or taken as a default.
ALIKE = (
    ArtifactScope("a", "b/c", "d"),
    ArtifactScope("a/b", "c", "d"),
    ArtifactScope("a%2Fb", "c", "d"),
    ArtifactScope("a_b", "c", "d"),
    ArtifactScope("A", "b/c", "d"),
    ArtifactScope("a ", "b/c", "d"),
    ArtifactScope("a", "b\\c", "d"),
    ArtifactScope("a", "b", "c"),
    ArtifactScope("a", "b", "c", "_"),
    ArtifactScope("a", "b", "c", "%5F"),
    ArtifactScope("a", "b", "c", "default"),
    ArtifactScope(".a", "b", "c"),
    ArtifactScope(".tmp", "b", "c"),
    ArtifactScope("tmp.a", "b", "c"),
    ArtifactScope("é", "b", "c"),
    ArtifactScope("e\u0301", "b", "c"),
    ArtifactScope("*", "b", "c"),
    ArtifactScope("nul\0", "b", "c"),
    ArtifactScope("line\n", "b", "c"),
    ArtifactScope("long" * 100, "b", "c"),
    ArtifactScope("long" * 100 + "er", "b", "c"),
)
HOSTILE_IDS = (
    "../secret_1",
    "../../../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    "a\0b_c",
    "default_",
    "_",
    "no-underscore",
    "default_*",
    "default_%2e%2e",
    "default_" + "0" * 5000,
    "x" * 5000 + "_0",
)


async def what_was_put_comes_back(store: ArtifactStore) -> None:
    """The bytes are read back whole, and the reference describes them."""
    data = bytes(range(256))
    ref = await store.put_bytes(ME, data, mime_type="image/png", filename="a.png", namespace="n", source={"tool": "t"})
    digest = hashlib.sha256(data).hexdigest()
    wanted = ArtifactRef(f"n_{digest[:12]}", "image/png", 256, "a.png", digest, ME, "n", {"tool": "t"})
    expect_equal(ref, wanted, "the reference that put returns")
    expect_equal(await store.get(ME, ref.id), data, "get")
    expect_equal(await store.get_ref(ME, ref.id), wanted, "get_ref")
    expect_equal(await store.exists(ME, ref.id), True, "exists")
    expect_equal(await store.list(ME), [wanted], "list")


async def options_have_defaults(store: ArtifactStore) -> None:
    """Without options content is an octet stream without a file name in the namespace `default`."""
    ref = await store.put_bytes(ME, b"x")
    expect_equal(
        (ref.mime_type, ref.filename, ref.namespace, ref.source, ref.id.rpartition("_")[0]),
        ("application/octet-stream", "", "default", {}, "default"),
        "the defaults",
    )


async def the_empty_namespace_is_the_default_one(store: ArtifactStore) -> None:
    """Putting without a namespace and into `default` is the same thing."""
    first = await store.put_bytes(ME, b"x", filename="first")
    expect_equal(await store.put_bytes(ME, b"x", namespace="default"), first, "the second reference")


async def text_is_utf_8(store: ArtifactStore) -> None:
    """Text is stored as UTF-8 with that media type, unless another one is given."""
    ref = await store.put_text(ME, "grüß dich")
    expect_equal(ref.mime_type, "text/plain; charset=utf-8", "the kind of a text")
    expect_equal(await store.get(ME, ref.id), "grüß dich".encode(), "its bytes")
    markdown = await store.put_text(ME, "# title", mime_type="text/markdown", filename="a.md", namespace="docs")
    expect_equal((markdown.mime_type, markdown.filename, markdown.namespace), ("text/markdown", "a.md", "docs"), "said")


async def nothing_is_content_too(store: ArtifactStore) -> None:
    """Empty content is stored, and is not the same as no content."""
    ref = await store.put_bytes(ME, b"")
    expect_equal((ref.size_bytes, await store.get(ME, ref.id)), (0, b""), "empty content")


async def large_content_comes_back(store: ArtifactStore) -> None:
    """A few megabytes are stored like anything else."""
    data = bytes(range(256)) * 12_000
    ref = await store.put_bytes(ME, data)
    expect_equal(ref.sha256, hashlib.sha256(data).hexdigest(), "the hash")
    expect(await store.get(ME, ref.id) == data, "large content comes back whole")


async def the_same_bytes_are_one_artifact(store: ArtifactStore) -> None:
    """Putting the same bytes again returns the first reference, with any options the second time."""
    first = await store.put_bytes(ME, b"x", filename="first.txt", mime_type="a/b", source={"n": 1})
    again = await store.put_bytes(ME, b"x", filename="second.txt", mime_type="c/d", source={"n": 2})
    expect_equal(again, first, "the reference of the second put")
    expect_equal(await store.list(ME), [first], "list")


async def namespaces_are_apart(store: ArtifactStore) -> None:
    """The same bytes in two namespaces are two artifacts; removing one leaves the other."""
    one = await store.put_bytes(ME, b"x", namespace="one")
    two = await store.put_bytes(ME, b"x", namespace="one_two")
    expect(one.id != two.id, "ids differ by namespace")
    expect_equal(await store.delete(ME, one.id), True, "delete in one")
    expect_equal(await store.get(ME, two.id), b"x", "get from the other")


async def absence_is_an_answer(store: ArtifactStore) -> None:
    """Deleted artifacts, the empty id and ids that no put returned are absent, without an error."""
    for wanted in ("", "default_000000000000", *HOSTILE_IDS):
        expect_equal(await store.get(ME, wanted), None, f"get {wanted[:40]!r}")
        expect_equal(await store.get_ref(ME, wanted), None, f"get_ref {wanted[:40]!r}")
        expect_equal(await store.exists(ME, wanted), False, f"exists {wanted[:40]!r}")
        expect_equal(await store.delete(ME, wanted), False, f"delete {wanted[:40]!r}")
    expect_equal(await store.list(ME), [], "list")


async def a_task_is_a_scope_of_its_own(store: ArtifactStore) -> None:
    """Reads match the task exactly, in both directions; only a listing of the session shows its tasks too."""
    of_task = await store.put_bytes(MY_TASK, b"task")
    of_session = await store.put_bytes(ME, b"session")
    expect_equal(await store.get(ME, of_task.id), None, "a session-level read of a task's artifact")
    expect_equal(await store.get(MY_TASK, of_session.id), None, "a task-level read of a session's artifact")
    expect_equal(await store.delete(ME, of_task.id), False, "a session-level delete of a task's artifact")
    expect_equal(await store.list(MY_TASK), [of_task], "the task's list")
    expect_equal(await store.list(ME), [of_session, of_task], "the session's list")


async def owners_never_meet(store: ArtifactStore) -> None:
    """Another tenant, user, session or task cannot see or remove an artifact, even with its id."""
    ref = await store.put_bytes(ME, b"mine")
    for other in OTHERS:
        expect_equal(await store.get(other, ref.id), None, f"get by {other}")
        expect_equal(await store.get_ref(other, ref.id), None, f"get_ref by {other}")
        expect_equal(await store.exists(other, ref.id), False, f"exists for {other}")
        expect_equal(await store.delete(other, ref.id), False, f"delete by {other}")
        expect_equal(await store.list(other), [], f"list of {other}")
    expect_equal(await store.get(ME, ref.id), b"mine", "what is left for the owner")


async def the_same_bytes_of_two_owners_are_two_artifacts(store: ArtifactStore) -> None:
    """Each owner has options of their own for the same bytes, and removing one artifact leaves the other."""
    mine = await store.put_bytes(ME, b"x", filename="mine")
    for other in OTHERS:
        theirs = await store.put_bytes(other, b"x", filename="theirs")
        expect_equal((theirs.filename, theirs.scope), ("theirs", other), f"the reference of {other}")
    expect_equal(await store.delete(ME, mine.id), True, "delete")
    for other in OTHERS:
        expect_equal(await store.get(other, mine.id), b"x", f"what is left for {other}")


async def names_that_look_alike_do_not_meet(store: ArtifactStore) -> None:
    """Scopes whose names a medium might confuse are different scopes, for every verb."""
    refs = [await store.put_bytes(scope, b"x", filename=str(index)) for index, scope in enumerate(ALIKE)]
    for index, (scope, ref) in enumerate(zip(ALIKE, refs, strict=True)):
        found = await store.get_ref(scope, ref.id)
        expect_equal(found and (found.scope, found.filename), (scope, str(index)), f"the artifact of {scope}")
        expect_equal([one.filename for one in await store.list(scope) if one.scope == scope], [str(index)], "its list")
    expect_equal(len(await store.list(EVERYTHING)), len(ALIKE), "how many there are")
    for index, (scope, ref) in enumerate(zip(ALIKE, refs, strict=True)):
        expect_equal(await store.delete(scope, ref.id), True, f"delete by {scope}")
        expect_equal(len(await store.list(EVERYTHING)), len(ALIKE) - index - 1, "how many are left")


async def odd_namespaces_and_file_names_are_only_names(store: ArtifactStore) -> None:
    """A namespace may hold separators, and a file name any characters: neither is a path."""
    for index, name in enumerate(("a/b", "a_b", "a.b", "tmp.", " ", "x.meta.json", "ü", "n" * 300)):
        data = str(index).encode()
        ref = await store.put_bytes(ME, data, namespace=name, filename="../../../etc/passwd")
        expect_equal((ref.namespace, ref.filename), (name, "../../../etc/passwd"), "what the reference says")
        expect_equal(await store.get(ME, ref.id), data, f"content in namespace {name[:40]!r}")


async def a_listing_takes_empty_parts_as_anything(store: ArtifactStore) -> None:
    """A list shows what its scope covers, ordered by scope and id, and refuses no scope."""
    scopes = [ArtifactScope(t, u, s, k) for t in "ab" for u in "cd" for s in "ef" for k in ("", "k")]
    for scope in reversed(scopes):
        await store.put_bytes(scope, b"x")
    expect_equal([ref.scope for ref in await store.list(EVERYTHING)], scopes, "everything, in order")
    partial = {
        ArtifactScope("a", "", ""): 8,
        ArtifactScope("", "c", ""): 8,
        ArtifactScope("", "", "e"): 8,
        ArtifactScope("", "", "", "k"): 8,
        ArtifactScope("a", "c", "e"): 2,
        ArtifactScope("a", "c", "e", "k"): 1,
        ArtifactScope("unknown", "", ""): 0,
    }
    for scope, wanted in partial.items():
        expect_equal(len(await store.list(scope)), wanted, f"how many {scope} covers")
    several = [await store.put_bytes(ME, str(index).encode()) for index in range(20)]
    expect_equal(await store.list(ME), sorted(several, key=lambda ref: ref.id), "the order within a scope")


async def deleting_removes(store: ArtifactStore) -> None:
    """The first delete says True, later ones False; the same bytes may be put again, with new options."""
    ref = await store.put_bytes(ME, b"x", filename="first")
    expect_equal([await store.delete(ME, ref.id), await store.delete(ME, ref.id)], [True, False], "delete twice")
    expect_equal((await store.get(ME, ref.id), await store.get_ref(ME, ref.id)), (None, None), "after the delete")
    expect_equal(await store.list(EVERYTHING), [], "list after the delete")
    again = await store.put_bytes(ME, b"x", filename="second")
    expect_equal((again.id, again.filename), (ref.id, "second"), "put again")


def calls(store: ArtifactStore, scope: ArtifactScope) -> Iterator[tuple[str, Awaitable[object]]]:
    """Each call that needs an identity once, by name."""
    yield "put_bytes", store.put_bytes(scope, b"x")
    yield "put_bytes with a bad source", store.put_bytes(scope, b"x", source={"bad": object()})
    yield "put_text", store.put_text(scope, "x")
    yield "get", store.get(scope, "default_0")
    yield "get_ref", store.get_ref(scope, "default_0")
    yield "exists", store.exists(scope, "")
    yield "delete", store.delete(scope, "default_0")


async def a_store_that_tracks_changes_counts_each(store: ArtifactStore) -> None:
    """If a store has a change number, it differs after a put or a delete, in the session itself or in a task."""
    if not isinstance(store, TracksChanges):
        return
    seen = [store.changes(ME)]
    for scope in (ME, MY_TASK):
        ref = await store.put_bytes(scope, b"new")
        seen.append(store.changes(ME))
        await store.list(ME)
        await store.get(scope, ref.id)
        expect_equal(store.changes(ME), seen[-1], "the number after reading")
        await store.delete(scope, ref.id)
        seen.append(store.changes(ME))
    expect_equal(len(set(seen)), 5, "the numbers after four changes")


async def an_incomplete_scope_is_refused(store: ArtifactStore) -> None:
    """Every call but list needs tenant, user and session, and fails for that before anything else is checked."""
    for scope in INCOMPLETE:
        for name, call in calls(store, scope):
            await expect_raises(IdentityRequiredError, call, f"{name} for {scope}")
    expect_equal(await store.list(EVERYTHING), [], "what refused puts left")


async def a_closed_store_says_so(store: ArtifactStore) -> None:
    """After close every call is refused as closed, before the scope is checked; closing twice is fine."""
    await store.put_bytes(ME, b"x")
    await store.aclose()
    await store.aclose()
    for scope in (ME, INCOMPLETE[0]):
        for name, call in calls(store, scope):
            await expect_raises(ArtifactStoreClosedError, call, f"{name} after close")
        await expect_raises(ArtifactStoreClosedError, store.list(scope), "list after close")


async def a_source_is_kept_as_json(store: ArtifactStore) -> None:
    """The source that the caller gave comes back as plain JSON data, nested values included."""
    source = {"source": "user_upload", "at": 1.5, "tags": ("a", "b"), "more": {"ü": None}}
    ref = await store.put_bytes(ME, b"x", source=source)
    wanted = {"source": "user_upload", "at": 1.5, "tags": ["a", "b"], "more": {"ü": None}}
    expect_equal(ref.source, wanted, "the source that put returns")
    found = await store.get_ref(ME, ref.id)
    expect_equal(found and found.source, wanted, "the source that is read back")


async def a_source_that_is_no_json_is_refused(store: ArtifactStore) -> None:
    """A source with a value that JSON cannot hold fails the put, and nothing is stored."""
    for bad in ({"at": object()}, {"n": float("nan")}, {"deep": [{"key": {1: 2}}]}):
        await expect_raises(UnserializableError, store.put_bytes(ME, b"x", source=bad), f"put with {bad}")
    expect_equal(await store.list(EVERYTHING), [], "what refused puts left")


async def callers_share_no_memory_with_the_store(store: ArtifactStore) -> None:
    """Changing a buffer or a source that was passed in or returned does not change the stored artifact."""
    buffer, source = bytearray(b"before"), {"tags": ["a"]}
    ref = await store.put_bytes(ME, buffer, source=source)  # type: ignore[arg-type] # a caller may do so all the same
    buffer[:] = b"after!"
    source["tags"].append("changed by the caller")
    ref.source["tags"].append("changed after a put")
    for handed_out in (await store.list(ME), [await store.get_ref(ME, ref.id)]):
        for one in handed_out:
            expect(one is not None, "the artifact is there")
            expect_equal(one and one.source, {"tags": ["a"]}, "the stored source")
            if one is not None:
                one.source["tags"].append("changed after a read")
    data = await store.get(ME, ref.id)
    expect_equal((type(data), data), (bytes, b"before"), "the stored bytes")
    again = await store.get_ref(ME, ref.id)
    expect_equal(again and again.source, {"tags": ["a"]}, "the stored source at the end")


async def a_hundred_owners_at_once(store: ArtifactStore) -> None:
    """A hundred concurrent owners of the same and of own bytes each see exactly their own."""

    async def one(index: int) -> list[str]:
        scope = ArtifactScope(f"tenant {index}", "user", "session")
        shared = await store.put_bytes(scope, b"the same for all", filename=f"shared {index}")
        own = await store.put_bytes(scope, f"own {index}".encode(), filename=f"own {index}")
        gone = await store.put_bytes(scope, b"gone")
        expect_equal(await store.delete(scope, gone.id), True, "delete")
        expect_equal(await store.get(scope, own.id), f"own {index}".encode(), "own bytes")
        expect_equal(await store.get(scope, shared.id), b"the same for all", "shared bytes")
        return sorted(ref.filename for ref in await store.list(scope))

    got = await asyncio.gather(*(one(index) for index in range(CALLERS)))
    expect_equal(got, [[f"own {index}", f"shared {index}"] for index in range(CALLERS)], "what each owner lists")


async def a_hundred_puts_of_the_same_bytes(store: ArtifactStore) -> None:
    """A hundred concurrent puts of one content all get the same reference, and there is one artifact."""
    refs = await asyncio.gather(*(store.put_bytes(ME, b"x", filename=str(index)) for index in range(CALLERS)))
    expect_equal(len({(ref.id, ref.filename) for ref in refs}), 1, "how many references were returned")
    expect_equal(await store.list(ME), [refs[0]], "list")


async def a_hundred_puts_and_deletes_of_one_artifact(store: ArtifactStore) -> None:
    """Putting, reading and removing one artifact at once never fails and never shows other bytes."""

    async def one(index: int) -> None:
        ref = await store.put_bytes(ME, b"x", filename=str(index))
        expect((await store.get(ME, ref.id)) in (b"x", None), "a read gives the bytes or nothing")
        await store.list(ME)
        await store.delete(ME, ref.id)

    await asyncio.gather(*(one(index) for index in range(CALLERS)))
    expect_equal(await store.list(ME), [], "what is left in the end")


async def a_hundred_artifacts_come_and_go(store: ArtifactStore) -> None:
    """Artifacts of one scope that are put and removed at once do not get in each other's way."""

    async def one(index: int) -> bytes | None:
        for _ in range(3):
            ref = await store.put_bytes(ME, str(index).encode())
            expect_equal(await store.delete(ME, ref.id), True, "delete")
        ref = await store.put_bytes(ME, str(index).encode())
        return await store.get(ME, ref.id)

    got = await asyncio.gather(*(one(index) for index in range(CALLERS)))
    expect_equal(got, [str(index).encode() for index in range(CALLERS)], "what each caller reads in the end")
    expect_equal(len(await store.list(ME)), CALLERS, "how many there are in the end")


SCENARIOS: tuple[Scenario, ...] = (
    what_was_put_comes_back,
    options_have_defaults,
    the_empty_namespace_is_the_default_one,
    text_is_utf_8,
    nothing_is_content_too,
    large_content_comes_back,
    the_same_bytes_are_one_artifact,
    namespaces_are_apart,
    absence_is_an_answer,
    a_task_is_a_scope_of_its_own,
    owners_never_meet,
    the_same_bytes_of_two_owners_are_two_artifacts,
    names_that_look_alike_do_not_meet,
    odd_namespaces_and_file_names_are_only_names,
    a_listing_takes_empty_parts_as_anything,
    deleting_removes,
    a_store_that_tracks_changes_counts_each,
    an_incomplete_scope_is_refused,
    a_closed_store_says_so,
    a_source_is_kept_as_json,
    a_source_that_is_no_json_is_refused,
    callers_share_no_memory_with_the_store,
    a_hundred_owners_at_once,
    a_hundred_puts_of_the_same_bytes,
    a_hundred_puts_and_deletes_of_one_artifact,
    a_hundred_artifacts_come_and_go,
)


async def check(scenario: Scenario, open_store: OpenStore) -> None:
    """Run one scenario against a fresh store.

    Raises:
        ConformanceError: the store breaks a promise.
    """
    await check_scenario(scenario, open_store)


async def run_conformance(open_store: OpenStore) -> None:
    """Run every scenario, each against a fresh, empty store.

    Raises:
        ExceptionGroup: the broken promises, one error a scenario.
    """
    await run_scenarios(SCENARIOS, open_store)


async def check_durability(open_same_store: OpenStore) -> None:
    """Reopen the same store: artifacts are there, deleted ones are not, and the first options of a put still count.

    Raises:
        ConformanceError: an artifact is missing, or a deleted one is there.
    """
    store = await open_same_store()
    kept = [await store.put_bytes(scope, b"x", filename=str(index)) for index, scope in enumerate(ALIKE)]
    gone = await store.put_bytes(MY_TASK, b"gone")
    await store.delete(MY_TASK, gone.id)
    await store.aclose()

    store = await open_same_store()
    for scope, ref in zip(ALIKE, kept, strict=True):
        expect_equal(await store.get_ref(scope, ref.id), ref, f"the reference of {scope} after a restart")
        expect_equal(await store.get(scope, ref.id), b"x", f"the bytes of {scope} after a restart")
        expect_equal(await store.put_bytes(scope, b"x", filename="new"), ref, "the first options after a restart")
    expect_equal(len(await store.list(EVERYTHING)), len(ALIKE), "how many there are after a restart")
    expect_equal(await store.get(MY_TASK, gone.id), None, "what was deleted before the restart")
    await store.aclose()
