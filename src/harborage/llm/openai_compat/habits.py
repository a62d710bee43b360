"""What the servers that all speak Chat Completions do differently, as one table. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from harborage.llm.client import ReasoningEffort

__all__ = ["HABITS", "Habits", "Thinking", "habits_of", "is_openai_reasoning", "thinking_fields"]

_MEGABYTE = 1024 * 1024


class Thinking(StrEnum):
    """Where a server wants to be told how long the model may think."""

    EFFORT = "effort"  # reasoning_effort: low | medium | high | none
    OPENROUTER = "openrouter"  # reasoning: {effort} or {enabled: false}
    TEMPLATE = "template"  # reasoning_effort, and a switch of the chat template to turn it off
    SWITCH = "switch"  # thinking: {type: enabled | disabled}


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """One server's ways. `start_hint` is how a server of one's own is started, `body` what every request carries.

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


_ORDINARY = Habits()
HABITS: Mapping[str, Habits] = {
    "deepseek": Habits(thinking=Thinking.SWITCH),
    "groq": Habits(attachment_bytes=3 * _MEGABYTE),
    "llamacpp": Habits(thinking=Thinking.TEMPLATE, start_hint="llama-server"),
    "lmstudio": Habits(start_hint="lms server start"),
    "local": Habits(thinking=Thinking.TEMPLATE),
    "mistral": Habits(streams_usage_on_request=False, call_id=r"[a-zA-Z0-9]{9}"),
    "ollama": Habits(start_hint="ollama serve"),
    "openai": Habits(call_id=r".{1,40}"),
    "openrouter": Habits(thinking=Thinking.OPENROUTER, takes_media_urls=True, body={"usage": {"include": True}}),
    "vllm": Habits(thinking=Thinking.TEMPLATE, takes_media_urls=True, start_hint="vllm serve"),
}
_REASONING_MODEL = re.compile(r"(?:openai/)?(?:o\d|gpt-[5-9])(?!.*-chat)")


def habits_of(provider: str) -> Habits:
    """The ways of a provider; one that is not known has ordinary ones."""
    return HABITS.get(provider, _ORDINARY)


def is_openai_reasoning(provider: str, model: str) -> bool:
    """Whether OpenAI itself serves this model as one that thinks: those refuse a temperature and `max_tokens`."""
    return provider == "openai" and _REASONING_MODEL.match(model) is not None


def thinking_fields(thinking: Thinking, effort: ReasoningEffort) -> dict[str, Any]:
    """The fields that ask for this much thinking, or for none; nothing when the effort is unset."""
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
