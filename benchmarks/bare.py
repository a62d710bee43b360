"""The bare loop: what a run costs when nothing can stop, steer, approve, resume, isolate or replay it.

It awaits a stub planner, reads the call's arguments, awaits the tool, appends the step and encodes the new entry as
JSON: the least that an agent loop with a log does, with the library that Harborage itself encodes with. Planner and
tool wait as for I/O that is ready at once; the stubs on our side do the same.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from benchmarks.gate import OPEN, Gate, answer_arrives


async def bare_add(a: int, b: int) -> int:
    """The tool of every benchmark."""
    await answer_arrives()
    return a + b


class _Planner:
    def __init__(self, steps: int, gate: Gate) -> None:
        self._steps = steps
        self._gate = gate

    async def next(self, trajectory: list[dict[str, Any]]) -> dict[str, Any]:
        await self._gate.passed(len(trajectory))
        if len(trajectory) < self._steps:
            return {"type": "CallTool", "tool": "add", "args": b'{"a":1,"b":2}'}
        return {"type": "Finish", "reason": "goal"}


async def bare_run(steps: int, run_id: str = "run", gate: Gate = OPEN) -> list[bytes]:
    """One run of so many tool steps; returns its log."""
    planner = _Planner(steps, gate)
    tools = {"add": bare_add}
    trajectory: list[dict[str, Any]] = []
    log: list[bytes] = []
    while True:
        decision = await planner.next(trajectory)
        if decision["type"] == "Finish":
            return log
        observation = await tools[decision["tool"]](**msgspec.json.decode(decision["args"]))
        step = {
            "run": run_id,
            "at": datetime.now(UTC),
            "index": len(trajectory),
            "tool": decision["tool"],
            "observation": observation,
        }
        trajectory.append(step)
        log.append(msgspec.json.encode(step))
