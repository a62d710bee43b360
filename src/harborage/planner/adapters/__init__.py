"""Agents written with another framework, run as planners of this runtime: one decision a step.

`adapt_…` takes the framework's agent and gives the two things a runtime needs: a planner that asks the agent's model
once a step, and the agent's tools as descriptors, so that the runtime calls them under its own policy, approvals and
journal. The frameworks are imported when an agent is adapted, not before.
"""

from __future__ import annotations

from harborage.planner.adapters.base import (
    Adapted,
    AdapterError,
    AdapterToolError,
    AdapterUnsupportedError,
    ApprovalsNotTakenError,
    GatePolicy,
)
from harborage.planner.adapters.langgraph import adapt_langgraph
from harborage.planner.adapters.openai_agents import adapt_openai_agents
from harborage.planner.adapters.pydantic_ai import adapt_pydantic_ai

__all__ = [
    "Adapted",
    "AdapterError",
    "AdapterToolError",
    "AdapterUnsupportedError",
    "ApprovalsNotTakenError",
    "GatePolicy",
    "adapt_langgraph",
    "adapt_openai_agents",
    "adapt_pydantic_ai",
]
