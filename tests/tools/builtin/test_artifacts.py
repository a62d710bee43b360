"""`artifact_fetch`: ranges, text and binary, and whose artifacts it reads."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from msgspec.structs import replace

from harborage import codec
from harborage.artifacts import ArtifactScope, ArtifactStore, MemoryArtifactStore
from harborage.identity import Quadruple
from harborage.tools import CallContext, Invoker
from harborage.tools.builtin import ArtifactStoreRequiredError, artifact_fetch

pytestmark = pytest.mark.anyio

SESSION = ArtifactScope("t", "u", "s")


@pytest.fixture
def store() -> MemoryArtifactStore:
    """An empty store."""
    return MemoryArtifactStore()


async def fetched(store: ArtifactStore | None, call: CallContext, ref: str, **args: Any) -> Any:
    """What the tool gives for a reference."""
    return (await Invoker().invoke(artifact_fetch(store), codec.encode({"ref": ref, **args}), call)).value


async def test_a_short_text_comes_whole(store: MemoryArtifactStore, call: CallContext) -> None:
    """With its type, its size, and the word that nothing is missing; blanks around the reference do not matter."""
    ref = await store.put_text(SESSION, "grün")
    assert await fetched(store, call, f"  {ref.id}\n") == {
        "ref": ref.id,
        "size_bytes": 5,
        "mime": "text/plain; charset=utf-8",
        "content": "grün",
        "truncated": False,
    }


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64])
async def test_reading_on_gives_the_whole_text_and_cuts_no_character(
    store: MemoryArtifactStore, call: CallContext, size: int
) -> None:
    """Pieces of any size, each read from where the last one ended, are the text."""
    text = "aé漢🌍 end"
    ref = await store.put_text(SESSION, text)
    offset, pieces = 0, []
    while True:
        piece = await fetched(store, call, ref.id, max_bytes=size, offset=offset)
        pieces.append(piece["content"])
        if not piece["truncated"]:
            break
        offset = piece["next_offset"]
    assert "".join(pieces) == text
    assert piece["size_bytes"] == len(text.encode())


async def test_an_offset_inside_a_character_is_told_as_it_was_taken(
    store: MemoryArtifactStore, call: CallContext
) -> None:
    """The piece begins with the whole character and says where that is."""
    ref = await store.put_text(SESSION, "aé!")
    piece = await fetched(store, call, ref.id, offset=2)
    assert (piece["content"], piece["offset"]) == ("é!", 1)


async def test_bytes_that_are_no_text_come_in_base64(store: MemoryArtifactStore, call: CallContext) -> None:
    """A flag says so; ranges count the bytes themselves."""
    data = bytes(range(256))
    ref = await store.put_bytes(SESSION, data, mime_type="image/png")
    piece = await fetched(store, call, ref.id, offset=10, max_bytes=20)
    assert piece["base64"] is True
    assert base64.b64decode(piece["content"]) == data[10:30]
    assert (piece["offset"], piece["next_offset"], piece["size_bytes"]) == (10, 30, 256)


async def test_text_of_another_encoding_is_binary(store: MemoryArtifactStore, call: CallContext) -> None:
    """What says text but is no UTF-8 comes as the bytes it is."""
    ref = await store.put_bytes(SESSION, "grün".encode("latin-1"), mime_type="text/plain")
    piece = await fetched(store, call, ref.id)
    assert base64.b64decode(piece["content"]) == b"gr\xfcn"


@pytest.mark.parametrize(("asked", "given"), [(0, 65_536), (-5, 65_536), (100, 100), (1 << 30, 1 << 20)])
async def test_the_size_of_a_piece_is_kept_in_bounds(
    store: MemoryArtifactStore, call: CallContext, asked: int, given: int
) -> None:
    """Nothing or less means 64 KiB; nobody gets more than 1 MiB at once."""
    ref = await store.put_bytes(SESSION, b"x" * (2 << 20))
    piece = await fetched(store, call, ref.id, max_bytes=asked)
    assert len(piece["content"]) == given
    assert (piece["truncated"], piece["size_bytes"]) == (True, 2 << 20)


async def test_the_end_is_empty_and_past_the_end_is_an_error(store: MemoryArtifactStore, call: CallContext) -> None:
    """Reading on from the very end gives nothing; further is told softly. A negative offset is the beginning."""
    ref = await store.put_text(SESSION, "abc")
    assert (await fetched(store, call, ref.id, offset=3))["content"] == ""
    assert "3 bytes" in (await fetched(store, call, ref.id, offset=4))["error"]
    assert (await fetched(store, call, ref.id, offset=-1))["content"] == "abc"


async def test_a_blank_reference_is_a_soft_error(store: MemoryArtifactStore, call: CallContext) -> None:
    """The model is told what is missing."""
    assert "ref is empty" in (await fetched(store, call, " \n"))["error"]


@pytest.mark.parametrize(
    "who",
    [Quadruple("t2", "u", "s", "r-1"), Quadruple("t", "u2", "s", "r-1"), Quadruple("t", "u", "s2", "r-1")],
)
async def test_what_others_have_looks_like_what_nobody_has(
    store: MemoryArtifactStore, call: CallContext, who: Quadruple
) -> None:
    """Another tenant's, user's or session's artifact and one that never was get the same answer."""
    ref = await store.put_text(SESSION, "mine")
    foreign = await fetched(store, replace(call, who=who), ref.id)
    unknown = await fetched(store, replace(call, who=who), "default_0123456789ab")
    assert foreign["error"] == unknown["error"]
    assert {**foreign, "ref": ""} == {**unknown, "ref": ""}


async def test_only_the_sessions_and_the_runs_own_artifacts_are_read(
    store: MemoryArtifactStore, call: CallContext
) -> None:
    """What this run's prompts were relieved of is kept under the run's task and can be read; another task's cannot."""
    own = await store.put_text(ArtifactScope("t", "u", "s", "r-1"), "own", namespace="llm.materialized")
    other = await store.put_text(ArtifactScope("t", "u", "s", "r-2"), "other")
    assert (await fetched(store, call, own.id))["content"] == "own"
    assert "error" in await fetched(store, call, other.id)
    assert "error" in await fetched(store, replace(call, who=Quadruple("t", "u", "s")), own.id)


async def test_an_artifact_whose_bytes_are_gone_is_not_there(
    store: MemoryArtifactStore, call: CallContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is deleted between the look and the read is told like any other that is not there."""
    ref = await store.put_text(SESSION, "x")

    async def gone(_scope: ArtifactScope, _id: str) -> None:
        return None

    monkeypatch.setattr(store, "get", gone)
    assert "no such artifact" in (await fetched(store, call, ref.id))["error"]


async def test_without_a_store_the_error_is_hard_and_comes_first(call: CallContext) -> None:
    """It is the operator's to mend, so it is no result; it comes even before the identity is looked at."""
    with pytest.raises(ArtifactStoreRequiredError):
        await fetched(None, replace(call, who=Quadruple()), "x")


async def test_the_store_of_the_call_is_used_when_the_tool_has_none(
    store: MemoryArtifactStore, call: CallContext
) -> None:
    """A tool without a store of its own reads the run's."""
    ref = await store.put_text(SESSION, "x")
    assert (await fetched(None, replace(call, artifacts=store), ref.id))["content"] == "x"
