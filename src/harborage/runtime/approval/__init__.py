"""Approval gates: calls that a person must allow, bound to their exact arguments and answered once.

Read `model` for what an answer means, `policies` for which calls ask, `gate` for the way through.
"""

from __future__ import annotations

from harborage.runtime.approval.answering import APPROVER_SCOPES, answer_approval
from harborage.runtime.approval.errors import (
    ApprovalCancelledError,
    ApprovalError,
    ApprovalMismatchError,
    ApprovalNotFoundError,
    ApprovalScopeRequiredError,
    ApprovalUnrecordedError,
    BusRequiredError,
    CoordinatorRequiredError,
    GateClosedError,
    IdentityRequiredError,
    InvalidDecisionError,
    InvalidRequestError,
    PolicyFailedError,
    PolicyRequiredError,
    RedactorRequiredError,
    ToolRejectedError,
)
from harborage.runtime.approval.gate import DEFAULT_TIMEOUT, ApprovalGate
from harborage.runtime.approval.model import ApprovalDecision, ApprovalRequest, fingerprint_of
from harborage.runtime.approval.policies import (
    AlwaysApprove,
    AlwaysDeny,
    ApprovalPolicy,
    BySideEffect,
    PolicyAnswer,
    Tagged,
)

__all__ = [
    "APPROVER_SCOPES",
    "DEFAULT_TIMEOUT",
    "AlwaysApprove",
    "AlwaysDeny",
    "ApprovalCancelledError",
    "ApprovalDecision",
    "ApprovalError",
    "ApprovalGate",
    "ApprovalMismatchError",
    "ApprovalNotFoundError",
    "ApprovalPolicy",
    "ApprovalRequest",
    "ApprovalScopeRequiredError",
    "ApprovalUnrecordedError",
    "BusRequiredError",
    "BySideEffect",
    "CoordinatorRequiredError",
    "GateClosedError",
    "IdentityRequiredError",
    "InvalidDecisionError",
    "InvalidRequestError",
    "PolicyAnswer",
    "PolicyFailedError",
    "PolicyRequiredError",
    "RedactorRequiredError",
    "Tagged",
    "ToolRejectedError",
    "answer_approval",
    "fingerprint_of",
]
