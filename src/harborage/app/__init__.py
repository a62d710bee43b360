"""Compose an agent's description into a running system: for the command line, and for tests of frozen runs."""

from __future__ import annotations

from harborage.app.agent import Agent, Change, Preview
from harborage.app.agent_runtime import open_runtime
from harborage.app.assistant import assistant, file_preview
from harborage.app.attachments import (
    Attachment,
    AttachmentError,
    attach,
    check_attachments,
    read_attachment,
    readable,
)
from harborage.app.model_choice import ChosenModel, choose_model, with_model
from harborage.app.target import AgentNotReadyError, TargetError, is_target, load_agent, refuse_mistyped

__all__ = [
    "Agent",
    "AgentNotReadyError",
    "Attachment",
    "AttachmentError",
    "Change",
    "ChosenModel",
    "Preview",
    "TargetError",
    "assistant",
    "attach",
    "check_attachments",
    "choose_model",
    "file_preview",
    "is_target",
    "load_agent",
    "open_runtime",
    "read_attachment",
    "readable",
    "refuse_mistyped",
    "with_model",
]
