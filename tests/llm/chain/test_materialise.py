"""Heavy media leave a conversation for the artifact store, in a copy of it."""

from __future__ import annotations

import base64
import hashlib

import pytest

from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.events import LLMImageMaterializedPayload, MemoryEventBus
from harborage.identity import Quadruple
from harborage.llm import (
    ArtifactStub,
    AudioPart,
    ChatMessage,
    Content,
    Deps,
    FetchHint,
    FilePart,
    ImagePart,
    InvalidContentError,
    LLMError,
    Role,
    TextPart,
)
from harborage.llm.chain.safety import Materialiser
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
SCOPE = ArtifactScope("t", "u", "s", "r")
LIMIT = 100
HEAVY = b"\x89PNG" + bytes(LIMIT)


def data_url(data: bytes, mime: str = "image/png") -> str:
    """The bytes as a data URL."""
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


class Store(MemoryArtifactStore):
    """A store that counts what is put, and fails when the test says so."""

    puts = 0
    error: Exception | None = None

    async def put_bytes(self, *args, **fields):
        self.puts += 1
        if self.error:
            raise self.error
        return await super().put_bytes(*args, **fields)


class Bench:
    """A materialiser over a store, and its events."""

    def __init__(self) -> None:
        self.store = Store()
        bus = MemoryEventBus()
        self.published = EventRecorder(bus)
        self.clock = FakeClock()
        self._materialiser = Materialiser(Deps(artifacts=self.store, bus=bus, clock=self.clock))

    async def rewrite(self, *parts, limit: int = LIMIT, who: Quadruple = WHO) -> tuple:
        """The parts after rewriting a message of them that follows a plain one."""
        before = (ChatMessage(Role.USER, Content("hi")), ChatMessage(Role.USER, Content(parts=parts)))
        after = await self._materialiser.rewrite(before, [1], limit, who, "m")
        assert before[1].content.parts == parts
        assert after[0] is before[0]
        return tuple(after[1].content.parts or ())

    @property
    def events(self) -> list[LLMImageMaterializedPayload]:
        return self.published.payloads(LLMImageMaterializedPayload)


async def test_heavy_bytes_become_a_stub() -> None:
    """The stub says what the bytes are, where they are, and how a model reads them; the text beside stays."""
    bench = Bench()
    text, image = await bench.rewrite(TextPart("see"), ImagePart(data_url=data_url(HEAVY), detail="low"))
    (ref,) = await bench.store.list(SCOPE)
    assert text == TextPart("see")
    assert image == ImagePart(
        artifact=ArtifactStub(
            ref=ref.id,
            mime="image/png",
            size_bytes=len(HEAVY),
            hash=f"sha256:{hashlib.sha256(HEAVY).hexdigest()}",
            fetch=FetchHint("artifact_fetch", ref.id),
        ),
        detail="low",
    )
    assert await bench.store.get(SCOPE, ref.id) == HEAVY


async def test_where_it_is_stored() -> None:
    """In the scope of the session and the run, in a namespace of its own, marked with the stage."""
    bench = Bench()
    await bench.rewrite(FilePart(data_url=data_url(HEAVY, "a/b"), mime="application/pdf", filename="a.pdf"))
    (ref,) = await bench.store.list(ArtifactScope("t", "u", "s"))
    assert (ref.scope, ref.namespace, ref.source) == (SCOPE, "llm.materialized", {"stage": "auto_materialize"})
    assert (ref.mime_type, ref.filename) == ("application/pdf", "a.pdf")


async def test_one_event_a_piece() -> None:
    """Each stored piece is announced once: image, audio and file alike."""
    bench = Bench()
    heavy = [kind(data_url=data_url(HEAVY + kind.__name__.encode())) for kind in (ImagePart, AudioPart, FilePart)]
    parts = await bench.rewrite(*heavy)
    assert [(e.artifact_ref, e.mime, e.size_bytes) for e in bench.events] == [
        (part.artifact.ref, "image/png", part.artifact.size_bytes) for part in parts
    ]
    assert {(event.identity, event.model, event.occurred_at) for event in bench.events} == {
        (WHO, "m", bench.clock.now())
    }


@each_row(
    "part",
    [
        ImagePart(artifact=ArtifactStub("r", "image/png", 1), data_url=data_url(HEAVY)),
        ImagePart(artifact=ArtifactStub("r", "image/png", 1), data_url="nonsense"),
        ImagePart(url="https://x/y.png"),
        ImagePart(data_url=data_url(HEAVY[: LIMIT - 1])),
        FilePart(data_url="data:text/plain," + "x" * (LIMIT - 1)),
    ],
    ids=["stored already", "stored, malformed", "no data URL", "light", "light text"],
)
async def test_what_stays_as_it_is(part) -> None:
    """A part that has an artifact, no data URL, or less than the limit, is untouched."""
    bench = Bench()
    assert (await bench.rewrite(part))[0] is part
    assert bench.store.puts == 0
    assert not bench.events


async def test_the_limit_is_reached_by_equality() -> None:
    """Decoded bytes count: exactly the limit is heavy."""
    bench = Bench()
    (part,) = await bench.rewrite(ImagePart(data_url=data_url(HEAVY[:LIMIT])))
    assert part.artifact.size_bytes == LIMIT


async def test_a_model_may_take_more_inline() -> None:
    """With a higher limit the same image stays inline, also when it was stored before."""
    bench = Bench()
    image = ImagePart(data_url=data_url(HEAVY))
    assert (await bench.rewrite(image))[0].artifact
    assert (await bench.rewrite(image, limit=1000))[0] is image
    assert (await bench.rewrite(image))[0].artifact


@each_row("broken", ["image/png;base64,AA==", "data:image/png;base64", "data:image/png;base64,A"])
async def test_a_malformed_url_is_refused(broken: str) -> None:
    """The error names the place, however small the content is, and nothing at all was stored."""
    bench = Bench()
    with pytest.raises(InvalidContentError, match=r"^message 1, part 1: "):
        await bench.rewrite(ImagePart(data_url=data_url(HEAVY)), ImagePart(data_url=broken))
    assert bench.store.puts == 0


async def test_text_without_base64_is_stored_as_it_stands() -> None:
    """Percent signs are not decoded; the declared type is kept."""
    bench = Bench()
    (part,) = await bench.rewrite(FilePart(data_url="data:text/csv;charset=utf-8," + "%20é" * 50))
    assert await bench.store.get(SCOPE, part.artifact.ref) == ("%20é" * 50).encode()
    assert part.artifact.mime == "text/csv"


async def test_a_type_without_a_name_is_the_stores() -> None:
    """The stub then says what the store says."""
    (part,) = await Bench().rewrite(FilePart(data_url=data_url(HEAVY, "")))
    assert part.artifact.mime == "application/octet-stream"


async def test_a_store_that_fails_is_an_error() -> None:
    """The failure names the place and keeps its cause."""
    bench = Bench()
    bench.store.error = OSError("disk full")
    with pytest.raises(LLMError, match=r"message 1, part 0: 104 bytes could not be stored .*disk full") as caught:
        await bench.rewrite(ImagePart(data_url=data_url(HEAVY)))
    assert caught.value.__cause__ is bench.store.error
    assert not bench.events


async def test_the_same_content_is_stored_once() -> None:
    """A conversation that comes back with every step is neither stored nor announced again."""
    bench = Bench()
    image = ImagePart(data_url=data_url(HEAVY))
    first, again = [await bench.rewrite(image) for _ in range(2)]
    assert first == again
    assert (bench.store.puts, len(bench.events)) == (1, 1)


async def test_content_that_is_gone_is_stored_again() -> None:
    """A stub is only used again while its artifact is there."""
    bench = Bench()
    image = ImagePart(data_url=data_url(HEAVY))
    (part,) = await bench.rewrite(image)
    await bench.store.delete(SCOPE, part.artifact.ref)
    await bench.rewrite(image)
    assert await bench.store.exists(SCOPE, part.artifact.ref)


async def test_no_caller_gets_the_artifact_of_another() -> None:
    """The same content of another user or run is stored in their own scope."""
    bench = Bench()
    image = ImagePart(data_url=data_url(HEAVY))
    for who in (WHO, Quadruple("t", "u2", "s", "r"), Quadruple("t", "u", "s", "r2")):
        (part,) = await bench.rewrite(image, who=who)
        assert await bench.store.get(ArtifactScope.of(who, who.run_id), part.artifact.ref) == HEAVY
    assert bench.store.puts == 3


async def test_what_is_remembered_is_bounded() -> None:
    """Any amount of content passes through without being kept in memory."""
    bench = Bench()
    for at in range(40):
        await bench.rewrite(*(FilePart(data_url=f"data:a/b,{at}.{part}") for part in range(30)))
    assert len(bench._materialiser._known) <= 1024
