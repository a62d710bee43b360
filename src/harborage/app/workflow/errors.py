"""What a workflow may catch, and why one is refused.

HarborageError
├── ToolFailedError                  a call gave no result after its retries
├── QuestionExpiredError             nobody answered in time
├── QuestionRejectedError            a person refused to answer
├── WorkflowInvalidError             a function that is no workflow, or an operation that cannot be one
└── EngineError, RunLeftError, HistoryMismatchError
    └── WorkflowChangedError         the code is another than that which began the run
"""

from __future__ import annotations

from harborage.errors import HarborageError
from harborage.runtime.durable.engine import HistoryMismatchError


class ToolFailedError(HarborageError):
    """A call gave no result after its retries. `tool` names it, `reason` says why.

    `is_unknown`: its worker died in the call, so it may or may not have acted; it is not called again by itself.
    """

    def __init__(self, tool: str = "", reason: str = "", *, is_unknown: bool = False) -> None:
        self.tool = tool
        self.reason = reason
        self.is_unknown = is_unknown
        super().__init__(f"{tool} failed: {reason}" if tool else "")


class QuestionExpiredError(HarborageError):
    """Nobody answered a question of a workflow in time. `question` is what was asked."""

    def __init__(self, question: str = "") -> None:
        self.question = question
        super().__init__(f"nobody answered in time: {question}" if question else "")


class QuestionRejectedError(HarborageError):
    """A person refused to answer a question of a workflow. `question` is what was asked, `reason` what the person
    said."""

    def __init__(self, question: str = "", reason: str = "") -> None:
        self.question = question
        self.reason = reason
        super().__init__(f"rejected: {question}{f' ({reason})' if reason else ''}" if question else "")


class WorkflowInvalidError(HarborageError):
    """A function cannot be a workflow, or does something that a workflow cannot do; the text names it and the fix."""


class WorkflowChangedError(HistoryMismatchError):
    """The code of a workflow asks for something else than its run recorded; the run is kept for the code that began it.

    `position` counts the operations from 1.
    """

    def __init__(
        self, run_id: str = "", position: str = "", recorded: str = "", asked: str = "", workflow: str = ""
    ) -> None:
        super().__init__(run_id, position, recorded, asked)
        self.workflow = workflow
        self.args = (
            f"run {run_id} of the workflow {workflow!r}: operation {position} was {recorded}, and the code asks for "
            f"{asked}: bring back the code that began the run, or tell both apart with ctx.patched(…)",
        )
