"""From an agent's description to a runtime that can be entered."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from harborage.runtime.host import Runtime

if TYPE_CHECKING:
    from harborage.app.agent import Agent

__all__ = ["open_runtime"]


def open_runtime(agent: Agent, *, logger: logging.Logger | None = None) -> Runtime:
    """The runtime of an agent, not yet entered: `async with open_runtime(agent) as rt: …`.

    Raises:
        AgentNotReadyError: the agent's own check says that it cannot work here.
        HarborageError: its tools or approvals do not fit together.
    """
    if agent.check is not None:
        agent.check()
    return Runtime(
        planner=agent.planner,
        model=agent.model,
        instructions=agent.instructions,
        tools=agent.tools,
        approvals=agent.approvals,
        options=agent.options,
        context=agent.context,
        memory=agent.memory,
        logger=logger,
    )
