"""What each server that speaks Chat Completions does differently, as one table. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from harborage.llm.client import ReasoningEffort

_MEGABYTE = 1024 * 1024


class Thinking(StrEnum):
    """The field in which a server takes how long the model may think."""

    EFFORT = "effort"  # reasoning_effort: low | medium | high | none
    OPENROUTER = "openrouter"  # reasoning: {effort} or {enabled: false}
    TEMPLATE = "template"  # reasoning_effort, and a switch of the chat template to turn it off
    SWITCH = "switch"  # thinking: {type: enabled | disabled}


class Quirks(msgspec.Struct, frozen=True, kw_only=True):
    """The quirks of one server. `start_hint` is the command that starts it, `body` the fields of every request.

    `attachment_bytes` is the decoded size of the largest attachment it takes inline, `call_id` the pattern of the ids
    of tool calls that it takes.
    """

    thinking: Thinking = Thinking.EFFORT
    streams_usage_on_request: bool = True
    attachment_bytes: int = 20 * _MEGABYTE
    takes_media_urls: bool = False
    start_hint: str = ""
    call_id: str = r".{1,64}"
    body: Mapping[str, Any] = {}


_NONE = Quirks()
QUIRKS: Mapping[str, Quirks] = {
    "deepseek": Quirks(thinking=Thinking.SWITCH),
    "groq": Quirks(attachment_bytes=3 * _MEGABYTE),
    "llamacpp": Quirks(thinking=Thinking.TEMPLATE, start_hint="llama-server"),
    "lmstudio": Quirks(start_hint="lms server start"),
    "local": Quirks(thinking=Thinking.TEMPLATE),
    "mistral": Quirks(streams_usage_on_request=False, call_id=r"[a-zA-Z0-9]{9}"),
    "ollama": Quirks(start_hint="ollama serve"),
    "openai": Quirks(call_id=r".{1,40}"),
    "openrouter": Quirks(thinking=Thinking.OPENROUTER, takes_media_urls=True, body={"usage": {"include": True}}),
    "vllm": Quirks(thinking=Thinking.TEMPLATE, takes_media_urls=True, start_hint="vllm serve"),
}
_REASONING_MODEL = re.compile(r"(?:openai/)?(?:o\d|gpt-[5-9])(?!.*-chat)")


def quirks_of(provider: str) -> Quirks:
    """Return the quirks of a provider; one that is not in the table has none."""
    return QUIRKS.get(provider, _NONE)


def is_openai_reasoning(provider: str, model: str) -> bool:
    """Return whether OpenAI itself serves this model as one that thinks; such refuse a temperature and `max_tokens`."""
    return provider == "openai" and _REASONING_MODEL.match(model) is not None


def thinking_fields(thinking: Thinking, effort: ReasoningEffort) -> dict[str, Any]:
    """Return the fields that ask for this much thinking, or for none; empty when the effort is unset."""
    if effort is ReasoningEffort.UNSET:
        return {}
    is_off = effort is ReasoningEffort.OFF
    match thinking:
        case Thinking.OPENROUTER:
            return {"reasoning": {"enabled": False} if is_off else {"effort": effort.value}}
        case Thinking.TEMPLATE:
            return (
                {"chat_template_kwargs": {"enable_thinking": False}} if is_off else {"reasoning_effort": effort.value}
            )
        case Thinking.SWITCH:
            return {"thinking": {"type": "disabled" if is_off else "enabled"}}
        case Thinking.EFFORT:
            return {"reasoning_effort": "none" if is_off else effort.value}
