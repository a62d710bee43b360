"""Workflows: an async function whose every await is one recorded step of its run."""

from __future__ import annotations

from harborage.app.workflow.errors import WorkflowChangedError, WorkflowInvalidError
from harborage.app.workflow.operations import Child, WorkflowContext
from harborage.app.workflow.workflow import Workflow, workflow
from harborage.tools.errors import (
    QuestionExpiredError,
    QuestionRejectedError,
    ToolFailedError,
    ToolRejectedError,
)

__all__ = [
    "Child",
    "QuestionExpiredError",
    "QuestionRejectedError",
    "ToolFailedError",
    "ToolRejectedError",
    "Workflow",
    "WorkflowChangedError",
    "WorkflowContext",
    "WorkflowInvalidError",
    "workflow",
]
