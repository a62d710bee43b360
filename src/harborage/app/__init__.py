"""The workshop: an agent's description in, a running system out."""

from __future__ import annotations

from harborage.app.agent import Agent
from harborage.app.build import open_runtime
from harborage.app.target import AgentNotReadyError, TargetError, load_agent

__all__ = ["Agent", "AgentNotReadyError", "TargetError", "load_agent", "open_runtime"]
