"""The workshop: an agent's description in, a running system out."""

from __future__ import annotations

from harborage.app.agent import Agent
from harborage.app.assistant import assistant
from harborage.app.build import open_runtime
from harborage.app.choice import ChosenModel, choose_model, with_model
from harborage.app.target import AgentNotReadyError, TargetError, is_target, load_agent

__all__ = [
    "Agent",
    "AgentNotReadyError",
    "ChosenModel",
    "TargetError",
    "assistant",
    "choose_model",
    "is_target",
    "load_agent",
    "open_runtime",
    "with_model",
]
