"""The prompt of a small model: one schema, worked examples, and the conversation without native calls. Pure.

The beginning of a prompt with tools depends on the tools alone, so that the server keeps it for every run and every
step. Sections of a system prompt for large models are left out, and long results are shortened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from harborage import codec
from harborage.llm.client import (
    ChatMessage,
    CompleteRequest,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    ToolCallStructured,
    ToolChoice,
    ToolDeclaration,
)
from harborage.llm.content import Content, TextPart
from harborage.llm.local.decisions import (
    Decision,
    answer_name,
    decision_schema,
    offered_tools,
    read_decision,
    write_answer,
    write_call,
)
from harborage.llm.local.examples import MOST_EXAMPLES, Example, make_examples

DEFAULT_MAX_TOKENS: Final = 512
"""The length of a reply where none is set: a small model that rambles does so for ever."""

_INSTRUCTION: Final = "Choose the one tool that fits the request. Answer with JSON."
_MORE: Final = "More tools:"
_ANSWER_FROM: Final = "You are a helpful assistant. Answer the question in one sentence, from what was found."
_ANSWER: Final = "You are a helpful assistant. Answer the question in one sentence."
_FETCH: Final = "artifact_fetch"
_HANDLE: Final = re.compile(r'ref="|artifact_ref')
# The average length of a token of such a vocabulary; in JSON tokens are shorter than in prose.
_CHARACTERS_PER_TOKEN: Final = 3
_LONGEST_ANSWER: Final = 1_200
_LONGEST_TINY_ANSWER: Final = 300
_LONGEST_DESCRIPTION: Final = 100


class Turn(msgspec.Struct, frozen=True):
    """The request of one turn, and what is needed to read the reply. `answer` is "" when no answer is allowed."""

    request: CompleteRequest
    tools: tuple[str, ...] = ()
    answer: str = ""
    is_object: bool = False

    def read(self, reply: str) -> Decision:
        """Return the decision in a reply. Never: fails."""
        return read_decision(reply, tools=self.tools, answer=self.answer, is_object=self.is_object)


def may_call_tools(request: CompleteRequest) -> bool:
    """Return whether the model may call tools in this turn."""
    return bool(request.tools) and request.tool_choice is not ToolChoice.NONE


def plain_request(request: CompleteRequest, window: int) -> CompleteRequest:
    """Return the request without native tools, for a turn in which none may be called; `window` is in tokens."""
    has_calls = any(message.role is Role.TOOL or message.tool_calls for message in request.messages)
    messages: Sequence[ChatMessage] = request.messages
    if has_calls:
        system = [message for message in request.messages if message.role is Role.SYSTEM]
        messages = (*system, *plain_messages(request.messages, answer="", longest_result=_share(window, 4)))
    return msgspec.structs.replace(
        request,
        messages=messages,
        tools=(),
        tool_choice=ToolChoice.UNSET,
        parallel_tool_calls=False,
        max_tokens=DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens,
    )


def answer_request(request: CompleteRequest, window: int, *, is_tiny: bool = False) -> CompleteRequest:
    """Return the request for an answer in words, from the user's last message and the results since.

    Its prompt is short and without calls: a small model that has seen calls goes on making calls. One that `is_tiny`
    gets no system prompt, since it answers the first or last text that it reads.
    """
    question, results = question_and_results(request.messages, _share(window, 2))
    notes = "" if is_tiny else system_notes(request.messages, _share(window, 8))
    system = "\n".join(text for text in (_ANSWER_FROM if results else _ANSWER, notes) if text)
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


def decision_turn(request: CompleteRequest, window: int, *, is_tiny: bool = False) -> Turn:
    """Return the turn for a request with tools; `window` is how many tokens the model sees.

    A model that `is_tiny` gets no system prompt: it takes any text beside a question for a question.
    """
    tools = _useful(request)
    name = answer_name(tools)
    has_answer = request.tool_choice is not ToolChoice.REQUIRED
    schema_of_answer = _answer_schema(request.response_format)
    most = _LONGEST_TINY_ANSWER if is_tiny else _LONGEST_ANSWER
    longest = min(most, _most_tokens(request) * _CHARACTERS_PER_TOKEN // 2)
    schema = decision_schema(tools, answer=name if has_answer else "", answer_schema=schema_of_answer, longest=longest)
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
    return Turn(sent, tuple(tool.name for tool in tools), name if has_answer else "", schema_of_answer is not None)


def _most_tokens(request: CompleteRequest) -> int:
    return DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens


def _answer_schema(wanted: ResponseFormat | None) -> dict[str, Any] | None:
    """Return the schema that the answer is to follow; None where the caller has none."""
    if wanted is None or wanted.kind is not ResponseFormatKind.JSON_SCHEMA:
        return None
    try:
        schema = codec.decode(wanted.json_schema)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return schema if isinstance(schema, dict) and schema.get("type") == "object" else None


def _useful(request: CompleteRequest) -> list[ToolDeclaration]:
    """Return the tools to choose from; the one that reads stored results only where there is a stored result."""
    tools = offered_tools(request.tools)
    if any(_HANDLE.search(message.content.text or "") for message in request.messages if message.role is Role.TOOL):
        return tools
    return [tool for tool in tools if tool.name != _FETCH] or tools


def _fitting(
    request: CompleteRequest, tools: list[ToolDeclaration], answer: str, window: int, *, is_tiny: bool
) -> list[ChatMessage]:
    """Return the prompt, with as many examples as leave room for the conversation and the reply."""
    room = (window - _most_tokens(request)) * _CHARACTERS_PER_TOKEN
    notes = "" if is_tiny else system_notes(request.messages, _share(window, 8))
    talk = plain_messages(request.messages, answer=answer, longest_result=_share(window, 4))
    examples = make_examples(tools, answer)
    while examples and _length(examples) + sum(map(_size, talk)) + len(notes) > room:
        examples.pop()
    return [_system(tools), *_shown(examples), *_with_notes(talk, notes)]


def _share(window: int, part: int) -> int:
    return window * _CHARACTERS_PER_TOKEN // part


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


def _with_notes(talk: list[ChatMessage], notes: str) -> list[ChatMessage]:
    """Return the conversation with the system notes before the first words of the user."""
    if not notes:
        return talk
    for index, message in enumerate(talk):
        if message.role is Role.USER and message.content.text is not None:
            noted = ChatMessage(Role.USER, Content(text=f"{notes}\n\n{message.content.text}"))
            return [*talk[:index], noted, *talk[index + 1 :]]
    return [ChatMessage(Role.USER, Content(text=notes)), *talk]


def _length(examples: list[Example]) -> int:
    return sum(len(request) + len(reply) for request, reply in examples)


def _size(message: ChatMessage) -> int:
    return len(message.content.text or "")


# ── The conversation without native calls ───────────────────────────────────────────────────────────────────────────

# Sections of a system prompt that say how native calls work, which here the examples and the schema say.
_DROPPED: Final = (
    "identity",
    "tool_discovery",
    "heavy_results",
    "tool_usage",
    "reasoning",
    "tone",
    "error_handling",
    "available_tools",
)
_SECTION: Final = re.compile(rf"<({'|'.join(_DROPPED)})>\n.*?\n</\1>\s*", re.DOTALL)
_TAG: Final = re.compile(r"^</?[a-z_]+>\s*$", re.MULTILINE)
_GOAL: Final = "Goal:\n"
_FAILED: Final = ("error:", '{"error":')
_CUT: Final = " […] "


def compact_prompt(system: str, most: int) -> str:
    """Return a system prompt without the sections about native calls, at most `most` characters long."""
    kept = _TAG.sub("", _SECTION.sub("", system))
    return clip(re.sub(r"\n{2,}", "\n", kept).strip(), most)


def clip(text: str, most: int) -> str:
    """Return `text` without its middle where it is longer than `most` characters."""
    if len(text) <= most:
        return text
    kept = max(0, most - len(_CUT))
    tail = kept // 3
    return text[: kept - tail] + _CUT + text[len(text) - tail :] if kept else text[:most]


def system_notes(messages: Iterable[ChatMessage], most: int) -> str:
    """Return the system messages, compacted."""
    texts = (compact_prompt(_text(message), most) for message in messages if message.role is Role.SYSTEM)
    return clip("\n".join(text for text in texts if text), most)


def plain_messages(messages: Sequence[ChatMessage], *, answer: str, longest_result: int) -> list[ChatMessage]:
    """Return the conversation without its system messages, and with calls written as the model is to write them.

    Each call comes before its own result, also where several were made at once. `answer` is the name under which
    earlier answers are written; when empty they stay unchanged.
    """
    written = _written_out(messages, answer, longest_result)
    return [_without_label(message) if message.role is Role.USER else message for message in written]


def _written_out(messages: Sequence[ChatMessage], answer: str, longest: int) -> Iterator[ChatMessage]:
    unanswered: dict[str, ToolCallStructured] = {}
    for message in messages:
        match message.role:
            case Role.SYSTEM:
                continue
            case Role.ASSISTANT if message.tool_calls:
                unanswered = {call.id: call for call in message.tool_calls}
            case Role.ASSISTANT:
                text = _text(message)
                yield _message(Role.ASSISTANT, write_answer(answer, text) if answer else text)
            case Role.TOOL:
                call = unanswered.pop(message.tool_call_id or "", None)
                if call is not None:
                    yield _message(Role.ASSISTANT, write_call(call.name, call.args))
                yield _message(Role.USER, f"Result: {clip(_text(message), longest)}")
            case _:
                yield message


def is_repeat(messages: Sequence[ChatMessage], name: str, args: bytes) -> bool:
    """Return whether this very call was made since the user's last message, and has its result."""
    wanted = write_call(name, args)
    answered = {message.tool_call_id for message in messages if message.role is Role.TOOL}
    for message in reversed(messages):
        if message.role is Role.USER:
            return False
        if any(call.id in answered and write_call(call.name, call.args) == wanted for call in message.tool_calls):
            return True
    return False


def is_answerable(messages: Sequence[ChatMessage]) -> bool:
    """Return whether the last message is the result of a call that succeeded."""
    return bool(messages) and messages[-1].role is Role.TOOL and not _text(messages[-1]).startswith(_FAILED)


def question_and_results(messages: Sequence[ChatMessage], most: int) -> tuple[str, str]:
    """Return the user's last message, and the results since as readable text of at most `most` characters."""
    results: list[str] = []
    for message in reversed(messages):
        if message.role is Role.USER:
            return _text(message).removeprefix(_GOAL), clip("\n\n".join(reversed(results)), most)
        if message.role is Role.TOOL:
            results.append(to_readable(_text(message)))
    return "", clip("\n\n".join(reversed(results)), most)


def to_readable(text: str) -> str:
    """Return JSON as lines of text; a text that is no JSON object or list stays unchanged."""
    try:
        value = codec.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
    return "\n".join(_lines(value, 0)) if isinstance(value, dict | list) and value else text


def _lines(value: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    members = value.items() if isinstance(value, dict) else (("-", inner) for inner in value)
    for name, inner in members:
        label = name if name == "-" else f"{name.replace('_', ' ')}:"
        if not isinstance(inner, dict | list) or not inner:
            yield f"{indent}{label} {inner if isinstance(inner, str) else codec.encode_text(inner)}"
        elif name == "-" and isinstance(inner, dict):
            yield f"{indent}- {', '.join(line.strip() for line in _lines(inner, 0))}"
        else:
            yield f"{indent}{label}"
            yield from _lines(inner, depth + 1)


def _without_label(message: ChatMessage) -> ChatMessage:
    text = message.content.text
    return message if text is None or not text.startswith(_GOAL) else _message(Role.USER, text.removeprefix(_GOAL))


def _message(role: Role, text: str) -> ChatMessage:
    return ChatMessage(role, Content(text=text))


def _text(message: ChatMessage) -> str:
    content = message.content
    if content.parts is None:
        return content.text or ""
    texts = (part.text if isinstance(part, TextPart) else part.artifact.text() if part.artifact else "" for part in
             content.parts)  # fmt: skip
    return "\n".join(text for text in texts if text)
