"""Compose an agent's description into a running system: for the command line, and for tests of frozen runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.app.agent import Agent as Agent
    from harborage.app.agent import Change as Change
    from harborage.app.agent import Preview as Preview
    from harborage.app.agent_runtime import open_runtime as open_runtime
    from harborage.app.attachments import Attachment as Attachment
    from harborage.app.attachments import AttachmentError as AttachmentError
    from harborage.app.attachments import attach as attach
    from harborage.app.attachments import check_attachments as check_attachments
    from harborage.app.attachments import read_attachment as read_attachment
    from harborage.app.attachments import readable as readable
    from harborage.app.model_choice import ChosenModel as ChosenModel
    from harborage.app.model_choice import choose_model as choose_model
    from harborage.app.model_choice import with_model as with_model
    from harborage.app.standard_assistant import assistant as assistant
    from harborage.app.standard_assistant import file_preview as file_preview
    from harborage.app.target import AgentNotReadyError as AgentNotReadyError
    from harborage.app.target import TargetError as TargetError
    from harborage.app.target import is_target as is_target
    from harborage.app.target import load_agent as load_agent
    from harborage.app.target import refuse_mistyped as refuse_mistyped
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.app.agent": "Agent Change Preview",
            "harborage.app.agent_runtime": "open_runtime",
            "harborage.app.standard_assistant": "assistant file_preview",
            "harborage.app.attachments": (
                "Attachment AttachmentError attach check_attachments read_attachment readable"
            ),
            "harborage.app.model_choice": "ChosenModel choose_model with_model",
            "harborage.app.target": "AgentNotReadyError TargetError is_target load_agent refuse_mistyped",
        },
    )
