"""What these tests share: a run, its events, and the request to repair."""

from __future__ import annotations

import pytest

from harborage.identity import Quadruple
from harborage.llm import ChatMessage, CompleteRequest, Content, Role
from harborage.planner import RunContext


@pytest.fixture
def emitted() -> list:
    """The events of the run, in order."""
    return []


@pytest.fixture
def run(emitted: list) -> RunContext:
    """One run with a whole identity."""
    return RunContext(quadruple=Quadruple("t", "u", "s", "r-1"), goal="go", emit=emitted.append)


@pytest.fixture
def request_() -> CompleteRequest:
    """A request with two messages."""
    return CompleteRequest(
        messages=[
            ChatMessage(Role.SYSTEM, Content(text="be good")),
            ChatMessage(Role.USER, Content(text="go")),
        ]
    )
