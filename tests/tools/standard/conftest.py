"""What these tests share: a call, and how a tool is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from harborage import codec
from harborage.identity import Quadruple
from harborage.testing.clock import FakeClock
from harborage.tools import CallContext, Invoker, ToolDescriptor

Invoke = Callable[..., Awaitable[Any]]


@pytest.fixture
def invoke() -> Invoke:
    """Calls a tool the way a runtime does and returns the value, as JSON would carry it."""
    call = CallContext(
        Quadruple("t", "u", "s", "r"), "c", "k", clock=FakeClock(datetime(2026, 3, 4, 23, 6, 7, tzinfo=UTC))
    )

    async def invoked(descriptor: ToolDescriptor, /, **args: Any) -> Any:
        return codec.to_plain((await Invoker().invoke(descriptor, codec.encode(args), call)).value)

    return invoked
