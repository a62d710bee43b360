"""Approval gates: calls that a person must allow, bound to their exact arguments and answered once.

`model` has the meaning of an answer, `policies` which calls need approval, `gate` the gate itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.identity import IdentityRequiredError as IdentityRequiredError
    from harborage.runtime.approval.answering import APPROVER_SCOPES as APPROVER_SCOPES
    from harborage.runtime.approval.answering import answer_approval as answer_approval
    from harborage.runtime.approval.errors import ApprovalCancelledError as ApprovalCancelledError
    from harborage.runtime.approval.errors import ApprovalDecisionError as ApprovalDecisionError
    from harborage.runtime.approval.errors import ApprovalError as ApprovalError
    from harborage.runtime.approval.errors import ApprovalMismatchError as ApprovalMismatchError
    from harborage.runtime.approval.errors import ApprovalNotFoundError as ApprovalNotFoundError
    from harborage.runtime.approval.errors import ApprovalScopeRequiredError as ApprovalScopeRequiredError
    from harborage.runtime.approval.errors import ApprovalUnrecordedError as ApprovalUnrecordedError
    from harborage.runtime.approval.errors import BusRequiredError as BusRequiredError
    from harborage.runtime.approval.errors import CoordinatorRequiredError as CoordinatorRequiredError
    from harborage.runtime.approval.errors import GateClosedError as GateClosedError
    from harborage.runtime.approval.errors import InvalidRequestError as InvalidRequestError
    from harborage.runtime.approval.errors import PolicyFailedError as PolicyFailedError
    from harborage.runtime.approval.errors import PolicyRequiredError as PolicyRequiredError
    from harborage.runtime.approval.errors import RedactorRequiredError as RedactorRequiredError
    from harborage.runtime.approval.gate import DEFAULT_TIMEOUT as DEFAULT_TIMEOUT
    from harborage.runtime.approval.gate import ApprovalGate as ApprovalGate
    from harborage.runtime.approval.model import ApprovalDecision as ApprovalDecision
    from harborage.runtime.approval.model import ApprovalRequest as ApprovalRequest
    from harborage.runtime.approval.model import fingerprint_of as fingerprint_of
    from harborage.runtime.approval.policies import AlwaysApprove as AlwaysApprove
    from harborage.runtime.approval.policies import AlwaysDeny as AlwaysDeny
    from harborage.runtime.approval.policies import ApprovalPolicy as ApprovalPolicy
    from harborage.runtime.approval.policies import BySideEffect as BySideEffect
    from harborage.runtime.approval.policies import PolicyAnswer as PolicyAnswer
    from harborage.runtime.approval.policies import Tagged as Tagged
    from harborage.tools.errors import ToolRejectedError as ToolRejectedError
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.identity": "IdentityRequiredError",
            "harborage.runtime.approval.answering": "APPROVER_SCOPES answer_approval",
            "harborage.runtime.approval.errors": (
                "ApprovalCancelledError ApprovalDecisionError ApprovalError ApprovalMismatchError "
                "ApprovalNotFoundError ApprovalScopeRequiredError ApprovalUnrecordedError BusRequiredError "
                "CoordinatorRequiredError GateClosedError InvalidRequestError PolicyFailedError "
                "PolicyRequiredError RedactorRequiredError"
            ),
            "harborage.runtime.approval.gate": "ApprovalGate DEFAULT_TIMEOUT",
            "harborage.runtime.approval.model": "ApprovalDecision ApprovalRequest fingerprint_of",
            "harborage.runtime.approval.policies": (
                "AlwaysApprove AlwaysDeny ApprovalPolicy BySideEffect PolicyAnswer Tagged"
            ),
            "harborage.tools.errors": "ToolRejectedError",
        },
    )
