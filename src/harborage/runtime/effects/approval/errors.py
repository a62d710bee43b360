"""The errors of approval gates.

    ApprovalError
    ├── PolicyRequiredError · CoordinatorRequiredError · BusRequiredError · RedactorRequiredError
    │                                 a gate was built without one of its parts
    ├── GateClosedError               the gate is closed
    ├── InvalidApprovalError          a call, or an answer, that no gate can handle
    ├── ApprovalDecisionError          neither approve nor reject
    ├── PolicyFailedError             the policy gave no answer; the call does not run
    ├── ApprovalScopeRequiredError    the approver lacks the scope
    ├── ApprovalNotFoundError         no call waits under this token
    ├── ApprovalMismatchError         the approval is for another call than this one
    └── ApprovalUnrecordedError       approved, but the approval could not be announced

A refused call is `harborage.tools.ToolRejectedError`. Texts name tools and tokens; they never quote arguments.
"""

from __future__ import annotations

from harborage.errors import HarborageError, NotFoundError
from harborage.identity import AdminScopeRequiredError


class ApprovalError(HarborageError):
    """An approval gate failed."""


class PolicyRequiredError(ApprovalError):
    """An approval gate needs a policy; `AlwaysDeny()` asks for every call."""


class CoordinatorRequiredError(ApprovalError):
    """An approval gate needs the coordinator of its pauses."""


class BusRequiredError(ApprovalError):
    """An approval gate needs a bus: without its events no approver knows of the call."""


class RedactorRequiredError(ApprovalError):
    """An approval gate needs a redactor: arguments are shown to approvers, secrets are not."""


class GateClosedError(ApprovalError):
    """The approval gate is closed; build a new one. The pauses of calls that waited stay open."""


class InvalidApprovalError(ApprovalError):
    """An approval gate got a request or an answer that it cannot handle."""


class ApprovalDecisionError(ApprovalError):
    """An approval is answered with approve or reject; `decision` is the value."""

    def __init__(self, decision: str = "") -> None:
        self.decision = decision
        super().__init__(f"invalid approval decision {decision!r}; use approve or reject")


class PolicyFailedError(ApprovalError):
    """The approval policy gave no answer, so the call of `tool` does not run; the cause is the policy's error."""

    def __init__(self, tool: str = "") -> None:
        self.tool = tool
        super().__init__(f"the approval policy gave no answer for {tool!r}; the call does not run")


class ApprovalScopeRequiredError(ApprovalError, AdminScopeRequiredError):
    """Answering an approval needs the scope `admin` or `console:fleet`."""


class ApprovalNotFoundError(ApprovalError, NotFoundError):
    """No call waits for approval under this token, its `id`, here: it was answered, or has ended."""

    what = "approval"
    fix = "it was answered, has ended, or never was: use the token of one that is pending"


class ApprovalMismatchError(ApprovalError):
    """The approval was requested for another call than this one, so it does not count. `token` and `tool` name them."""

    def __init__(self, token: str = "", tool: str = "") -> None:
        self.token = token
        self.tool = tool
        super().__init__(f"approval {token!r} was asked for another call than this one of {tool!r}; ask anew")


class ApprovalUnrecordedError(ApprovalError):
    """The call was approved, but that could not be announced. `approved_args` are the arguments that may run."""

    def __init__(self, token: str = "", tool: str = "", approved_args: bytes = b"") -> None:
        self.token = token
        self.tool = tool
        self.approved_args = approved_args
        super().__init__(f"approval {token!r} of {tool!r} was given, but could not be announced")


class ApprovalCancelledError(ApprovalError):
    """The call was cancelled while it waited for approval; its pause stays open. The cause of the cancellation."""

    def __init__(self, token: str = "", tool: str = "") -> None:
        self.token = token
        self.tool = tool
        super().__init__(f"the call of {tool!r} was cancelled while it waited for approval {token!r}")
