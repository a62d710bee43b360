"""A run as a response: its items, its status, its usage, in the words of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, assert_never

from harborage.server.openai.answering import Mark
from harborage.server.openai.chat import extra_of
from harborage.server.openai.errors import bad_input
from harborage.server.openai.snapshot import Part, Snapshot, Text, ToolCall, Waiting
from harborage.server.questions import how_to_answer
from harborage.store import Status

APART: Final = "\n\n"
"""What stands behind text beside a call, so that all texts of a response read well one after the other."""

_APPROVAL: Final = "mcpr"
_STATUSES: Final = {
    Status.PENDING: "queued",
    Status.RUNNING: "in_progress",
    Status.PAUSED: "in_progress",
    Status.COMPLETE: "completed",
    Status.FAILED: "failed",
    Status.CANCELLED: "cancelled",
}


def message_id(run_id: str, step: int) -> str:
    """The id of the words of one step."""
    return f"msg_{run_id}_{step}"


def call_item_id(run_id: str, call: str) -> str:
    """The id of one call."""
    return f"mcp_{run_id}_{call}"


def approval_id(run_id: str, token: str) -> str:
    """The id of a request for approval: it leads back to its run and its pause."""
    return f"{_APPROVAL}_{run_id}_{token}"


def mark_of(request: str) -> Mark:
    """Return which pause of which run a request for approval is of.

    Raises:
        RequestRefusedError: it is no id of one.
    """
    kind, _, rest = request.partition("_")
    run_id, _, token = rest.partition("_")
    if kind != _APPROVAL or not run_id or not token:
        raise bad_input("approval_request_id is the id of an item mcp_approval_request", "input")
    return Mark(run_id, token)


def message_item(id: str, text: str | None, *, is_final: bool, is_over: bool = True) -> dict[str, Any]:
    """Words of the agent; without a text, one that begins."""
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "status": "completed" if is_over else "in_progress",
        "phase": "final_answer" if is_final else "commentary",
        "content": [] if text is None else [text_part(text)],
    }


def text_part(text: str) -> dict[str, Any]:
    """The content of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_item(run_id: str, agent: str, call: ToolCall) -> dict[str, Any]:
    """A call that the run made: no client executes it."""
    status = "in_progress" if call.is_open else "failed" if call.error else "completed"
    return {
        "id": call_item_id(run_id, call.id),
        "type": "mcp_call",
        "server_label": agent,
        "name": call.tool,
        "arguments": call.args,
        "output": call.output,
        "error": {"type": "mcp_tool_execution_error", "content": call.error} if call.error else None,
        "status": status,
        "approval_request_id": approval_id(run_id, call.token) if call.token else None,
    }


def item_of(snapshot: Snapshot, part: Part) -> dict[str, Any]:
    """Return a part of a run as an item."""
    match part:
        case Text(token=""):
            text = part.text if part.is_final else f"{part.text}{APART}"
            return message_item(message_id(snapshot.run_id, part.step), text, is_final=part.is_final)
        case Text():
            return message_item(f"msg_{snapshot.run_id}_{part.token}", _asked(snapshot, part), is_final=False)
        case ToolCall():
            return call_item(snapshot.run_id, snapshot.agent, part)
        case Waiting():
            return {
                "id": approval_id(snapshot.run_id, part.token),
                "type": "mcp_approval_request",
                "server_label": snapshot.agent,
                "name": part.tool,
                "arguments": part.args,
            }
        case _ as unreachable:
            assert_never(unreachable)


def _asked(snapshot: Snapshot, part: Text) -> str:
    """A question, with the words that answer it."""
    ways = [how_to_answer(one) for one in snapshot.questions if one.token == part.token]
    return "\n\n".join([part.text, *ways])


def status_of(snapshot: Snapshot) -> str:
    """Return the status of a response; one that waits for a person is complete, as far as this request goes."""
    if snapshot.is_cancelled:
        return "cancelled"
    return "completed" if snapshot.questions else _STATUSES[snapshot.status]


def response_of(
    snapshot: Snapshot, echoed: Mapping[str, Any], output: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return a run as a response; `echoed` are the parameters of the request, as far as they are known."""
    status = status_of(snapshot)
    items = [item_of(snapshot, one) for one in snapshot.parts] if output is None else output
    error = None
    if status == "failed":
        text = f"run {snapshot.run_id} did not reach its goal: {snapshot.error or snapshot.status}"
        error = {"code": "server_error", "message": text}
    ended = None if snapshot.ended_at is None else int(snapshot.ended_at.timestamp())
    head = response_head(snapshot.run_id, snapshot.agent, int(snapshot.started_at.timestamp()), echoed)
    return {
        **head,
        "status": status,
        "completed_at": ended if status == "completed" else None,
        "error": error,
        "metadata": dict(snapshot.tags),
        "output": items,
        "usage": usage_of(snapshot),
        "harborage": extra_of(snapshot),
    }


def response_head(run_id: str, agent: str, created: int, echoed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response of which nothing has happened yet."""
    return {
        "id": run_id,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": echoed.get("background", False),
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": echoed.get("instructions"),
        "max_output_tokens": None,
        "metadata": echoed.get("metadata", {}),
        "model": agent,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": echoed.get("previous_response_id"),
        "store": echoed.get("store", True),
        "temperature": 1.0,
        "text": echoed.get("text", {"format": {"type": "text"}}),
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "user": echoed.get("user"),
    }


def usage_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return what the run and those below it used until now."""
    used = snapshot.usage
    return {
        "input_tokens": used.prompt_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": used.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.tokens,
    }
