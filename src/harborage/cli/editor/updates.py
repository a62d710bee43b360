"""The events of a run as the updates that an editor shows: what the agent writes and thinks, and what it calls.

What happens in the runs that it starts is theirs, and not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec
from msgspec import UNSET

from harborage import codec
from harborage.cli.status import answer_of
from harborage.events import LLMCompletionChunkPayload, LLMCostRecordedPayload
from harborage.events.payloads.control import PauseRequestedPayload
from harborage.events.payloads.tools import (
    ToolApprovalRequestedPayload,
    ToolCompletedPayload,
    ToolFailedPayload,
    ToolInvalidArgsPayload,
    ToolInvokedPayload,
    ToolPolicyExhaustedPayload,
    ToolRejectedPayload,
)
from harborage.ids import new_id
from harborage.planner.decisions import ChunkKind
from harborage.tools import SideEffect

if TYPE_CHECKING:
    from harborage.events import Event

_KINDS: Final = {
    "artifact_fetch": "read",
    "calculator": "think",
    "http_get": "fetch",
    "search_files": "search",
    "tool_search": "search",
    "write_file": "edit",
}
_MOST_SHOWN: Final = 20_000


def kind_of(tool: str, effects: SideEffect | None) -> str:
    """Return what kind of call an editor shows for a tool, by its name or by what it does."""
    if tool in _KINDS:
        return _KINDS[tool]
    match effects:
        case SideEffect.READ:
            return "read"
        case SideEffect.WRITE:
            return "edit"
        case SideEffect.PURE | SideEffect.EXTERNAL | SideEffect.STATEFUL | None:
            return "other"
        case _ as unreachable:
            assert_never(unreachable)


class Updates:
    """Turns the events of one run, in their order, into updates. `schema` is that of the protocol's library;
    `effects` says what a tool does.
    """

    def __init__(self, schema: Any, run_id: str, effects: Callable[[str], SideEffect | None]) -> None:
        self._schema = schema
        self._run_id = run_id
        self._effects = effects
        self._shown: set[str] = set()
        self._calls: dict[str, str] = {}
        self._said = ""
        self._message = ""
        self._open_kind = ""
        self.sequence = 0
        """The highest number of an event that was read."""

    def take(self, event: Event) -> Iterator[Any]:
        """Yield the updates that an event leads to."""
        self.sequence = max(self.sequence, event.sequence)
        payload = event.payload
        is_own = event.identity.run_id == self._run_id
        if isinstance(payload, PauseRequestedPayload) and isinstance(payload.call_id, str):
            self._calls[payload.token] = call_name(event.identity.run_id, payload.call_id)
        elif isinstance(payload, ToolApprovalRequestedPayload) and isinstance(payload.call_id, str):
            self._calls[payload.pause_token] = call_name(event.identity.run_id, payload.call_id)
        elif is_own:
            yield from self._own(payload)

    def _own(self, payload: Any) -> Iterator[Any]:
        match payload:
            case LLMCostRecordedPayload() if payload.context_window_tokens:
                used = payload.usage.prompt_tokens + payload.usage.completion_tokens
                yield self._schema.UsageUpdate(
                    session_update="usage_update", used=used, size=payload.context_window_tokens
                )
            case LLMCompletionChunkPayload():
                yield from self._chunk(payload)
            case ToolInvokedPayload():
                args = payload.args if payload.args_cut is UNSET else msgspec.json.encode(payload.args_cut)
                call = call_name(self._run_id, payload.call_id)
                raw = None if args is UNSET else codec.decode(bytes(args))
                yield from self.announce(call, payload.tool_name, raw, status="in_progress")
            case ToolCompletedPayload():
                result = payload.result if payload.result_cut is UNSET else msgspec.json.encode(payload.result_cut)
                raw = None if result is UNSET else codec.decode(bytes(result))
                yield self.ended(call_name(self._run_id, payload.call_id), raw)
            case ToolFailedPayload():
                yield self._failed(payload.call_id, payload.error_message or payload.error_class)
            case ToolInvalidArgsPayload():
                yield self._failed(payload.call_id, payload.validation_error)
            case ToolPolicyExhaustedPayload():
                yield self._failed(payload.call_id, payload.last_error or payload.last_class)
            case ToolRejectedPayload():
                call = call_name(self._run_id, payload.call_id)
                yield from self.announce(call, payload.tool, None)
                yield self.ended(call, payload.reason or "the call was rejected", is_good=False)
            case _:
                return

    def call_of(self, token: str, tool: str, args: Any) -> tuple[str, list[Any]]:
        """Return the call that a question is about, and the updates that show it."""
        call = self._calls.setdefault(token, f"{self._run_id}/{token}")
        return call, list(self.announce(call, tool, args))

    def announce(self, call: str, tool: str, args: Any, *, status: str = "pending") -> Iterator[Any]:
        """Yield the update that shows a call, or its status where it is shown already."""
        self._close()
        self._said = ""
        if call in self._shown:
            if status != "pending":
                yield self._schema.ToolCallProgress(
                    session_update="tool_call_update", tool_call_id=call, status=status, raw_input=args
                )
            return
        self._shown.add(call)
        yield self._schema.ToolCallStart(
            session_update="tool_call",
            tool_call_id=call,
            title=tool,
            kind=kind_of(tool, self._effects(tool)),
            status=status,
            raw_input=args,
        )

    def ended(self, call: str, output: Any, *, is_good: bool = True) -> Any:
        """Return the update with what came of a call."""
        self._close()
        text = output if isinstance(output, str) else "" if output is None else codec.encode(output).decode()
        block = self._schema.TextContentBlock(type="text", text=text[:_MOST_SHOWN])
        return self._schema.ToolCallProgress(
            session_update="tool_call_update",
            tool_call_id=call,
            status="completed" if is_good else "failed",
            content=[self._schema.ContentToolCallContent(type="content", content=block)] if text else None,
            raw_output=output,
        )

    def _failed(self, call_id: Any, why: str) -> Any:
        return self.ended(call_name(self._run_id, call_id), why, is_good=False)

    def answer(self, payload: Any) -> Iterator[Any]:
        """Yield the output of a run, unless it was streamed."""
        said, self._said = self._said, ""
        self._close()
        if payload is None or (said and (not isinstance(payload, str) or payload == said)):
            return
        if text := answer_of(payload):
            yield self.write(text)
            self._close()

    def write(self, text: str) -> Any:
        """Return the update with a piece of what the agent says."""
        return self._schema.AgentMessageChunk(session_update="agent_message_chunk", **self._piece(text))

    def say(self, text: str) -> Any:
        """Return the update with a message of its own."""
        self._close()
        update = self.write(text)
        self._close()
        return update

    def asked(self, text: str) -> Any:
        """Return the update with what the user said."""
        self._close()
        update = self._schema.UserMessageChunk(session_update="user_message_chunk", **self._piece(text))
        self._close()
        return update

    def think(self, text: str) -> Any:
        """Return the update with a piece of what the agent thinks."""
        return self._schema.AgentThoughtChunk(session_update="agent_thought_chunk", **self._piece(text))

    def _piece(self, text: str) -> dict[str, Any]:
        self._message = self._message or new_id()
        return {"content": self._schema.TextContentBlock(type="text", text=text), "message_id": self._message}

    def _chunk(self, piece: LLMCompletionChunkPayload) -> Iterator[Any]:
        if piece.kind == str(ChunkKind.RESET):
            self._close()
            if self._said:
                self._said = ""
                yield self.think("The model is asked again: the text before does not count.")
                self._close()
        elif piece.kind == str(ChunkKind.CONTENT):
            if piece.delta:
                self._turn_to("text")
                self._said += piece.delta
                yield self.write(piece.delta)
            if piece.done:
                self._close()
        elif piece.delta:
            self._turn_to("thought")
            yield self.think(piece.delta)

    def _turn_to(self, kind: str) -> None:
        if self._open_kind != kind:
            self._close()
            self._open_kind = kind
            if kind == "text":
                self._said = ""

    def _close(self) -> None:
        self._message = ""
        self._open_kind = ""


def call_name(run_id: str, call_id: Any) -> str:
    """Return the name of a call within its session, whose runs each count their own."""
    return f"{run_id}/{call_id if isinstance(call_id, str) else 'call'}"
