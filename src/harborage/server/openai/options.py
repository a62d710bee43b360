"""Which parameters a request may have: those that are served, those that are hints, and those that are refused by name.

An agent has its own model, settings and tools. So a parameter that would change them is taken only with the value that
changes nothing, as OpenAI itself does for models without it; one that promises nothing is taken and left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from harborage.runtime.outputs import output_type
from harborage.server.openai.errors import RequestRefusedError, bad_input

if TYPE_CHECKING:
    from harborage.runtime.effects.agent_parts import AgentParts
    from harborage.runtime.outputs import OutputType
    from harborage.server.services import Services

UNSUPPORTED: Final = "unsupported_parameter"

HINTS: Final = frozenset(
    {
        "parallel_tool_calls",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "seed",
    }
)
"""What promises nothing in OpenAI's own words: it is taken, and left."""

_OF_BOTH: Final = frozenset({"metadata", "model", "safety_identifier", "store", "stream", "stream_options", "user"})
CHAT: Final = _OF_BOTH | {"messages", "response_format"}
RESPONSES: Final = _OF_BOTH | {"background", "include", "input", "instructions", "previous_response_id", "text"}

_NOTHING: Final[tuple[Any, ...]] = (None, [], {}, False)
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "frequency_penalty": (0,),
    "logprobs": (),
    "modalities": (["text"],),
    "n": (1,),
    "presence_penalty": (0,),
    "service_tier": ("auto", "default"),
    "temperature": (1,),
    "tool_choice": ("auto", "none"),
    "top_logprobs": (0,),
    "top_p": (1,),
    "truncation": ("auto", "disabled"),
    "verbosity": ("medium",),
}
_OWN: Final = "the agent has its own"
_WHY: Final[Mapping[str, str]] = {
    "tools": "the agent calls its own tools here, on the server",
    "functions": "the agent calls its own tools here, on the server",
    "max_tokens": "the limits of an agent are its own: Limits(tokens=…)",
    "max_completion_tokens": "the limits of an agent are its own: Limits(tokens=…)",
    "max_output_tokens": "the limits of an agent are its own: Limits(tokens=…)",
    "max_tool_calls": "the limits of an agent are its own: Limits(calls=…)",
    "conversation": "send previous_response_id, or name the session in the header X-Harbor-Session",
    "logprobs": "an agent's answer has none",
    "top_logprobs": "an agent's answer has none",
    "n": "a run gives one answer",
}
_KNOWN: Final = frozenset(
    {
        *_NEUTRAL,
        *_WHY,
        "access_programs",
        "audio",
        "background_options",
        "context_management",
        "function_call",
        "image",
        "logit_bias",
        "moderation",
        "prompt",
        "reasoning",
        "reasoning_effort",
        "stop",
        "web_search_options",
    }
)
_INCLUDES: Final = frozenset({"message.output_text.logprobs"})
"""What may be asked to be included, and is nowhere here."""
_ANNOTATIONS: Final = frozenset({"$schema", "additionalProperties", "default", "description", "examples", "title"})
_DEEPEST: Final = 32


def check_options(fields: Mapping[str, Any], served: frozenset[str]) -> None:
    """Accept the parameters of a request.

    Raises:
        RequestRefusedError: one is not known, or is not served with its value; it is named.
    """
    for name, value in fields.items():
        if name in served or name in HINTS:
            continue
        if name not in _KNOWN and name not in CHAT | RESPONSES:
            raise bad_input(f"unknown parameter {name!r}", name, code="unknown_parameter")
        if value in _NOTHING or value in _NEUTRAL.get(name, ()):
            continue
        why = _WHY.get(name, f"{_OWN} model and settings")
        raise bad_input(f"{name!r} is not supported with this value: {why}; leave it out", name, code=UNSUPPORTED)
    for name in fields.get("include") or ():
        if name in _INCLUDES:
            raise bad_input(f"include: {name!r} is not supported: {_WHY['logprobs']}", "include", code=UNSUPPORTED)


def text_option(fields: Mapping[str, Any], name: str) -> str:
    """Return a parameter that is a text; '' where it is left out."""
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise bad_input(f"{name!r} takes a text", name)
    return value


def flag_option(fields: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """Return a parameter that is true or false."""
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad_input(f"{name!r} takes true or false", name)
    return value


def tags_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return what marks the run of a request: its metadata, its user and its safety identifier."""
    metadata = fields.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise bad_input("'metadata' takes an object of texts", "metadata")
    tags: dict[str, str] = {}
    for name, value in (metadata or {}).items():
        if not isinstance(value, str):
            raise bad_input("'metadata' takes an object of texts", "metadata")
        tags[name] = value
    for name in ("user", "safety_identifier"):
        value = text_option(fields, name)
        if not value:
            continue
        if tags.setdefault(name, value) != value:
            raise bad_input(f"{name!r} stands in 'metadata', too, with another value", name)
    return tags


def served_agent(services: Services, fields: Mapping[str, Any]) -> AgentParts:
    """Return the agent that a request names as its model.

    Raises:
        RequestRefusedError: it names none that is served.
    """
    name = text_option(fields, "model")
    served = {one.name: one for one in services.parts.agents.roots}
    if not name:
        raise bad_input("'model' is missing: it is the name of an agent; GET /v1/models lists them", "model")
    if (found := served.get(name)) is None:
        text = f"no agent of this name is served here; GET /v1/models lists {len(served)}"
        raise RequestRefusedError(404, text, code="model_not_found", param="model")
    return found


def output_of(agent: AgentParts) -> OutputType[Any] | None:
    """Return what describes the output of an agent; None where that is text."""
    declared = getattr(agent.value, "output", str)
    return None if agent.decode is None else output_type(declared)


def check_format(agent: AgentParts, asked: Any, param: str) -> None:
    """Accept the format that an answer shall have, where it is the one that the agent's answers have.

    Raises:
        RequestRefusedError: it is another.
    """
    if asked is None:
        return
    kind = asked.get("type") if isinstance(asked, dict) else None
    output = output_of(agent)
    match kind:
        case "text":
            return
        case "json_object":
            if output is not None:
                return
        case "json_schema":
            inner = asked.get("json_schema")
            schema = (inner if isinstance(inner, dict) else asked).get("schema")
            if isinstance(schema, dict) and output is not None and _is_same(schema, output.inner_schema):
                return
        case _:
            raise bad_input(f"'{param}' takes the type text, json_object or json_schema", param)
    what = "text" if output is None else "another schema"
    text = f"{param}: the agent answers in {what}; an agent's format is its own: Agent(output=…)"
    raise bad_input(text, param, code=UNSUPPORTED)


def _is_same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two schemas describe values of the same form, whatever they say about them."""
    try:
        return bool(_form(left, left, 0) == _form(right, right, 0))
    except (KeyError, TypeError, RecursionError):
        return False


def _form(node: Any, root: Mapping[str, Any], depth: int) -> Any:
    """What a schema demands of the form of a value, with its references resolved."""
    if depth > _DEEPEST:
        raise RecursionError
    if isinstance(node, Sequence) and not isinstance(node, str):
        forms = [_form(one, root, depth + 1) for one in node]
        return sorted(forms, key=repr)
    if not isinstance(node, Mapping):
        return node
    if isinstance(named := node.get("$ref"), str):
        return _form(root["$defs"][named.rpartition("/")[2]], root, depth + 1)
    form: dict[str, Any] = {}
    for name, value in node.items():
        if name == "properties":
            form[name] = {key: _form(one, root, depth + 1) for key, one in value.items()}
        elif name not in _ANNOTATIONS and name not in ("$defs", "required"):
            form["anyOf" if name == "oneOf" else name] = _form(value, root, depth + 1)
    return form
