"""A pause's payload as it goes over the wire: inline if it is small, otherwise as a reference to an artifact.

It is neither shortened nor redacted here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.artifacts import ArtifactRef, ArtifactScope, ArtifactStore
from harborage.events import Event, EventBus, EventType, PausePayloadArtifactRoutedPayload

if TYPE_CHECKING:
    from harborage.runtime.pauses.model import Pause

HEAVY_PAYLOAD_BYTES = 32_768
PAYLOAD_NAMESPACE = "pause_payload"

logger = logging.getLogger(__name__)


class ProjectedPayload(msgspec.Struct, frozen=True, kw_only=True):
    """A payload to show: either `payload` itself or `payload_ref` is set, or neither for a pause without one."""

    payload: dict[str, Any] | None = None
    payload_ref: ArtifactRef | None = None


async def project_payload(
    pause: Pause,
    artifacts: ArtifactStore | None,
    threshold: int = HEAVY_PAYLOAD_BYTES,
    *,
    bus: EventBus | None = None,
) -> ProjectedPayload:
    """Return the payload inline, or stored in the owner's session if its JSON has `threshold` bytes or more.

    The same payload is always the same artifact. Without an artifact store it stays inline.

    Raises:
        ArtifactError: the payload is heavy and the store refused it.
    """
    if pause.payload is None:
        return ProjectedPayload()
    data = codec.encode(pause.payload, "PauseRecord.payload")
    if len(data) < threshold or artifacts is None:
        return ProjectedPayload(payload=pause.payload)
    ref = await artifacts.put_bytes(
        ArtifactScope.of(pause.identity),
        data,
        mime_type="application/json",
        filename=f"pause-{pause.token}.json",
        namespace=PAYLOAD_NAMESPACE,
        source={"source": "pause", "token": pause.token},
    )
    _publish(bus, pause, ref, len(data), threshold)
    return ProjectedPayload(payload_ref=ref)


def _publish(bus: EventBus | None, pause: Pause, ref: ArtifactRef, size: int, threshold: int) -> None:
    if bus is None:
        return
    payload = PausePayloadArtifactRoutedPayload(
        token=pause.token, artifact_id=ref.id, payload_bytes=size, threshold_bytes=threshold
    )
    owner = msgspec.structs.replace(pause.identity, run_id="")
    try:
        bus.publish_nowait(Event(type=EventType.PAUSE_PAYLOAD_ARTIFACT_ROUTED, identity=owner, payload=payload))
    except Exception:
        logger.warning("pause %s: the artifact of its payload was not announced", pause.token, exc_info=True)
