"""The bare loop: what a run costs when nobody can stop, steer, approve, resume, isolate or replay it.

It awaits a stub planner, reads the call's arguments, awaits the tool, appends the step and encodes the new entry, as
JSON, with the standard library. That is the least that an agent loop with a log does.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

__all__ = ["bare_add", "bare_run"]


async def bare_add(a: int, b: int) -> int:
    """The tool of every benchmark."""
    return a + b


class _Planner:
    def __init__(self, steps: int) -> None:
        self._steps = steps

    async def next(self, trajectory: list[dict[str, Any]]) -> dict[str, Any]:
        if len(trajectory) < self._steps:
            return {"type": "CallTool", "tool": "add", "args": '{"a":1,"b":2}'}
        return {"type": "Finish", "reason": "goal"}


async def bare_run(steps: int, run_id: str = "run") -> list[str]:
    """One run of so many tool steps; returns its log."""
    planner = _Planner(steps)
    tools = {"add": bare_add}
    trajectory: list[dict[str, Any]] = []
    log: list[str] = []
    while True:
        decision = await planner.next(trajectory)
        if decision["type"] == "Finish":
            return log
        observation = await tools[decision["tool"]](**json.loads(decision["args"]))
        step = {
            "run": run_id,
            "at": datetime.now(UTC).isoformat(),
            "index": len(trajectory),
            "action": decision,
            "observation": observation,
        }
        trajectory.append(step)
        log.append(json.dumps(step))
