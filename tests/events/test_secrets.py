"""No event carries a secret: whatever field of whatever payload quotes one, it is neither delivered nor stored."""

from __future__ import annotations

import types
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest

from harborage.events import PAYLOADS, Cursor, Event, EventBus, Filter, MemoryEventBus, encode_wire
from harborage.events.durable_bus import DurableEventBus
from harborage.events.event import Payload, PlainPayload, Principal, RedactedMap, Triple
from harborage.events.event_redaction import FIXED
from harborage.events.redaction import PatternRedactor, default_redactor
from harborage.identity import Quadruple
from harborage.state.storage import open_storage

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
MINE = Filter.of(WHO.identity)
BEARER = "abcdefghijklmnop.qrstuvwxyz"
KEY = "a-key-of-the-environment"
TEXT = f"refused: Authorization: Bearer {BEARER}; key {KEY}"
KINDS = [(str(name), kind) for name, kinds in PAYLOADS.items() for kind in kinds]
PLAIN: dict[Any, Any] = {
    bool: True,
    int: 1,
    float: 1.0,
    datetime: datetime(2026, 1, 1, tzinfo=UTC),
    Quadruple: WHO,
    Triple: Triple.of(WHO),
    Principal: Principal.of(WHO),
    msgspec.Raw: msgspec.Raw(b"1"),  # redacted by who encodes it: the bus does not read JSON
}


def planted(hint: Any) -> Any:
    """A value of this type that quotes a secret wherever it can."""
    if hint in PLAIN:
        return PLAIN[hint]
    if hint is str:
        return TEXT
    if hint is Any:
        return {"why": TEXT, "more": [TEXT, {"deep": TEXT}], TEXT: 1}
    if get_origin(hint) in (Union, types.UnionType):
        return planted(next(one for one in get_args(hint) if one not in (type(None), msgspec.UnsetType)))
    if get_origin(hint) is tuple:
        return (planted(get_args(hint)[0]),)
    if get_origin(hint) is dict:
        return {"key": planted(get_args(hint)[1])}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return filled(hint)
    raise AssertionError(f"no value for {hint}")


def filled(kind: type[Any]) -> Any:
    """A payload, or a part of one, with a secret in every field that may hold a text."""
    fields = msgspec.structs.fields(kind)
    return kind(**{field.name: "id" if field.name in FIXED else planted(field.type) for field in fields})


def events() -> Iterator[Event]:
    """One event of every payload class that there is."""
    for name, kind in KINDS:
        payload = filled(kind)
        assert isinstance(payload, Payload)
        yield Event(name, WHO, payload, extra={"note": TEXT})


def quotes(shown: str | bytes) -> bool:
    """Whether a secret is in it."""
    text = shown.decode(errors="replace") if isinstance(shown, bytes) else shown
    return BEARER in text or KEY in text


async def published(bus: EventBus) -> list[Event]:
    """One event of each kind: as it was published, as it was delivered, and as it is replayed."""
    reader = bus.subscribe(MINE)
    seen: list[Event] = []
    for event in events():
        seen += [await bus.publish(event), *reader.drain()]
    return [*seen, *await bus.replay(Cursor("s", 0), MINE)]


def leaking_files(folder: Path) -> list[Path]:
    """The files below a folder that hold a secret."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    return [file for file in files if quotes(file.read_bytes())]


async def test_no_payload_carries_a_secret_to_anybody(tmp_path: Path) -> None:
    """A token planted in every text of every payload is in no event, no replay, no JSON and no byte of the database."""
    path = tmp_path / "runs.db"
    redactor = PatternRedactor([KEY])
    async with await open_storage(f"sqlite:{path}") as storage:
        for bus in (MemoryEventBus(redactor=redactor), DurableEventBus(storage.store, redactor=redactor)):
            seen = await published(bus)
            assert len(seen) >= 3 * len(KINDS) - 2  # streamed pieces and progress are not kept
            leaks = {event.type for event in seen if quotes(repr(event)) or quotes(encode_wire(event))}
            assert leaks == set(), bus
            await bus.aclose()
    assert leaking_files(tmp_path) == []


async def test_what_is_redacted_keeps_its_type() -> None:
    """Subscribers get the class that was published, and everything in it that is no text as it was."""
    bus = MemoryEventBus(redactor=PatternRedactor([KEY]))
    for event in events():
        payload = (await bus.publish(event)).payload
        assert isinstance(payload, RedactedMap if isinstance(event.payload, PlainPayload) else type(event.payload))
        names = [field.name for field in msgspec.structs.fields(type(payload)) if field.type in PLAIN]
        assert [getattr(payload, name) for name in names] == [getattr(event.payload, name) for name in names]


def test_fixed_words_are_words_that_payloads_have() -> None:
    """The list of fields that are not redacted names no field that is gone."""
    names = {field.name for _, kind in KINDS for field in msgspec.structs.fields(kind)}
    assert names >= FIXED


def test_keys_of_the_environment_are_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of variables that are called like secrets are hidden in every text; short ones are no secrets."""
    for name in ("OPENAI_API_KEY", "github_token", "DB_PASSWORD", "AWS_SECRET", "GOOGLE_CREDENTIALS"):
        monkeypatch.setenv(name, f"{KEY}-{name}")
    monkeypatch.setenv("SHORT_KEY", "true")
    monkeypatch.setenv("HOME_PAGE", "harborage.example")
    redactor = default_redactor()
    for name in ("OPENAI_API_KEY", "github_token", "DB_PASSWORD", "AWS_SECRET", "GOOGLE_CREDENTIALS"):
        assert redactor.redact({"why": [f"no such key {KEY}-{name}!"]}) == {"why": ["no such key ***!"]}
    assert redactor.redact("true of harborage.example") == "true of harborage.example"
    assert KEY in PatternRedactor().redact(f"{KEY}-OPENAI_API_KEY")


def test_a_secret_that_begins_another_does_not_leave_its_rest() -> None:
    """The longer of two is hidden first."""
    assert PatternRedactor(["abcdefgh", "abcdefghij"]).redact("x abcdefghij y") == "x *** y"
