"""Requests are bent to what a provider wants, as the model's profile says."""

from __future__ import annotations

import asyncio
import json

import pytest

from harborage.identity import Quadruple, bound
from harborage.llm import (
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    CorrectionsProfile,
    CostOverrides,
    Deps,
    InvalidConfigError,
    InvalidJSONSchemaError,
    ModelProfile,
    ReasoningEffort,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    Usage,
)
from harborage.llm.chain.corrections import Correcting, corrected
from harborage.testing.clock import FakeClock
from harborage.testing.llm import ScriptedLLM

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
MODEL = "m"
SCHEMA = b'{"type": "object"}'
FORMAT = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, SCHEMA)


def says(role: Role, text: str) -> ChatMessage:
    """A message."""
    return ChatMessage(role, Content(text=text))


def profile(effort: ReasoningEffort = ReasoningEffort.UNSET, **policies) -> ModelProfile:
    """A profile with these policies."""
    return ModelProfile(
        context_window_tokens=100,
        reasoning_effort=effort,
        corrections=CorrectionsProfile(**policies) if policies else None,
    )


def opened(*script, known: ModelProfile | None) -> tuple[Correcting, ScriptedLLM]:
    """A correcting client over a script."""
    inner = ScriptedLLM(script)
    cfg = ConfigSnapshot(model=MODEL, profiles={} if known is None else {MODEL: known})
    return Correcting(inner, cfg, Deps(artifacts=None, bus=None, clock=FakeClock())), inner


async def test_the_model_is_filled_in():
    """A request without a model is sent with the configured one, with a profile and without."""
    for known in (None, profile()):
        client, inner = opened("ok", known=known)
        with bound(WHO):
            await client.complete(CompleteRequest())
        assert inner.requests[0].model == MODEL


async def test_without_a_profile_nothing_is_bent():
    """A model that nothing is known of gets the request itself."""
    client, inner = opened("ok", known=profile(response_shape="json_only"))
    request = CompleteRequest(model="stranger", response_format=FORMAT)
    with bound(WHO):
        await client.complete(request)
    assert inner.requests[0] is request


def test_the_effort_of_the_profile():
    """The profile's reasoning effort stands where the request names none."""
    known = profile(ReasoningEffort.HIGH)
    assert corrected(CompleteRequest(), known).reasoning_effort == "high"
    assert corrected(CompleteRequest(reasoning_effort=ReasoningEffort.OFF), known).reasoning_effort == "off"
    assert corrected(CompleteRequest(extra={"reasoning_effort": "low"}), known).reasoning_effort == ""


def test_extra_is_always_a_copy():
    """What a provider needs among the extras never reaches the caller's dictionary."""
    extra = {"a": 1}
    made = corrected(CompleteRequest(extra=extra), profile())
    assert made.extra == extra
    assert made.extra is not extra


def test_system_first():
    """Every system message moves to the front, and the order is kept within both groups."""
    messages = [says(Role.USER, "1"), says(Role.SYSTEM, "a"), says(Role.ASSISTANT, "2"), says(Role.SYSTEM, "b")]
    made = corrected(CompleteRequest(messages=messages), profile(message_ordering="system_first_strict"))
    assert [message.content.text for message in made.messages] == ["a", "b", "1", "2"]
    assert corrected(CompleteRequest(messages=messages), profile()).messages == tuple(messages)


def test_schemas_are_sanitised():
    """The answer's schema is bent by the policy; the bytes that came in stay."""
    made = corrected(CompleteRequest(response_format=FORMAT), profile(schema_sanitising="openai_strict"))
    assert made.response_format is not None
    assert json.loads(made.response_format.json_schema)["additionalProperties"] is False
    assert FORMAT.json_schema == SCHEMA


def test_nothing_to_sanitise():
    """Without a format, or without a schema in it, there is nothing to bend."""
    for wanted in (None, ResponseFormat(ResponseFormatKind.JSON_OBJECT)):
        made = corrected(CompleteRequest(response_format=wanted), profile(schema_sanitising="openai_strict"))
        assert made.response_format == wanted


def test_a_schema_that_cannot_be_read():
    """A policy that has to read a schema which is no JSON is an error that starts a downgrade."""
    request = CompleteRequest(response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b"{"))
    for policies in ({"schema_sanitising": "permissive"}, {"response_shape": "anthropic"}):
        with pytest.raises(InvalidJSONSchemaError):
            corrected(request, profile(**policies))


@pytest.mark.parametrize("effort", ["low", "off"])
def test_thinking_models_get_the_effort_among_the_extras(effort):
    """The effort moves into the extras and leaves its field."""
    request = CompleteRequest(reasoning_effort=ReasoningEffort(effort), extra={"a": 1})
    made = corrected(request, profile(reasoning_routing="thinking_model"))
    assert made.extra == {"a": 1, "reasoning_effort": effort}
    assert made.reasoning_effort == ""
    assert request.extra == {"a": 1}


def test_no_effort_to_route():
    """Without an effort nothing is added."""
    assert corrected(CompleteRequest(), profile(reasoning_routing="thinking_model")).extra == {}


def test_the_profiles_effort_is_routed_too():
    """What the profile filled in is routed like what the caller asked for."""
    known = profile(ReasoningEffort.MEDIUM, reasoning_routing="thinking_model")
    assert corrected(CompleteRequest(), known).extra == {"reasoning_effort": "medium"}


def test_json_only():
    """The schema becomes a hint among the extras, decoded if it can be, and any JSON object is asked for."""
    for schema, hint in ((SCHEMA, {"type": "object"}), (b"{ no", "{ no")):
        request = CompleteRequest(response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, schema))
        made = corrected(request, profile(response_shape="json_only"))
        assert made.response_format == ResponseFormat(ResponseFormatKind.JSON_OBJECT)
        assert made.extra == {"schema_hint": hint}


def test_anthropic():
    """The schema becomes that of a tool, and the format goes."""
    made = corrected(CompleteRequest(response_format=FORMAT), profile(response_shape="anthropic"))
    assert made.response_format is None
    assert made.extra == {"anthropic_tool_schema": {"type": "object"}}


@pytest.mark.parametrize("shape", ["json_only", "anthropic"])
@pytest.mark.parametrize("wanted", [None, ResponseFormat(), ResponseFormat(ResponseFormatKind.JSON_OBJECT)])
def test_other_formats_keep_their_shape(shape, wanted):
    """Only a schema has to travel in another way."""
    made = corrected(CompleteRequest(response_format=wanted), profile(response_shape=shape))
    assert made.response_format == wanted
    assert made.extra == {}


def test_the_order_of_the_policies():
    """A schema is sanitised before it takes another shape."""
    known = profile(schema_sanitising="openai_strict", response_shape="anthropic")
    made = corrected(CompleteRequest(response_format=FORMAT), known)
    assert made.extra["anthropic_tool_schema"]["strict"] is True


@pytest.mark.parametrize("field", ["message_ordering", "schema_sanitising", "reasoning_routing", "response_shape"])
async def test_an_unknown_policy(field):
    """The call fails before it is made; the error names the setting and its values."""
    client, inner = opened("never", known=profile(**{field: "surprising"}))
    with bound(WHO), pytest.raises(InvalidConfigError, match=f"{field} is 'surprising'; it can be ''"):
        await client.complete(CompleteRequest())
    assert inner.requests == []


async def test_backfill_only_where_it_is_asked_for():
    """Usage is estimated when the profile says so, and only then."""
    request = CompleteRequest(messages=[says(Role.USER, "x" * 40)])
    for policies, expected in (({"usage_backfill": True}, 11), ({"usage_backfill": False}, 0), ({}, 0)):
        client, _ = opened("answer", known=profile(**policies))
        with bound(WHO):
            answer = await client.complete(request)
        assert answer.usage.prompt_tokens == expected


async def test_backfill_is_priced_by_the_overrides():
    """An estimate costs what the operator says."""
    known = ModelProfile(
        context_window_tokens=100,
        corrections=CorrectionsProfile(usage_backfill=True),
        cost_overrides=CostOverrides(input_per_million=1e6, output_per_million=1e6),
    )
    client, _ = opened("y" * 8, known=known)
    with bound(WHO):
        answer = await client.complete(CompleteRequest(messages=[says(Role.USER, "x")]))
    assert answer.usage == Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3)
    assert answer.cost.total_cost == 3.0


async def test_many_at_once():
    """128 calls side by side keep their own extras, and the caller's requests stay as they were."""
    client, inner = opened(
        lambda request: CompleteResponse(str(request.extra["n"])),
        known=profile(ReasoningEffort.LOW, reasoning_routing="thinking_model"),
    )
    requests = [CompleteRequest(extra={"n": number}) for number in range(128)]

    async def one(number: int) -> str:
        with bound(Quadruple("t", "u", "s", f"r-{number}")):
            return (await client.complete(requests[number])).content

    assert await asyncio.gather(*map(one, range(128))) == [str(number) for number in range(128)]
    assert [request.extra for request in requests] == [{"n": number} for number in range(128)]
    assert all(request.extra["reasoning_effort"] == "low" for request in inner.requests)


async def test_closing():
    """Closing closes the client inside, and nothing is asked afterwards; a layer around nothing is refused."""
    client, inner = opened("ok", known=None)
    await client.close()
    assert inner.is_closed
    with pytest.raises(ClientClosedError):
        await client.complete(CompleteRequest())
    with pytest.raises(InvalidConfigError):
        Correcting(None, ConfigSnapshot(), Deps(artifacts=None, bus=None))
