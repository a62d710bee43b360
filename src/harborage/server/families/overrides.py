"""`runs.set_overrides`: what the next run of a session is started with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harborage.errors import InvalidOptionError
from harborage.events import Event, EventType, RunsOverridesSetPayload
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.wire.overrides import OverridesSet, SetOverrides
from harborage.runtime.loop.seam import ModelOverrides
from harborage.runtime.overrides import check_overrides, set_overrides
from harborage.server.services import Endpoint

if TYPE_CHECKING:
    from harborage.server.services import Call


async def set_run_overrides(call: Call, asked: SetOverrides) -> OverridesSet:
    """Record what the next run of the caller's session is started with; the event names the fields, not the values."""
    given, who = asked.overrides, call.who
    if given.session_id and given.session_id != who.session_id:
        text = "overrides are for the session of the request: leave session_id out, or send X-Harbor-Session with it"
        raise ProtocolError(Code.SCOPE_MISMATCH, f"runs.set_overrides: {text}")
    wanted = ModelOverrides(
        reasoning_effort=given.reasoning_effort,
        temperature=given.temperature,
        top_p=given.top_p,
        max_tokens=given.max_tokens,
        system_prompt=given.system_prompt_override,
    )
    try:
        check_overrides(wanted)
    except InvalidOptionError as error:
        raise ProtocolError(Code.INVALID_REQUEST, f"runs.set_overrides: {error}") from error
    await set_overrides(call.parts.state, who, wanted)
    at = call.services.clock.now()
    payload = RunsOverridesSetPayload(
        actor=call.caller.who.with_run(""),
        session_id=who.session_id,
        set_reasoning_effort=bool(wanted.reasoning_effort),
        set_temperature=wanted.temperature is not None,
        set_top_p=wanted.top_p is not None,
        set_max_tokens=wanted.max_tokens is not None,
        set_system_prompt=bool(wanted.system_prompt),
    )
    await call.parts.bus.publish(Event(EventType.RUNS_OVERRIDES_SET, who.with_run(""), payload))
    return OverridesSet(applied_at=at)


ENDPOINTS: Final = {"runs.set_overrides": Endpoint(SetOverrides, OverridesSet, set_run_overrides)}
