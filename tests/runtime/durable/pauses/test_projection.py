"""A pause's payload on its way to the wire."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from harborage.artifacts import ArtifactScope, ArtifactStoreClosedError, MemoryArtifactStore
from harborage.events import MemoryEventBus, PausePayloadArtifactRoutedPayload
from harborage.identity import Quadruple
from harborage.runtime.pauses import HEAVY_PAYLOAD_BYTES, Pause, PauseReason, PauseState, project_payload
from harborage.testing.events import EventRecorder

OWNER = Quadruple("acme", "ann", "s1", "r1")
PAYLOAD = {"ask": "city?"}
SIZE = len(b'{"ask":"city?"}')


def a_pause(payload: dict[str, Any] | None) -> Pause:
    """An open pause."""
    return Pause(
        token="T",
        reason=PauseReason.AWAIT_INPUT,
        state=PauseState.PAUSED,
        identity=OWNER,
        paused_at=datetime(2026, 1, 1, tzinfo=UTC),
        payload=payload,
    )


async def test_a_small_payload_stays_inline(bus: MemoryEventBus, recorder: EventRecorder) -> None:
    """One byte below the threshold nothing is stored and nothing is published."""
    artifacts = MemoryArtifactStore()
    shown = await project_payload(a_pause(PAYLOAD), artifacts, SIZE + 1, bus=bus)
    assert (shown.payload, shown.payload_ref) == (PAYLOAD, None)
    assert await artifacts.list(ArtifactScope.of(OWNER)) == []
    assert recorder.types == []


async def test_a_heavy_payload_travels_by_reference(bus: MemoryEventBus, recorder: EventRecorder) -> None:
    """From the threshold on it is an artifact of the owner's session, and an event says so without the run."""
    artifacts = MemoryArtifactStore()
    shown = await project_payload(a_pause(PAYLOAD), artifacts, SIZE, bus=bus)
    ref = shown.payload_ref
    assert shown.payload is None
    assert ref is not None
    assert (ref.namespace, ref.mime_type, ref.scope) == (
        "pause_payload",
        "application/json",
        ArtifactScope.of(OWNER),
    )
    assert json.loads(await artifacts.get(ref.scope, ref.id) or b"") == PAYLOAD
    assert recorder.payloads(PausePayloadArtifactRoutedPayload) == [
        PausePayloadArtifactRoutedPayload(token="T", artifact_id=ref.id, payload_bytes=SIZE, threshold_bytes=SIZE)
    ]
    assert recorder.events[0].identity == replace(OWNER, run_id="")


async def test_showing_it_twice_stores_and_announces_it_once(bus: MemoryEventBus, recorder: EventRecorder) -> None:
    """The same content is the same artifact."""
    artifacts = MemoryArtifactStore()
    first = await project_payload(a_pause(PAYLOAD), artifacts, SIZE, bus=bus)
    second = await project_payload(a_pause(PAYLOAD), artifacts, SIZE, bus=bus)
    assert first == second
    assert len(recorder.events) == 1
    assert len(await artifacts.list(ArtifactScope.of(OWNER))) == 1


async def test_no_payload_is_shown_as_none() -> None:
    """There is nothing to inline and nothing to store."""
    shown = await project_payload(a_pause(None), MemoryArtifactStore(), 0)
    assert (shown.payload, shown.payload_ref) == (None, None)


async def test_without_an_artifact_store_everything_is_inline() -> None:
    """A runtime without artifacts still lists its pauses."""
    assert (await project_payload(a_pause(PAYLOAD), None, 1)).payload == PAYLOAD


async def test_the_threshold_is_that_of_heavy_results() -> None:
    """32 KiB by default."""
    assert HEAVY_PAYLOAD_BYTES == 32_768
    heavy = {"blob": "x" * (HEAVY_PAYLOAD_BYTES - len(b'{"blob":""}'))}
    light = {"blob": heavy["blob"][1:]}
    artifacts = MemoryArtifactStore()
    assert (await project_payload(a_pause(heavy), artifacts)).payload is None
    assert (await project_payload(a_pause(light), artifacts)).payload == light


async def test_a_store_that_refuses_fails_the_call() -> None:
    """A heavy payload is never shown inline by accident."""
    artifacts = MemoryArtifactStore()
    await artifacts.aclose()
    with pytest.raises(ArtifactStoreClosedError):
        await project_payload(a_pause(PAYLOAD), artifacts, SIZE)


async def test_a_bus_that_refuses_stops_no_list(bus: MemoryEventBus, caplog: pytest.LogCaptureFixture) -> None:
    """The announcement is best effort."""
    await bus.aclose()
    with caplog.at_level(logging.WARNING):
        shown = await project_payload(a_pause(PAYLOAD), MemoryArtifactStore(), SIZE, bus=bus)
    assert shown.payload_ref is not None
    assert "was not announced" in caplog.text
