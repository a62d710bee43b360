"""What these tests share: runs, their events, visible tools, and a planner asked once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from harborage.identity import Quadruple
from harborage.llm import ChatMessage, CompleteRequest, Role
from harborage.planner import RepairCounters, RunContext, Trajectory
from harborage.tools import Tool

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


class Catalog:
    """A fixed list of tools, and some that only resolve."""

    def __init__(self, *tools: Tool, hidden: tuple[Tool, ...] = ()) -> None:
        self.tools = list(tools)
        self.hidden = list(hidden)

    def resolve(self, name: str) -> Tool | None:
        """The tool of that name, visible or hidden."""
        return next((tool for tool in [*self.tools, *self.hidden] if tool.name == name), None)

    def list(self) -> list[Tool]:
        """The visible tools."""
        return self.tools.copy()


@pytest.fixture
def catalog() -> type[Catalog]:
    """The class of catalogs: `catalog(Tool("a"), hidden=(Tool("b"),))`."""
    return Catalog


@pytest.fixture
def emitted() -> list:
    """The events of the runs of `make_run`, in order."""
    return []


@pytest.fixture
def make_run(emitted: list) -> Callable[..., RunContext]:
    """Makes contexts: a run with a goal, an empty history, counters and a clock at noon, and any field given."""

    def make(run_id: str = "r-1", **fields: Any) -> RunContext:
        defaults = {
            "quadruple": Quadruple("t", "u", "s", run_id),
            "query": "the question",
            "goal": "the goal",
            "trajectory": Trajectory(query="the question"),
            "repair_counters": RepairCounters(),
            "clock": lambda: NOON,
            "emit": emitted.append,
        }
        return RunContext(**{**defaults, **fields})

    return make


@pytest.fixture
def system_text() -> Callable[[CompleteRequest], str]:
    """The main system message of a request."""
    return lambda request: request.messages[0].content.text


@pytest.fixture
def texts() -> Callable[..., list[str | None]]:
    """The texts of a request's messages, of one role or of all."""

    def find(request: CompleteRequest, role: Role | None = None) -> list[str | None]:
        return [message.content.text for message in request.messages if role in (None, message.role)]

    return find


@pytest.fixture
def conversation() -> Callable[[CompleteRequest], list[ChatMessage]]:
    """The messages of a request behind the one that holds the goal."""

    def find(request: CompleteRequest) -> list[ChatMessage]:
        first = next(at for at, message in enumerate(request.messages) if message.role is Role.USER)
        return list(request.messages[first + 1 :])

    return find
