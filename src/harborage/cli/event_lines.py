"""Events as text: one line each, the runs of a stream, and the tree of what a run did. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from harborage.cli.text import printable

_MOST: Final = 240
_UNKNOWN: Final = "<unknown>"
_ENDED: Final = {"completed": "complete", "failed": "failed", "cancelled": "cancelled"}
_WORDS: Final = {**_ENDED, "spawned": "pending", "started": "running", "paused": "paused", "resumed": "running"}


class WireEvent(msgspec.Struct, frozen=True):
    """An event as a server spells it; its payload is left as it is."""

    type: str
    sequence: int = 0
    occurred_at: str = ""
    tenant: str = ""
    user: str = ""
    session: str = ""
    run: str = ""
    payload: Any = None

    @property
    def body(self) -> Mapping[str, Any]:
        """The payload as an object."""
        return self.payload if isinstance(self.payload, dict) else {}

    @property
    def run_id(self) -> str:
        """The run that it belongs to: the one of the envelope, else the one that its payload names."""
        return self.run or str(self.body.get("TaskID") or self.body.get("task_id") or "")

    def field(self, *names: str) -> str:
        """The first of these fields of the payload that is there, as text."""
        return next((str(self.body[name]) for name in names if self.body.get(name) not in (None, "")), "")


def event_line(event: WireEvent) -> str:
    """Return an event on one line: when, whose, what, and the fields of its payload by name."""
    who = "/".join([event.tenant, event.user, event.session, *([event.run] if event.run else [])])
    return f"{event.occurred_at} {who} {event.type} {{{_fields(event.body)}}}"


def _fields(body: Mapping[str, Any]) -> str:
    text = printable(" ".join(f"{key}={_short(body[key])}" for key in sorted(body)), keep="")
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{…}"
    if isinstance(value, list):
        return f"[{len(value)}]"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class SeenRun(msgspec.Struct, kw_only=True):
    """A run as far as a stream shows it."""

    run_id: str
    status: str = "unknown"
    events: int = 0
    first_at: str = ""
    last_at: str = ""
    last_type: str = ""


def seen_runs(events: Iterable[WireEvent]) -> list[SeenRun]:
    """Return the runs that the events belong to, in the order in which they begin."""
    found: dict[str, SeenRun] = {}
    for event in sorted(events, key=lambda one: one.sequence):
        if not event.run_id:
            continue
        run = found.setdefault(event.run_id, SeenRun(run_id=event.run_id, first_at=event.occurred_at))
        run.events += 1
        run.last_at, run.last_type = event.occurred_at, event.type
        family, _, what = event.type.partition(".")
        if family == "task" and run.status not in _ENDED.values():
            run.status = _WORDS.get(what, run.status)
    return list(found.values())


def run_steps(events: Iterable[WireEvent], run_id: str) -> list[dict[str, Any]]:
    """Return what one run did, event by event in order; decisions with their reasoning."""
    steps = []
    for event in sorted((one for one in events if one.run_id == run_id), key=lambda one: one.sequence):
        step: dict[str, Any] = {"sequence": event.sequence, "occurred_at": event.occurred_at, "type": event.type}
        for key, names in _SHOWN.items():
            if value := event.field(*names):
                step[key] = value
        if event.type == "planner.decision":
            step["reasoning_chars"] = int(event.field("ReasoningChars", "reasoning_chars") or 0)
            if trace := event.field("ReasoningTrace", "reasoning_trace"):
                step["reasoning"] = trace
        steps.append(step)
    return steps


_SHOWN: Final = {
    "tool": ("ToolName", "Tool", "tool"),
    "decision": ("DecisionKind", "decision_kind"),
    "reason": ("Reason", "reason"),
    "error": ("ErrorClass", "ErrorCode", "error_code"),
}


def step_line(step: Mapping[str, Any]) -> str:
    """Return one event of a run on one line."""
    more = [f"{key}={step[key]}" for key in _SHOWN if key in step]
    if step["type"] == "planner.decision":
        more.append(f"reasoning={step['reasoning_chars']} characters" if step["reasoning_chars"] else "reasoning=-")
    return printable(
        f"{step['sequence']:>12}  {step['occurred_at']}  {step['type']}  {' '.join(more)}".rstrip(), keep=""
    )


class Node(msgspec.Struct, kw_only=True):
    """A node of the tree: what it is, whether it is done, and a remark."""

    kind: str
    name: str
    state: str = ""
    remark: str = ""
    run: str = ""
    depth: int = 0


def topology(events: Iterable[WireEvent], run_id: str) -> list[Node]:
    """Return the tree of what a run did, made of its events and those of the runs that it started.

    The end of a call belongs to the latest call of the same tool, in the same run, that has none.
    """
    depths, nodes = {run_id: 0}, list[Node]()
    for event in sorted(events, key=lambda one: one.sequence):
        depth = depths.get(event.run_id if event.type != "task.spawned" else event.run or run_id)
        if event.type == "task.spawned" and event.field("TaskID") != run_id:
            parent = event.field("ParentTaskID") or run_id
            if parent in depths:
                child = event.field("TaskID")
                depths[child] = depths[parent] + 1
                nodes.append(Node(kind="task", name=child, state="spawned", run=parent, depth=depths[parent]))
        elif depth is not None:
            _add(nodes, event, depth)
    return nodes


def _add(nodes: list[Node], event: WireEvent, depth: int) -> None:
    tool = event.field("ToolName", "Tool")
    match event.type:
        case "tool.invoked":
            nodes.append(Node(kind="tool", name=tool, state="pending", run=event.run_id, depth=depth))
        case "tool.completed":
            _end(nodes, event, tool, "ok", f"{event.field('DurationMS') or 0}ms", depth)
        case "tool.failed":
            _end(nodes, event, tool, "fail", f"class={event.field('ErrorClass') or _UNKNOWN}", depth)
        case "tool.invalid_args":
            _end(nodes, event, tool, "fail", "invalid args", depth)
        case "tool.approval_requested":
            nodes.append(Node(kind="approval", name=tool, state="requested", run=event.run_id, depth=depth))
        case "tool.auth_required":
            source = event.field("SourceName", "Source") or tool
            nodes.append(Node(kind="auth", name=source, state="required", run=event.run_id, depth=depth))
        case "pause.requested":
            nodes.append(
                Node(kind="pause", name=event.field("Reason"), state="requested", run=event.run_id, depth=depth)
            )
        case "planner.finish":
            nodes.append(Node(kind="finish", name=event.field("Reason"), run=event.run_id, depth=depth))
        case _:
            pass


def _end(nodes: list[Node], event: WireEvent, tool: str, state: str, remark: str, depth: int) -> None:
    for node in reversed(nodes):
        if node.kind == "tool" and node.state == "pending" and (node.name, node.run) == (tool, event.run_id):
            node.state, node.remark = state, remark
            return
    nodes.append(Node(kind="tool", name=tool, state=state, remark=remark, run=event.run_id, depth=depth))


def render_topology(nodes: Sequence[Node], run_id: str, who: Sequence[str], width: int) -> Iterator[str]:
    """Yield the lines of the tree, each cut to `width` columns; `who` is tenant, user and session."""
    tenant, user, session = (one or _UNKNOWN for one in who)
    yield f"run {run_id}"
    yield f"tenant={tenant} user={user} session={session}"
    yield "source: events.synthesised"
    yield ""
    for node in nodes:
        indent = "" if not node.depth else "  " * node.depth + "+- "
        state = f" [{node.state}]" if node.state else ""
        remark = f" ({node.remark})" if node.remark else ""
        line = printable(f"{indent}[{node.kind:<8}] {node.name}{state}{remark}", keep="")
        yield line if len(line) <= width else f"{line[: width - 1]}…"
    if not nodes:
        yield "(no events)"
