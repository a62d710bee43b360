"""What differs, shown so that people see it at once."""

from __future__ import annotations

from typing import Any

from harborage.llm import ChatMessage, Content, ImagePart, Role, TextPart, ToolCallStructured, ToolDeclaration
from harborage.planner import CallParallel, CallTool, Finish, FinishReason, JoinSpec
from harborage.runtime.durable.model_records import Prompt, Settings
from harborage.runtime.history import Difference, DifferenceKind, build_history, compare
from harborage.runtime.history.differences import prompt_diff, value_diff
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome
from harborage.runtime.loop.state import Planned


def test_prompts_differ_line_by_line() -> None:
    """Every part of a message has its line: who speaks, what it answers, calls, pictures; tools and settings, too."""
    call = ToolCallStructured("id-1", "add", b'{"a":1}')
    before = Prompt(
        (
            ChatMessage(Role.SYSTEM, Content(text="one\ntwo")),
            ChatMessage(Role.ASSISTANT, tool_calls=(call,)),
            ChatMessage(Role.TOOL, Content(text="3"), name="add", tool_call_id="id-1"),
            ChatMessage(Role.USER, Content(parts=(TextPart("see"), ImagePart(url="http://x")))),
        ),
        (ToolDeclaration("add", "Add.", {"type": "object"}),),
        Settings(temperature=0.5),
    )
    after = Prompt(
        (
            ChatMessage(Role.SYSTEM, Content(text="one\nother")),
            ChatMessage(Role.ASSISTANT, tool_calls=(ToolCallStructured("id-1", "add", b'{"a":2}'),)),
            ChatMessage(Role.TOOL, Content(text="4"), name="add", tool_call_id="id-2"),
            ChatMessage(Role.USER, Content(parts=(TextPart("look"), ImagePart(url="http://y")))),
        ),
        (ToolDeclaration("add", "Sum.", {"type": "array"}),),
        Settings(temperature=0.7),
    )
    changed = [line for line in prompt_diff(before, after).splitlines() if line[0] in "+-"][2:]
    assert changed == [
        "-    two",
        "+    other",
        '-    calls add {"a":1} as id-1',
        "-[2] tool add answers id-1",
        "-    3",
        '+    calls add {"a":2} as id-1',
        "+[2] tool add answers id-2",
        "+    4",
        "-    see",
        '-    {"type":"image","url":"http://x"}',
        "+    look",
        '+    {"type":"image","url":"http://y"}',
        "-    Add.",
        "+    Sum.",
        '-      "type": "object"',
        '+      "type": "array"',
        "-temperature = 0.5",
        "+temperature = 0.7",
    ]
    assert prompt_diff(before, before) == ""


def test_decisions_show_their_arguments_as_text() -> None:
    """In JSON they are base64, which a person cannot read."""
    one = CallParallel((CallTool("add", b'{"a":1}'),), JoinSpec())
    other = CallParallel((CallTool("add", b'{"a":2}'),), JoinSpec())
    diff = value_diff(one, other)
    assert '-      "args": "{\\"a\\":1}"' in diff
    assert '+      "args": "{\\"a\\":2}"' in diff


def test_a_long_diff_ends() -> None:
    """Forty lines show what it is about; a line is cut where it becomes a page."""
    diff = value_diff({str(n): n for n in range(100)}, {"x": "y" * 900}).splitlines()
    assert len(diff) == 41
    assert diff[-1].startswith("… and ")
    assert "(9" in value_diff("a", "y" * 900)


def test_a_difference_in_words() -> None:
    """Where it is, what it is, and the diff below."""
    difference = Difference(kind=DifferenceKind.PROMPT, step=3, what="something else", diff="-a\n+b")
    assert str(difference) == "step 3: something else\n-a\n+b"
    assert str(Difference(kind=DifferenceKind.STEP, step=0, what="w")) == "before the first step: w"


def test_two_runs_side_by_side(writing: Any) -> None:
    """What they decided and found; times, and their own ids, do not count."""

    def run(value: str, latency_ms: int) -> Any:
        record = writing().done("2", "plan", Planned(decision=CallTool("add"), latency_ms=latency_ms))
        record.done("3", "tool.add", ToolOutcome(OutcomeStatus.DONE, value))
        return build_history(record.done("5", "plan", Planned(decision=Finish(FinishReason.GOAL, "run-1"))).record)

    assert compare(run("one", 1), run("one", 200)) == ""
    assert compare(run("one", 1), run("two", 1)).splitlines()[3:] == [
        "   1 add({})",
        "-    ✓ one",
        "+    ✓ two",
        "   2 finish (goal): (this run)",
    ]
    assert compare(run("one", 1), run("two", 1), clean=lambda value: "***") == ""
