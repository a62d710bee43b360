"""Every text that a model may get, in one file: a change of any text shows as a change of that file.

`python tests/planner/react/test_golden.py` writes it anew.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from harborage.identity import Quadruple
from harborage.llm import CompleteRequest, TextPart
from harborage.planner import (
    ArtifactManifestEntry,
    BackgroundMemberOutcome,
    BackgroundResult,
    BudgetHints,
    CallParallel,
    CallTool,
    FailureRecord,
    Finish,
    FinishReason,
    InputArtifactView,
    MemoryBlocks,
    ParallelBranchObservation,
    ParallelObservation,
    PlanningHints,
    RepairCounters,
    RunContext,
    SpawnSpec,
    SpawnTask,
    SteeringInjection,
    Step,
    Trajectory,
    TrajectorySummary,
)
from harborage.planner.react import ReActPlanner
from harborage.planner.repair import RepairLoop
from harborage.testing.llm import ScriptedLLM, calls_tools
from harborage.tools import Tool, ToolExample
from tests.kit.provider_rules import check_request

GOLDEN = Path(__file__).parent / "golden" / "whole_conversation.txt"
NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


class Shelf:
    """Two tools, one of which reads tables, and the meta tools that the prompt names."""

    tools = (
        Tool("add", "Adds two\nnumbers.", examples=(ToolExample({"a": 1, "b": 2}, "a sum", ("minimal",)),)),
        Tool("read_table", handles_mime=("text/csv",)),
        *(Tool(name) for name in ("tool_search", "tool_get", "skill_search", "skill_get", "artifact_fetch")),
    )

    def resolve(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def list(self) -> list[Tool]:
        return list(self.tools)


def steered(kind: str, at_step: int, **payload: object) -> SteeringInjection:
    return SteeringInjection(kind=kind, payload=payload, at_step=at_step)


def history() -> Trajectory:
    """A summary, a step of every kind behind it, and everything that steering brings."""
    trajectory = Trajectory(query="q", steps=[Step(action=CallTool("add"))])
    trajectory.summarise(
        TrajectorySummary(
            goals=("sum it", "be brief"), facts=("1 + 1 = 2",), pending=("3",), last_output_digest="2", note="n"
        )
    )
    heavy = {"tool": "t", "size_bytes": 70_000, "truncated": True, "preview": "begin", "artifact_ref": "art-1"}
    pruned = {**heavy, "preview": '{"id":1,"body":"[omitted: 69000 bytes]"}'}
    both = ParallelObservation(
        (ParallelBranchObservation(index=1, error="no\nway"), ParallelBranchObservation(index=0, value=heavy))
    )
    trajectory.steps += [
        Step(action=CallTool("add", b'{"a":1}', "call-7"), observation={"sum": 1}, assistant_preamble="First,"),
        Step(action=CallParallel((CallTool("t"), CallTool("t"))), observation=both, reasoning_trace="both at once"),
        Step(action=CallTool("t"), observation=pruned),
        Step(action=CallTool("t"), failure=FailureRecord(code="timeout", message="too slow", attempts=3)),
        Step(action=CallTool("t")),
        Step(action=SpawnTask(spec=SpawnSpec(query="dig")), observation={"task_id": "t-1", "status": "spawned"}),
        Step(action=Finish(FinishReason.NO_PATH), observation="not yet"),
    ]
    trajectory.steering_inputs += [
        steered("user_message", 1, message="Hurry,\nplease."),
        steered("inject_context", 2, colour="red"),
        steered("redirect", 3, goal="product it"),
        steered("resumed", 4, decision="resume", answer=42),
    ]
    member = BackgroundMemberOutcome(task_id="t-1", status="failed", error_code="no_path", error_message="lost")
    trajectory.background["g"] = BackgroundResult(group_id="g", status="failed", resolved_at=NOON, members=(member,))
    return trajectory


def whole_run() -> RunContext:
    """A run of which there is something to say in every section."""
    return RunContext(
        quadruple=Quadruple("t", "u", "s", "r"),
        goal="product it",
        trajectory=history(),
        clock=lambda: NOON,
        catalog=Shelf(),
        repair_counters=RepairCounters(finish_repair=1, args_repair=2, multi_action=3),
        planning_hints=PlanningHints(
            constraints="stay here",
            preferred_order=("add", "t"),
            parallel_groups=(("a", "b"),),
            disallow_tools=("x",),
            preferred_tools=("add",),
            budget=BudgetHints(max_steps=5, max_cost_usd=1.5, max_latency_ms=900),
        ),
        memory_blocks=MemoryBlocks(external={"likes": "tea"}, conversation={"summary": "we met"}),
        skills_context=[{"name": "sums", "title": "How to sum"}],
        session_artifacts=[ArtifactManifestEntry(ref="art-1", filename="a.csv", mime="text/csv", size_bytes=9)],
        llm_context={"locale": "de"},
        input_artifacts=[
            InputArtifactView(id="art-1", mime="text/csv", size_bytes=9, filename="a.csv"),
            InputArtifactView(id="art-2", mime="image/png", bytes=b"png"),
        ],
    )


async def whole_conversation() -> str:
    """The requests of a step that had to be corrected, and of a correction in words, as text."""
    llm = ScriptedLLM([calls_tools(("add", {}), ("_await_task", {}), content="Both."), "done"])
    planner = ReActPlanner(llm, system_prompt_extra="Be kind.", reasoning_replay="text")
    await planner.next(whole_run())
    words = ScriptedLLM(["no idea", '{"tool": "add"}'])
    await RepairLoop().run(RunContext(quadruple=Quadruple("t", "u", "s", "r")), words, llm.requests[0])
    for request in (*llm.requests, *words.requests):
        check_request(request)
    parts = [*_spoken(llm.requests[1], 0), "=" * 40, "as JSON text", *_spoken(words.requests[1], -2)]
    return "\n".join(
        [
            *parts,
            "=" * 40,
            "declarations",
            *(f"{one.name}: {one.description}".rstrip() for one in llm.requests[0].tools),
        ]
    )


def _spoken(request: CompleteRequest, first: int) -> list[str]:
    lines = []
    for message in request.messages[first:]:
        lines.append(f"----- {message.role}")
        parts = message.content.parts or ()
        lines += [part.text if isinstance(part, TextPart) else f"<{type(part).__name__}>" for part in parts]
        lines += [message.content.text] if message.content.text is not None else []
        lines += [f"[{call.id}] {call.name} {call.args.decode()}" for call in message.tool_calls]
        lines += [f"(answers {message.tool_call_id})"] if message.tool_call_id else []
    return lines


def test_everything_that_is_said_is_as_it_was():
    """The prompt with every section, a history of every kind of step, corrections, and the declared controls."""
    assert asyncio.run(whole_conversation()) + "\n" == GOLDEN.read_text("utf-8")


if __name__ == "__main__":
    GOLDEN.write_text(asyncio.run(whole_conversation()) + "\n", "utf-8")
