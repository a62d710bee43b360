"""Differences between a recorded run and its replay, or between two runs, as diffs for people. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.llm import ChatMessage, TextPart
from harborage.planner import CallParallel, CallTool
from harborage.runtime.history.render import Clean, render_step

if TYPE_CHECKING:
    from harborage.runtime.durable.model_records import Prompt
    from harborage.runtime.history.model import RunHistory

_MAX_LINES: Final = 40
_MAX_CHARS: Final = 200
_SETTINGS: Final = "settings"


class DifferenceKind(StrEnum):
    """The kind of a difference."""

    STEP = "step"
    """The loop takes another step than was recorded."""
    ARGUMENTS = "arguments"
    """A call would be made with other arguments."""
    PROMPT = "prompt"
    """The model gets another prompt."""
    MODEL = "model"
    """The model is called more often, or less often, or its answer was not recorded."""
    DECISION = "decision"
    """The planner makes another decision."""
    NOTES = "notes"
    """The planner makes the same decision, with other notes."""
    FAILURE = "failure"
    """The planner fails only now, only then, or with another error."""
    NETWORK = "network"
    """Code tried to use the network, whose answer is not recorded."""
    ENDING = "ending"
    """The run ends in another way."""


class Difference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first difference between a replay and the record.

    `step` is the planner's step, counted from 1; 0 is before the first. `what` says it in a sentence, `diff` shows it:
    lines that begin with `-` were recorded, those with `+` are now. `path` is its place in the step.
    """

    kind: DifferenceKind
    step: int
    what: str
    diff: str = ""
    path: str = ""

    def __str__(self) -> str:
        where = f"step {self.step}" if self.step else "before the first step"
        return f"{where}: {self.what}" + (f"\n{self.diff}" if self.diff else "")


def compare(one: RunHistory, other: RunHistory, *, clean: Clean = lambda value: value) -> str:
    """Return the diff of the steps of two runs, without times; empty if they took the same steps."""
    lines = ([line for step in run.steps for line in _comparable(run, step, clean)] for run in (one, other))
    return _diff(*lines, names=(one.run_id, other.run_id), context=2, most=400)


def _comparable(run: RunHistory, step: Any, clean: Clean) -> list[str]:
    return [line.replace(run.run_id, "(this run)") for line in render_step(step, clean=clean, is_timed=False)]


def prompt_diff(recorded: Prompt, now: Prompt) -> str:
    """Return the diff of two prompts."""
    return _diff(_prompt_lines(recorded), _prompt_lines(now))


def value_diff(recorded: Any, now: Any, *, clean: Clean = lambda value: value) -> str:
    """Return the diff of two values, both as indented JSON. `clean` gets each as plain data first."""
    return _diff(_value_lines(recorded, clean), _value_lines(now, clean))


def _diff(
    recorded: Sequence[str],
    now: Sequence[str],
    *,
    names: tuple[str, str] = ("recorded", "now"),
    context: int = 1,
    most: int = _MAX_LINES,
) -> str:
    lines = list(difflib.unified_diff(recorded, now, *names, lineterm="", n=context))
    shown = [_cut(line) for line in lines[:most]]
    if len(lines) > most:
        shown.append(f"… and {len(lines) - most} more lines")
    return "\n".join(shown)


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]}… ({len(line)} characters)"


def _prompt_lines(prompt: Prompt) -> list[str]:
    lines: list[str] = []
    for at, message in enumerate(prompt.messages):
        lines += _message_lines(at, message)
    for tool in prompt.tools:
        lines += [f"tool {tool.name}", *(f"    {line}" for line in tool.description.splitlines())]
        lines += [f"    {line}" for line in _value_lines(tool.schema)]
    plain: dict[str, Any] = codec.to_plain(prompt.settings, _SETTINGS)
    return [*lines, *(f"{name} = {codec.encode_text(value)}" for name, value in sorted(plain.items()))]


def _message_lines(at: int, message: ChatMessage) -> list[str]:
    head = f"[{at}] {message.role}"
    if message.tool_call_id is not None:
        head += f" {message.name or ''} answers {message.tool_call_id}"
    lines = (message.content.text or "").splitlines()
    for part in message.content.parts or ():
        lines += part.text.splitlines() if isinstance(part, TextPart) else [codec.encode_text(codec.to_plain(part))]
    lines += [f"calls {call.name} {_text(call.args)} as {call.id}" for call in message.tool_calls]
    return [head, *(f"    {line}" for line in lines)]


def _value_lines(value: Any, clean: Clean = lambda value: value) -> list[str]:
    plain = clean(codec.to_plain(_readable(value)))
    return msgspec.json.format(codec.encode_text(plain), indent=2).splitlines()


def _readable(value: Any) -> Any:
    """Return a decision with its arguments as text instead of base64."""
    match value:
        case CallTool():
            return {"type": "CallTool", "tool": value.tool, "args": _text(value.args), "call_id": value.call_id}
        case CallParallel():
            branches = [_readable(branch) for branch in value.branches]
            return {"type": "CallParallel", "branches": branches, "join": value.join}
        case _:
            return value


def _text(args: bytes) -> str:
    return args.decode("utf-8", "replace")
