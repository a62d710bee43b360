"""The agents that a server serves, as clients read of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from harborage.llm import ConfigSnapshot
from harborage.runtime.effects.model import ReasonerConfig

if TYPE_CHECKING:
    from harborage.runtime.effects.agent_parts import AgentParts
    from harborage.runtime.effects.agents import Agents

UNNAMED: Final = "agent"
"""What an agent without a name is called."""


def agent_id(name: str) -> str:
    """Return what clients call the agent of this name, both as its id and as its name."""
    return name or UNNAMED


def served_agent(agents: Agents, id: str) -> AgentParts | None:
    """Return the served agent of an id or a name; None where there is none."""
    return next((one for one in agents.roots if agent_id(one.name) == id), None)


def planner_type(agent: AgentParts) -> str:
    """Return what kind of planner an agent has: the driver of a configured one, else the name of its class."""
    reasoner = agent.setup.reasoner
    if agent.is_workflow:
        return "workflow"
    if not isinstance(reasoner, ReasonerConfig):
        return type(reasoner).__name__
    if reasoner.factory is not None:
        return getattr(reasoner.factory, "__name__", type(reasoner.factory).__name__)
    return reasoner.config.driver


def model_config(agent: AgentParts) -> ConfigSnapshot | None:
    """Return the configuration of an agent's model, the first of several; None for one that was given open."""
    reasoner = agent.setup.reasoner
    if not isinstance(reasoner, ReasonerConfig):
        return None
    from harborage.llm.model import configuration_of  # loaded where there is a model

    model = reasoner.model
    first = model[0] if isinstance(model, Sequence) and not isinstance(model, str) else model
    config = configuration_of(first, os.environ)
    return config if isinstance(config, ConfigSnapshot) else None
