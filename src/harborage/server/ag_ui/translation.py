"""The events of a run as those of AG-UI: what the model writes and thinks, and the calls with what came of them.

Only the run's own: what happens in the runs that it starts is theirs. What their models used counts, though.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from harborage import codec
from harborage.events import LLMCompletionChunkPayload, LLMCostRecordedPayload
from harborage.events.payloads.control import PauseRequestedPayload
from harborage.events.payloads.tools import (
    ToolApprovalRequestedPayload,
    ToolApprovedPayload,
    ToolCompletedPayload,
    ToolFailedPayload,
    ToolInvalidArgsPayload,
    ToolInvokedPayload,
    ToolPolicyExhaustedPayload,
    ToolRejectedPayload,
)
from harborage.planner.decisions import ChunkKind
from harborage.server.ag_ui import events as sent

if TYPE_CHECKING:
    from harborage.events import Event
    from harborage.planner import Finish
    from harborage.runtime.pending import Question

_CONTENT: Final = str(ChunkKind.CONTENT)
_RESET: Final = str(ChunkKind.RESET)


class Translation:
    """Turns the events of one run, in their order, into those that a client of AG-UI is sent.

    `answered` are the tokens of the questions that the request answers: their calls were shown when they were asked.
    `conversation` is what the client sent, for when it must be told anew.
    """

    def __init__(self, run_id: str, *, answered: frozenset[str] = frozenset(), conversation: list[Any]) -> None:
        self._run_id = run_id
        self._answered = answered
        self._conversation = conversation
        self._shown: set[str] = set()
        self._calls: dict[str, str] = {}
        self._usage: dict[str, sent.TokenUsage] = {}
        self._messages = 0
        self._text_id = ""
        self._text = ""
        self._text_at = 0
        self._thought_id = ""
        self.sequence = 0
        """The highest number of an event that was read."""

    def take(self, event: Event) -> Iterator[sent.Sent]:
        """Yield what a client is sent for an event."""
        self.sequence = max(self.sequence, event.sequence)
        payload = event.payload
        if isinstance(payload, LLMCostRecordedPayload):
            self._add_usage(payload)
        elif event.identity.run_id == self._run_id:
            yield from self._own(payload)

    def ask(self, question: Question) -> Iterator[sent.Sent]:
        """Yield the call that a question is about, which has not begun."""
        call = self._calls.get(question.token)
        if call is not None and call not in self._shown and question.tool:
            yield from self._announce(call, question.tool, codec.encode(question.args).decode())

    def call_of(self, token: str) -> str:
        """Return the id of the call that a question is about, '' for none."""
        return self._calls.get(token, "")

    def end(self, finish: Finish | None) -> Iterator[sent.Sent]:
        """Yield the end of what is open, and the answer of a run if it was not streamed."""
        said = self._text
        yield from self._close()
        payload = None if finish is None else finish.payload
        if payload is None or (said and (not isinstance(payload, str) or payload == said)):
            return
        answer = payload if isinstance(payload, str) else codec.encode(payload).decode()
        if answer:
            yield from self._write(answer)
            yield from self._close()

    @property
    def usage(self) -> list[sent.TokenUsage] | msgspec.UnsetType:
        """What the models used, unset if nothing is known."""
        return list(self._usage.values()) or UNSET

    def _own(self, payload: Any) -> Iterator[sent.Sent]:
        match payload:
            case LLMCompletionChunkPayload():
                yield from self._chunk(payload)
            case PauseRequestedPayload() if isinstance(payload.call_id, str):
                self._calls[payload.token] = self._id(payload.call_id)
            case ToolApprovalRequestedPayload() if isinstance(payload.call_id, str):
                self._calls[payload.pause_token] = self._id(payload.call_id)
            case ToolApprovedPayload() if payload.pause_token in self._answered:
                self._shown.add(self._id(payload.call_id))
            case ToolRejectedPayload():
                call = self._id(payload.call_id)
                if payload.pause_token not in self._answered:
                    yield from self._announce(call, payload.tool, "{}")
                yield from self._result(call, payload.reason or "the call was rejected")
            case ToolInvokedPayload():
                args = payload.args if payload.args_cut is UNSET else msgspec.json.encode(payload.args_cut)
                text = "{}" if args is UNSET else bytes(args).decode()
                yield from self._announce(self._id(payload.call_id), payload.tool_name, text)
            case ToolCompletedPayload():
                result = payload.result if payload.result_cut is UNSET else msgspec.json.encode(payload.result_cut)
                yield from self._result(self._id(payload.call_id), "" if result is UNSET else _plain(bytes(result)))
            case ToolFailedPayload():
                yield from self._result(self._id(payload.call_id), payload.error_message or payload.error_class)
            case ToolInvalidArgsPayload():
                yield from self._result(self._id(payload.call_id), payload.validation_error)
            case ToolPolicyExhaustedPayload():
                yield from self._result(self._id(payload.call_id), payload.last_error or payload.last_class)
            case _:
                return

    def _id(self, call_id: Any) -> str:
        """Return the id of a call within the thread, whose runs each count their own."""
        return f"{self._run_id}/{call_id if isinstance(call_id, str) else 'call'}"

    def _chunk(self, piece: LLMCompletionChunkPayload) -> Iterator[sent.Sent]:
        if piece.kind == _RESET:
            yield from self._close()
            if self._text:
                del self._conversation[self._text_at]
                self._text = ""
                # The client has text that no longer counts; only the whole conversation takes it away.
                yield sent.MessagesSnapshot(messages=self._conversation)
        elif piece.kind == _CONTENT:
            if piece.delta:
                yield from self._write(piece.delta)
            if piece.done:
                yield from self._close()
        elif piece.delta:
            yield from self._think(piece.delta)

    def _write(self, text: str) -> Iterator[sent.Sent]:
        if not self._text_id:
            yield from self._close()
            self._text_id, self._text = self._next_id("text"), ""
            yield sent.TextStart(message_id=self._text_id, role="assistant")
        self._text += text
        yield sent.TextContent(message_id=self._text_id, delta=text)

    def _think(self, text: str) -> Iterator[sent.Sent]:
        if not self._thought_id:
            yield from self._close()
            self._thought_id = self._next_id("reasoning")
            yield sent.ReasoningStart(message_id=self._thought_id)
            yield sent.ReasoningMessageStart(message_id=self._thought_id, role="reasoning")
        yield sent.ReasoningContent(message_id=self._thought_id, delta=text)

    def _close(self) -> Iterator[sent.Sent]:
        if self._text_id:
            yield sent.TextEnd(message_id=self._text_id)
            self._text_at = len(self._conversation)
            self._conversation.append({"id": self._text_id, "role": "assistant", "content": self._text})
            self._text_id = ""
        if self._thought_id:
            yield sent.ReasoningMessageEnd(message_id=self._thought_id)
            yield sent.ReasoningEnd(message_id=self._thought_id)
            self._thought_id = ""

    def _next_id(self, kind: str) -> str:
        self._messages += 1
        # Deltas are not stored: a second reader counts its own, and must not add to the messages of the first.
        return f"{self._run_id}/{kind}-{self.sequence}-{self._messages}"

    def _announce(self, call: str, tool: str, args: str) -> Iterator[sent.Sent]:
        if call in self._shown:
            return
        yield from self._close()
        self._shown.add(call)
        self._text = ""
        function = {"name": tool, "arguments": args}
        asked = {"id": call, "type": "function", "function": function}
        self._conversation.append({"id": f"{call}/call", "role": "assistant", "toolCalls": [asked]})
        yield sent.CallStart(tool_call_id=call, tool_call_name=tool)
        yield sent.CallArgs(tool_call_id=call, delta=args)
        yield sent.CallEnd(tool_call_id=call)

    def _result(self, call: str, text: str) -> Iterator[sent.Sent]:
        yield from self._close()
        named = f"{call}/result"
        self._conversation.append({"id": named, "role": "tool", "toolCallId": call, "content": text})
        yield sent.CallResult(message_id=named, tool_call_id=call, content=text, role="tool")

    def _add_usage(self, paid: LLMCostRecordedPayload) -> None:
        used, before = paid.usage, self._usage.get(paid.model)
        known = (0, 0, 0) if before is None else (before.input_tokens, before.output_tokens, before.reasoning_tokens)
        reasoning = known[2] if isinstance(known[2], int) else 0
        taken, given = known[0] + used.prompt_tokens, known[1] + used.completion_tokens
        self._usage[paid.model] = sent.TokenUsage(
            model=paid.model,
            input_tokens=taken,
            output_tokens=given,
            total_tokens=taken + given,
            reasoning_tokens=(reasoning + used.reasoning_tokens) or UNSET,
        )


def _plain(value: bytes) -> str:
    found: Any = msgspec.json.decode(value)
    return found if isinstance(found, str) else value.decode()
