"""A turn with tools, as a small model can take it: one schema, worked examples, and a plain conversation. Pure.

The beginning of the prompt depends on the tools alone, so that the server keeps it for every run and every step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from harborage import codec
from harborage.llm.client import (
    ChatMessage,
    CompleteRequest,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    ToolChoice,
    ToolDeclaration,
)
from harborage.llm.content import Content
from harborage.llm.local.conversation import found, notes, plain
from harborage.llm.local.decisions import Decision, read_decision
from harborage.llm.local.examples import MOST_EXAMPLES, Example, worked_examples
from harborage.llm.local.schemas import answer_name, decision_schema, offered

DEFAULT_MAX_TOKENS: Final = 512
"""How long a reply may get when nobody says: a small model that rambles does so for ever."""

_INSTRUCTION: Final = "Choose the one tool that fits the request. Answer with JSON."
_MORE: Final = "More tools:"
_ANSWER_FROM: Final = "You are a helpful assistant. Answer the question in one sentence, from what was found."
_ANSWER: Final = "You are a helpful assistant. Answer the question in one sentence."
_FETCH: Final = "artifact_fetch"
_HANDLE: Final = re.compile(r'ref="|artifact_ref')
# What a token of such a vocabulary is about, in characters; JSON takes more of them than prose.
_CHARACTERS_A_TOKEN: Final = 3
_LONGEST_ANSWER: Final = 1_200
_LONGEST_TINY_ANSWER: Final = 300
_LONGEST_DESCRIPTION: Final = 100


class Turn(msgspec.Struct, frozen=True):
    """What is sent for one turn, and what is needed to read the reply. `answer` is "" when no answer is allowed."""

    request: CompleteRequest
    tools: tuple[str, ...] = ()
    answer: str = ""
    is_object: bool = False

    def read(self, reply: str) -> Decision:
        """What the reply decides. Never: fails."""
        return read_decision(reply, tools=self.tools, answer=self.answer, is_object=self.is_object)


def is_constrained(request: CompleteRequest) -> bool:
    """Whether the model may call tools in this turn."""
    return bool(request.tools) and request.tool_choice is not ToolChoice.NONE


def unconstrained(request: CompleteRequest, window: int) -> CompleteRequest:
    """The request without native tools, for a turn in which none may be called; `window` is in tokens."""
    has_calls = any(message.role is Role.TOOL or message.tool_calls for message in request.messages)
    messages: Sequence[ChatMessage] = request.messages
    if has_calls:
        system = [message for message in request.messages if message.role is Role.SYSTEM]
        messages = (*system, *plain(request.messages, answer="", longest_result=_share(window, 4)))
    return msgspec.structs.replace(
        request,
        messages=messages,
        tools=(),
        tool_choice=ToolChoice.UNSET,
        parallel_tool_calls=False,
        max_tokens=DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens,
    )


def answering(request: CompleteRequest, window: int, *, is_tiny: bool = False) -> CompleteRequest:
    """The request for an answer in words, from the user's last words and what tools have said since.

    A short prompt of its own: a small model that has seen calls goes on making calls. To one that `is_tiny` the system
    prompt is not shown, since it answers whatever it reads last or first.
    """
    question, results = found(request.messages, _share(window, 2))
    said = "" if is_tiny else notes(request.messages, _share(window, 8))
    system = "\n".join(text for text in (_ANSWER_FROM if results else _ANSWER, said) if text)
    user = f"Question: {question}\n\nFound:\n{results}" if results else f"Question: {question}"
    return msgspec.structs.replace(
        request,
        messages=[ChatMessage(Role.SYSTEM, Content(text=system)), ChatMessage(Role.USER, Content(text=user))],
        tools=(),
        tool_choice=ToolChoice.UNSET,
        parallel_tool_calls=False,
        temperature=0.0 if request.temperature is None else request.temperature,
        max_tokens=_most_tokens(request),
    )


def constrained(request: CompleteRequest, window: int, *, is_tiny: bool = False) -> Turn:
    """The turn for a request with tools; `window` is how many tokens the model sees.

    To a model that `is_tiny` the system prompt is not shown: what stands beside a question is a question to it.
    """
    tools = _useful(request)
    name = answer_name(tools)
    has_answer = request.tool_choice is not ToolChoice.REQUIRED
    asked = _asked_schema(request.response_format)
    most = _LONGEST_TINY_ANSWER if is_tiny else _LONGEST_ANSWER
    longest = min(most, _most_tokens(request) * _CHARACTERS_A_TOKEN // 2)
    schema = decision_schema(tools, answer=name if has_answer else "", answer_schema=asked, longest=longest)
    sent = msgspec.structs.replace(
        request,
        messages=_fitting(request, tools, name, window, is_tiny=is_tiny),
        response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, codec.encode(schema)),
        tools=(),
        tool_choice=ToolChoice.UNSET,
        parallel_tool_calls=False,
        # A choice, not prose: the likeliest one is wanted, and the same one every time.
        temperature=0.0 if request.temperature is None else request.temperature,
        max_tokens=_most_tokens(request),
        validator=None,
    )
    return Turn(sent, tuple(tool.name for tool in tools), name if has_answer else "", asked is not None)


def _most_tokens(request: CompleteRequest) -> int:
    return DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens


def _asked_schema(wanted: ResponseFormat | None) -> dict[str, Any] | None:
    """The schema that the answer is to follow, where the caller has one."""
    if wanted is None or wanted.kind is not ResponseFormatKind.JSON_SCHEMA:
        return None
    try:
        schema = codec.decode(wanted.json_schema)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return schema if isinstance(schema, dict) and schema.get("type") == "object" else None


def _useful(request: CompleteRequest) -> list[ToolDeclaration]:
    """The tools to choose from; the one that reads stored results only where a stored result is shown."""
    tools = offered(request.tools)
    if any(_HANDLE.search(message.content.text or "") for message in request.messages if message.role is Role.TOOL):
        return tools
    return [tool for tool in tools if tool.name != _FETCH] or tools


def _fitting(
    request: CompleteRequest, tools: list[ToolDeclaration], answer: str, window: int, *, is_tiny: bool
) -> list[ChatMessage]:
    """The prompt, with as many examples as leave room for the conversation and the reply."""
    room = (window - _most_tokens(request)) * _CHARACTERS_A_TOKEN
    said = "" if is_tiny else notes(request.messages, _share(window, 8))
    talk = plain(request.messages, answer=answer, longest_result=_share(window, 4))
    examples = worked_examples(tools, answer)
    while examples and _length(examples) + sum(map(_size, talk)) + len(said) > room:
        examples.pop()
    return [_system(tools), *_shown(examples), *_noted(talk, said)]


def _share(window: int, part: int) -> int:
    return window * _CHARACTERS_A_TOKEN // part


def _system(tools: list[ToolDeclaration]) -> ChatMessage:
    rest = tools[MOST_EXAMPLES:]
    listed = [f"- {tool.name}: {' '.join(tool.description.split())[:_LONGEST_DESCRIPTION]}" for tool in rest]
    return ChatMessage(Role.SYSTEM, Content(text="\n".join([_INSTRUCTION, *([_MORE] if rest else []), *listed])))


def _shown(examples: list[Example]) -> list[ChatMessage]:
    return [
        ChatMessage(role, Content(text=text))
        for example in examples
        for role, text in zip((Role.USER, Role.ASSISTANT), example, strict=True)
    ]


def _noted(talk: list[ChatMessage], said: str) -> list[ChatMessage]:
    """The conversation, with the operator's words before the first of the user's."""
    if not said:
        return talk
    for index, message in enumerate(talk):
        if message.role is Role.USER and message.content.text is not None:
            noted = ChatMessage(Role.USER, Content(text=f"{said}\n\n{message.content.text}"))
            return [*talk[:index], noted, *talk[index + 1 :]]
    return [ChatMessage(Role.USER, Content(text=said)), *talk]


def _length(examples: list[Example]) -> int:
    return sum(len(request) + len(reply) for request, reply in examples)


def _size(message: ChatMessage) -> int:
    return len(message.content.text or "")
