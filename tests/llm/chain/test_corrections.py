"""Requests are changed as the profile of the model says, schemas included, and answers completed."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    InvalidJSONSchemaError,
    LLMConfigError,
    ModelProfile,
    ReasoningEffort,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    SchemaSanitising,
    Usage,
)
from harborage.llm.chain.corrections import Correcting, correct_request, sanitise_schema
from harborage.testing.clock import FakeClock
from harborage.testing.llm import ScriptedLLM
from tests.kit.tables import each_row

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
    """The profile's reasoning effort is used where the request names none."""
    known = profile(ReasoningEffort.HIGH)
    assert correct_request(CompleteRequest(), known).reasoning_effort == "high"
    assert correct_request(CompleteRequest(reasoning_effort=ReasoningEffort.OFF), known).reasoning_effort == "off"
    assert correct_request(CompleteRequest(extra={"reasoning_effort": "low"}), known).reasoning_effort == ""


def test_extra_is_always_a_copy():
    """What a provider needs among the extras never reaches the caller's dictionary."""
    extra = {"a": 1}
    made = correct_request(CompleteRequest(extra=extra), profile())
    assert made.extra == extra
    assert made.extra is not extra


def test_system_first():
    """Every system message moves to the front, and the order is kept within both groups."""
    messages = [says(Role.USER, "1"), says(Role.SYSTEM, "a"), says(Role.ASSISTANT, "2"), says(Role.SYSTEM, "b")]
    made = correct_request(CompleteRequest(messages=messages), profile(message_ordering="system_first_strict"))
    assert [message.content.text for message in made.messages] == ["a", "b", "1", "2"]
    assert correct_request(CompleteRequest(messages=messages), profile()).messages == tuple(messages)


def test_schemas_are_sanitised():
    """The answer's schema is bent by the policy; the bytes that came in stay."""
    made = correct_request(CompleteRequest(response_format=FORMAT), profile(schema_sanitising="openai_strict"))
    assert made.response_format is not None
    assert json.loads(made.response_format.json_schema)["additionalProperties"] is False
    assert FORMAT.json_schema == SCHEMA


def test_nothing_to_sanitise():
    """Without a format, or without a schema in it, there is nothing to bend."""
    for wanted in (None, ResponseFormat(ResponseFormatKind.JSON_OBJECT)):
        made = correct_request(CompleteRequest(response_format=wanted), profile(schema_sanitising="openai_strict"))
        assert made.response_format == wanted


def test_a_schema_that_cannot_be_read():
    """A policy that has to read a schema which is no JSON is an error that starts a downgrade."""
    request = CompleteRequest(response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b"{"))
    for policies in ({"schema_sanitising": "permissive"}, {"response_shape": "anthropic"}):
        with pytest.raises(InvalidJSONSchemaError):
            correct_request(request, profile(**policies))


@pytest.mark.parametrize("effort", ["low", "off"])
def test_thinking_models_get_the_effort_among_the_extras(effort):
    """The effort moves into the extras and leaves its field."""
    request = CompleteRequest(reasoning_effort=ReasoningEffort(effort), extra={"a": 1})
    made = correct_request(request, profile(reasoning_routing="thinking_model"))
    assert made.extra == {"a": 1, "reasoning_effort": effort}
    assert made.reasoning_effort == ""
    assert request.extra == {"a": 1}


def test_no_effort_to_route():
    """Without an effort nothing is added."""
    assert correct_request(CompleteRequest(), profile(reasoning_routing="thinking_model")).extra == {}


def test_the_profiles_effort_is_routed_too():
    """What the profile filled in is routed like what the caller asked for."""
    known = profile(ReasoningEffort.MEDIUM, reasoning_routing="thinking_model")
    assert correct_request(CompleteRequest(), known).extra == {"reasoning_effort": "medium"}


def test_json_only():
    """The schema becomes a hint among the extras, decoded if it can be, and any JSON object is asked for."""
    for schema, hint in ((SCHEMA, {"type": "object"}), (b"{ no", "{ no")):
        request = CompleteRequest(response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, schema))
        made = correct_request(request, profile(response_shape="json_only"))
        assert made.response_format == ResponseFormat(ResponseFormatKind.JSON_OBJECT)
        assert made.extra == {"schema_hint": hint}


def test_anthropic():
    """The schema becomes that of a tool, and the format goes."""
    made = correct_request(CompleteRequest(response_format=FORMAT), profile(response_shape="anthropic"))
    assert made.response_format is None
    assert made.extra == {"anthropic_tool_schema": {"type": "object"}}


@each_row("shape", ["json_only", "anthropic"])
@each_row("wanted", [None, ResponseFormat(), ResponseFormat(ResponseFormatKind.JSON_OBJECT)])
def test_other_formats_keep_their_shape(shape, wanted):
    """Only a schema has to travel in another way."""
    made = correct_request(CompleteRequest(response_format=wanted), profile(response_shape=shape))
    assert made.response_format == wanted
    assert made.extra == {}


def test_the_order_of_the_policies():
    """A schema is sanitise_schema before it takes another shape."""
    known = profile(schema_sanitising="openai_strict", response_shape="anthropic")
    made = correct_request(CompleteRequest(response_format=FORMAT), known)
    assert made.extra["anthropic_tool_schema"]["strict"] is True


@each_row("field", ["message_ordering", "schema_sanitising", "reasoning_routing", "response_shape"])
async def test_an_unknown_policy(field):
    """The call fails before it is made; the error names the setting and its values."""
    client, inner = opened("never", known=profile(**{field: "surprising"}))
    with bound(WHO), pytest.raises(LLMConfigError, match=f"{field} is 'surprising'; it can be ''"):
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
    with pytest.raises(LLMConfigError):
        Correcting(None, ConfigSnapshot(), Deps(artifacts=None, bus=None))


STRICT = SchemaSanitising.OPENAI_STRICT
OPEN = SchemaSanitising.PERMISSIVE
CLOSED = {"type": "object", "additionalProperties": False, "strict": True}


def strict(schema) -> dict:
    """The schema after `openai_strict`."""
    return json.loads(sanitise_schema(json.dumps(schema).encode(), STRICT))


def permissive(schema) -> dict:
    """The schema after `permissive`."""
    return json.loads(sanitise_schema(json.dumps(schema).encode(), OPEN))


def test_strict_closes_objects():
    """A node of the type object gets both marks; other nodes get none."""
    assert strict({"type": "object"}) == CLOSED
    assert strict({"type": "string"}) == {"type": "string"}
    assert strict({"type": ["object", "null"]}) == {"type": ["object", "null"]}
    assert strict({}) == {}


def test_strict_keeps_what_was_said():
    """An explicit mark of any value stays."""
    said = {"type": "object", "additionalProperties": True, "strict": False}
    assert strict(said) == said


@each_row(
    "wrap",
    [
        lambda inner: {"properties": {"a": inner, "b": inner}},
        lambda inner: {"additionalProperties": inner},
        lambda inner: {"items": inner},
        lambda inner: {"items": [inner, inner]},
        lambda inner: {"definitions": {"a": inner}},
        lambda inner: {"$defs": {"a": inner}},
        lambda inner: {"allOf": [inner]},
        lambda inner: {"anyOf": [inner, inner]},
        lambda inner: {"oneOf": [inner]},
        lambda inner: {"not": inner},
        lambda inner: {"properties": {"a": {"items": {"anyOf": [inner]}}}},
    ],
)
def test_every_place_where_a_schema_can_stand(wrap):
    """The walk reaches the schemas inside, at any depth."""
    assert strict(wrap({"type": "object"})) == wrap(CLOSED)
    assert permissive(wrap(CLOSED)) == permissive(wrap({"type": "object"}))


def test_what_is_no_schema_is_left_alone():
    """Defaults, examples and enums are data, also when they look like schemas."""
    schema = {"enum": [{"type": "object"}], "default": {"type": "object"}, "const": {"type": "object"}}
    assert strict(schema) == schema


def test_permissive_takes_both_marks_away():
    """Neither mark is left anywhere, explicit ones included."""
    schema = {**CLOSED, "properties": {"a": {**CLOSED, "additionalProperties": {"type": "string"}}}}
    assert permissive(schema) == {"type": "object", "properties": {"a": {"type": "object"}}}


def test_a_property_may_have_the_name_of_a_mark():
    """A property called `strict` is a property."""
    schema = {"type": "object", "properties": {"strict": {"type": "boolean"}}}
    assert permissive(schema) == schema


def test_no_policy():
    """Without a policy the same bytes come back, readable or not."""
    schema = b"{ not json"
    assert sanitise_schema(schema, SchemaSanitising.UNSET) is schema


@each_row("broken", [b"{", b"", b"\xff", b"[" * 100_000])
def test_what_cannot_be_read(broken):
    """A schema that is no JSON is an error that starts a downgrade."""
    with pytest.raises(InvalidJSONSchemaError):
        sanitise_schema(broken, STRICT)


def test_sanitising_refuses_an_unknown_policy():
    """The error names the policies there are."""
    with pytest.raises(LLMConfigError, match="openai_strict"):
        sanitise_schema(b"{}", "lenient")


_NAMES = st.sampled_from(["a", "b", "type", "properties", "strict"])


def _schemas() -> st.SearchStrategy:
    leaf = st.one_of(
        st.booleans(),
        st.fixed_dictionaries({}, optional={"type": st.sampled_from(["object", "string", "array"])}),
    )
    return st.recursive(
        leaf,
        lambda inner: st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(["object", "array"]),
                "properties": st.dictionaries(_NAMES, inner, max_size=3),
                "additionalProperties": inner,
                "items": st.one_of(inner, st.lists(inner, max_size=2)),
                "$defs": st.dictionaries(_NAMES, inner, max_size=2),
                "anyOf": st.lists(inner, max_size=2),
                "not": inner,
                "strict": st.booleans(),
            },
        ),
        max_leaves=8,
    )


@given(_schemas(), st.sampled_from([STRICT, OPEN]))
def test_twice_is_once(schema, policy):
    """Sanitising what is sanitise_schema changes nothing, and the input bytes are what they were."""
    given_bytes = json.dumps(schema).encode()
    before = bytes(given_bytes)
    once = sanitise_schema(given_bytes, policy)
    assert sanitise_schema(once, policy) == once
    assert given_bytes == before


@given(_schemas())
def test_strict_only_adds(schema):
    """Nothing that was in a schema is lost or changed by closing it."""

    def covers(old, new) -> bool:
        if isinstance(old, dict):
            return isinstance(new, dict) and all(key in new and covers(value, new[key]) for key, value in old.items())
        if isinstance(old, list):
            return len(old) == len(new) and all(map(covers, old, new))
        return old == new

    assert covers(schema, json.loads(sanitise_schema(json.dumps(schema).encode(), STRICT)))
