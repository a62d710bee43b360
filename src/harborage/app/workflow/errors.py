"""Why a workflow is refused; what it may catch is `harborage.tools.errors`.

HarborageError
├── WorkflowInvalidError             a function that is no workflow, or an operation that cannot be one
└── EngineError, RunLeftError, HistoryMismatchError
    └── WorkflowChangedError         the code is another than that which began the run
"""

from __future__ import annotations

from harborage.errors import HarborageError
from harborage.runtime.durable.engine import HistoryMismatchError


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
