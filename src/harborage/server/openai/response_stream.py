"""The events of a response that is streamed, in the order that clients of the Responses API expect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from harborage.server.following import Called, Decided, Ended, Reasoned, Rejected, Returned, Shown, Wrote
from harborage.server.open_requests import frame
from harborage.server.openai.items import (
    APART,
    call_item,
    call_item_id,
    item_of,
    message_id,
    message_item,
    response_of,
    status_of,
    text_part,
)
from harborage.server.openai.snapshot import Part, Snapshot, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harborage.server.openai.errors import RequestRefusedError

_LAST = {"completed": "response.completed", "in_progress": "response.incomplete", "queued": "response.incomplete"}


class ResponseWriter:
    """Makes the events of one response. `head` is the response before anything happened.

    What the model writes is a message that stays open until it is known whether a call follows it. Without `is_text`
    the answer comes whole, because only then it is known to be valid.
    """

    def __init__(self, head: dict[str, Any], echoed: Mapping[str, Any], *, is_text: bool, decided: int = 0) -> None:
        self._head = head
        self._echoed = echoed
        self._is_text = is_text
        self._decided = decided
        self._sequence = 0
        self._output: list[dict[str, Any]] = []
        self._places: dict[str, int] = {}
        self._open = ""
        self._text = ""
        self._is_whole = False

    def _event(self, type: str, **fields: Any) -> bytes:
        value = {"type": type, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return frame(value, type)

    def begin(self) -> bytes:
        """The first events."""
        return self._event("response.created", response=self._head) + self._event(
            "response.in_progress", response=self._head
        )

    def show(self, shown: Shown) -> bytes:
        """The events that show one thing; none where it is not shown."""
        match shown:
            case Wrote():
                return self._written(shown.text) if self._is_text else b""
            case Ended():
                self._is_whole = self._is_whole or bool(self._text)
                return b""
            case Decided():
                self._decided = max(self._decided, shown.step)
                return b""
            case Reasoned():
                return b""
            case Called():
                return self._called(ToolCall(id=shown.id, tool=shown.tool, args=_args(shown.args)))
            case Rejected():
                return self._called(ToolCall(id=shown.id, tool=shown.tool, args=_args(shown.args)))
            case Returned():
                output = None if shown.error else shown.output or ""
                known = self._output[self._places[self._call_id(shown.id)]] if self._knows(shown.id) else {}
                made = ToolCall(
                    id=shown.id,
                    tool=shown.tool,
                    args=str(known.get("arguments", "{}")),
                    output=output,
                    error=shown.error,
                )
                return self._called(made) + self._returned(made)
            case _ as unreachable:
                assert_never(unreachable)

    # ── Items ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _add(self, item: dict[str, Any]) -> bytes:
        self._places[item["id"]] = at = len(self._output)
        self._output.append(item)
        return self._event("response.output_item.added", output_index=at, item=item)

    def _done(self, item: dict[str, Any]) -> bytes:
        at = self._places[item["id"]]
        self._output[at] = item
        return self._event("response.output_item.done", output_index=at, item=item)

    # ── Messages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _written(self, text: str) -> bytes:
        before = self._close_beside() if self._is_whole else b""
        begun = b"" if self._open else self._begin_message(self._next_message())
        self._text += text
        return before + begun + self._delta(text)

    def _next_message(self) -> str:
        run_id, step = str(self._head["id"]), self._decided + 1
        while message_id(run_id, step) in self._places:
            step += 1
        return message_id(run_id, step)

    def _begin_message(self, id: str) -> bytes:
        self._open, self._text, self._is_whole = id, "", False
        added = self._add(message_item(id, None, is_final=True, is_over=False))
        return added + self._of_text("response.content_part.added", part=text_part(""))

    def _delta(self, text: str) -> bytes:
        return self._of_text("response.output_text.delta", delta=text, logprobs=[])

    def _of_text(self, type: str, **fields: Any) -> bytes:
        at = self._places[self._open]
        return self._event(type, item_id=self._open, output_index=at, content_index=0, **fields)

    def _close(self, text: str, *, is_final: bool) -> bytes:
        done = self._of_text("response.output_text.done", text=text, logprobs=[])
        done += self._of_text("response.content_part.done", part=text_part(text))
        done += self._done(message_item(self._open, text, is_final=is_final))
        self._open, self._text, self._is_whole = "", "", False
        return done

    def _close_beside(self) -> bytes:
        """End the open message, which stands beside something else: it is not the answer."""
        if not self._open:
            return b""
        return self._delta(APART) + self._close(f"{self._text}{APART}", is_final=False)

    def _whole_message(self, item: dict[str, Any]) -> bytes:
        text = str(item["content"][0]["text"])
        is_final = item["phase"] == "final_answer"
        return self._begin_message(item["id"]) + self._delta(text) + self._close(text, is_final=is_final)

    # ── Calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _call_id(self, call: str) -> str:
        return call_item_id(str(self._head["id"]), call)

    def _knows(self, call: str) -> bool:
        return self._call_id(call) in self._places

    def _called(self, call: ToolCall) -> bytes:
        """Say that a call began, once."""
        if self._knows(call.id):
            return b""
        began = ToolCall(id=call.id, tool=call.tool, args=call.args, token=call.token)
        item = call_item(str(self._head["id"]), str(self._head["model"]), began)
        added = self._close_beside() + self._add(item)
        place = {"item_id": item["id"], "output_index": self._places[item["id"]]}
        added += self._event("response.mcp_call.in_progress", **place)
        return added + self._event("response.mcp_call_arguments.done", **place, arguments=call.args)

    def _returned(self, call: ToolCall) -> bytes:
        """Say what came of a call, once."""
        item = call_item(str(self._head["id"]), str(self._head["model"]), call)
        at = self._places[item["id"]]
        if self._output[at]["status"] != "in_progress":
            return b""
        end = "response.mcp_call.failed" if call.error else "response.mcp_call.completed"
        return self._event(end, item_id=item["id"], output_index=at) + self._done(item)

    # ── The end ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def finish(self, snapshot: Snapshot) -> bytes:
        """The last events: what was not told yet, and the whole response."""
        is_told, frames = self._is_answer(snapshot.answer), b""
        if is_told and snapshot.answer is not None:
            rest = snapshot.answer[len(self._text) :]
            frames += (self._delta(rest) if rest else b"") + self._close(snapshot.answer, is_final=True)
        else:
            frames += self._close_beside()
        for part in snapshot.parts:
            if not (is_told and isinstance(part, Text) and part.is_final):
                frames += self._rest_of(part, item_of(snapshot, part))
        response = response_of(snapshot, self._echoed, self._output)
        return frames + self._event(_LAST.get(status_of(snapshot), "response.failed"), response=response)

    def _is_answer(self, answer: str | None) -> bool:
        """Whether the open message is the answer, or its beginning."""
        if not self._open or answer is None:
            return False
        return answer == self._text or (not self._is_whole and answer.startswith(self._text))

    def _rest_of(self, part: Part, item: dict[str, Any]) -> bytes:
        """The events of a part that was not told, or not to its end."""
        if isinstance(part, ToolCall):
            told = self._called(part) + (b"" if part.is_open else self._returned(part))
            self._output[self._places[item["id"]]] = item  # the record also knows which approval it had
            return told
        if item["id"] in self._places:
            return b""
        return self._whole_message(item) if isinstance(part, Text) else self._add(item) + self._done(item)

    def fail(self, error: RequestRefusedError) -> bytes:
        """The event of a stream that ends before its response does."""
        return self._event("error", code=error.code, message=str(error), param=error.param or None)


def _args(args: str | None) -> str:
    return "{}" if args is None else args
