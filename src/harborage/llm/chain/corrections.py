"""Changes that a provider needs in a request, and in its answer.

Providers accept letters, digits, `_` and `-` in the name of a tool, at most 64 of them: one with a dot or a slash is
sent under another name, and the answer names the tools as the request did. Nothing else here is known of any provider:
the profile of the model names policies, and a policy is a pure function of the request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import is_
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.llm.chain.accounting import backfill_usage
from harborage.llm.chain.conversation import read_conversation
from harborage.llm.chain.layer import Layer
from harborage.llm.client import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    ReasoningEffort,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    ToolCallStructured,
)
from harborage.llm.config import (
    MessageOrdering,
    ModelProfile,
    ReasoningRouting,
    ResponseShape,
    SchemaSanitising,
)
from harborage.llm.errors import InvalidJSONSchemaError, LLMConfigError

_LEGAL: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST: Final = 64
_MARK_CHARS: Final = 6
_RENAMED: Final = "llm.renamed"


class Naming(Layer):
    """Gives tools whose names a provider would refuse other names, for one call."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        called = read_conversation(request.messages).called
        names = wire_names(called.union([one.name for one in request.tools]))
        if not names:
            return await self._inner.complete(request)
        answer = await self._inner.complete(_renamed(request, names))
        back = {wire: name for name, wire in names.items()}
        calls = tuple(_call(call, back) for call in answer.tool_calls)
        return replace(answer, tool_calls=calls) if calls else answer


@lru_cache(maxsize=256)
def wire_names(names: frozenset[str]) -> Mapping[str, str]:
    """Return a legal name for each name that is not; never one that another tool has."""
    illegal = sorted(name for name in names if not _LEGAL.fullmatch(name))
    taken = set(names)
    found: dict[str, str] = {}
    for name in illegal:
        wire = _OTHER.sub("_", name)
        if wire in taken or not 0 < len(wire) <= _LONGEST:
            mark = hashlib.sha256(name.encode()).hexdigest()[:_MARK_CHARS]
            wire = f"{wire[: _LONGEST - _MARK_CHARS - 1]}_{mark}"
        taken.add(wire)
        found[name] = wire
    return MappingProxyType(found)


def _renamed(request: CompleteRequest, names: Mapping[str, str]) -> CompleteRequest:
    tools = tuple(replace(one, name=names[one.name]) if one.name in names else one for one in request.tools)
    messages = [_message(one, names) if one.tool_calls else one for one in request.messages]
    return replace(request, tools=tools, messages=messages)


class _Renamed(msgspec.Struct, frozen=True):
    """A message as it is sent, with the names it was given; the run's next request most likely gives the same."""

    message: ChatMessage
    names: tuple[str, ...]


def _message(message: ChatMessage, names: Mapping[str, str]) -> ChatMessage:
    wanted = tuple([names.get(call.name, call.name) for call in message.tool_calls])
    found: _Renamed | None = vars(message).get(_RENAMED)
    if found is None or found.names != wanted:
        calls = tuple(_call(call, names) for call in message.tool_calls)
        found = vars(message)[_RENAMED] = _Renamed(replace(message, tool_calls=calls), wanted)
    return found.message


def _call(call: ToolCallStructured, names: Mapping[str, str]) -> ToolCallStructured:
    return replace(call, name=names[call.name]) if call.name in names else call


class Correcting(Layer):
    """Applies the corrections of the model's profile; a model without a profile passes untouched.

    Raises:
        LLMConfigError: a policy of the profile is unknown.
        InvalidJSONSchemaError: the schema of the answer is no JSON, and a policy has to read it.
    """

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        model = request.model or self._cfg.model
        profile = self._cfg.profiles.get(model)
        if profile is None:
            return await self._inner.complete(_for_model(request, model))
        response = await self._inner.complete(correct_request(request, profile, model))
        if profile.corrections is None or not profile.corrections.usage_backfill:
            return response
        return backfill_usage(request, response, profile.cost_overrides)


def _for_model(request: CompleteRequest, model: str) -> CompleteRequest:
    return request if request.model == model else msgspec.structs.replace(request, model=model)


def correct_request(request: CompleteRequest, profile: ModelProfile, model: str = "") -> CompleteRequest:
    """Return `request` as the provider of this `model` wants it; without one it keeps its own.

    `extra` is copied; the rest is shared.

    Raises:
        LLMConfigError: a policy is unknown.
        InvalidJSONSchemaError: the schema is no JSON, and a policy has to read it.
    """
    changes: dict[str, Any] = {"model": model or request.model, "extra": dict(request.extra)}
    # An effort among the caller's own extras is a choice too; the profile's default must not replace it.
    if request.reasoning_effort == ReasoningEffort.UNSET and "reasoning_effort" not in request.extra:
        changes["reasoning_effort"] = profile.reasoning_effort
    if request.temperature is None and profile.temperature is not None:
        changes["temperature"] = profile.temperature
    corrected = msgspec.structs.replace(request, **changes)
    policies = profile.corrections
    if policies is None:
        return corrected
    for field, steps in _STEPS.items():
        policy = getattr(policies, field)
        if policy in steps:
            corrected = steps[policy](corrected)
        elif policy:
            known = ", ".join(repr(str(name)) for name in ("", *steps))
            raise LLMConfigError(f"llm: the correction {field} is {policy!r}; it can be {known}")
    return corrected


# Members of an enum are slow to reach, and this is compared with every message.
_SYSTEM: Final = Role.SYSTEM
_Step: TypeAlias = Callable[[CompleteRequest], CompleteRequest]


def _system_first(request: CompleteRequest) -> CompleteRequest:
    system = [message for message in request.messages if message.role == _SYSTEM]
    if all(map(is_, system, request.messages)):
        return request
    others = [message for message in request.messages if message.role != _SYSTEM]
    return msgspec.structs.replace(request, messages=[*system, *others])


def _sanitising(policy: SchemaSanitising) -> _Step:
    def apply(request: CompleteRequest) -> CompleteRequest:
        wanted = request.response_format
        if wanted is None or not wanted.json_schema:
            return request
        schema = sanitise_schema(wanted.json_schema, policy)
        return msgspec.structs.replace(request, response_format=ResponseFormat(wanted.kind, schema))

    return apply


def _effort_among_extras(request: CompleteRequest) -> CompleteRequest:
    if request.reasoning_effort == ReasoningEffort.UNSET:
        return request
    extra = {**request.extra, "reasoning_effort": str(request.reasoning_effort)}
    return msgspec.structs.replace(request, extra=extra, reasoning_effort=ReasoningEffort.UNSET)


def _json_only(request: CompleteRequest) -> CompleteRequest:
    wanted = request.response_format
    if wanted is None or wanted.kind != ResponseFormatKind.JSON_SCHEMA:
        return request
    extra = {**request.extra, "schema_hint": _decoded_or_text(wanted.json_schema)}
    return msgspec.structs.replace(request, extra=extra, response_format=ResponseFormat(ResponseFormatKind.JSON_OBJECT))


def _as_tool_schema(request: CompleteRequest) -> CompleteRequest:
    wanted = request.response_format
    if wanted is None or wanted.kind != ResponseFormatKind.JSON_SCHEMA:
        return request
    extra = {**request.extra, "anthropic_tool_schema": _decoded(wanted.json_schema)}
    return msgspec.structs.replace(request, extra=extra, response_format=None)


def _decoded_or_text(schema: bytes) -> Any:
    try:
        return _decoded(schema)
    except InvalidJSONSchemaError:
        return schema.decode("utf-8", "replace")


def _decoded(schema: bytes) -> Any:
    try:
        return codec.decode(schema)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidJSONSchemaError(f"llm: the JSON schema of the answer cannot be read: {error}") from error


_STEPS: Final[Mapping[str, Mapping[str, _Step]]] = {
    "message_ordering": {MessageOrdering.SYSTEM_FIRST_STRICT: _system_first},
    "schema_sanitising": {
        SchemaSanitising.OPENAI_STRICT: _sanitising(SchemaSanitising.OPENAI_STRICT),
        SchemaSanitising.PERMISSIVE: _sanitising(SchemaSanitising.PERMISSIVE),
    },
    "reasoning_routing": {ReasoningRouting.THINKING_MODEL: _effort_among_extras},
    "response_shape": {ResponseShape.JSON_ONLY: _json_only, ResponseShape.ANTHROPIC: _as_tool_schema},
}
"""The policies of a profile in the order in which they apply."""


Schema: TypeAlias = dict[str, Any]

_BY_NAME: Final = ("properties", "definitions", "$defs")
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("additionalProperties", "items", "not")


# ── Schemas: every object closed, or none ───────────────────────────────────────────────────────────────────────────


def sanitise_schema(schema: bytes, policy: SchemaSanitising | str) -> bytes:
    """Return `schema` with `policy` applied to every schema inside it; without a policy the same bytes.

    `openai_strict` closes each node of the type `object` and marks it as strict, where the node does not say otherwise
    itself; `permissive` removes both marks everywhere.

    Raises:
        LLMConfigError: the policy is unknown.
        InvalidJSONSchemaError: the schema is no JSON.
    """
    if policy == SchemaSanitising.UNSET:
        return schema
    treat = _TREATMENTS.get(policy)
    if treat is None:
        raise LLMConfigError(f"llm: schema_sanitising is {policy!r}; use one of {', '.join(_TREATMENTS)}")
    try:
        decoded = codec.decode(schema)
        _walk(decoded, treat)
        return codec.encode(decoded, "schema")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidJSONSchemaError(f"llm: the JSON schema of the answer cannot be read: {error}") from error


def _walk(node: Any, treat: Callable[[Schema], None]) -> None:
    """Apply `treat` to a schema and to those inside it. The tree was just decoded, so it may be changed in place."""
    if not isinstance(node, dict):
        return  # `true` and `false` are schemas too, and have nothing to treat
    for inner in _schemas_inside(node):
        _walk(inner, treat)
    treat(node)


def _schemas_inside(node: Schema) -> list[Any]:
    found = [node[key] for key in _SINGLE if key in node]
    for key in _BY_NAME:
        named = node.get(key)
        if isinstance(named, dict):
            found += named.values()
    for key in _LISTS:
        listed = node.get(key)
        if isinstance(listed, list):
            found += listed
    # `items` was once allowed to be a list, one schema a position.
    return [schema for one in found for schema in (one if isinstance(one, list) else (one,))]


def _close(node: Schema) -> None:
    if node.get("type") == "object":
        node.setdefault("additionalProperties", False)
        node.setdefault("strict", True)


def _open(node: Schema) -> None:
    node.pop("additionalProperties", None)
    node.pop("strict", None)


_TREATMENTS: Final[dict[str, Callable[[Schema], None]]] = {
    SchemaSanitising.OPENAI_STRICT: _close,
    SchemaSanitising.PERMISSIVE: _open,
}
