"""Approval gates: calls that a person must allow, bound to their exact arguments and answered once.

`model` has the meaning of an answer, `policies` which calls need approval, `gate` the gate itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.identity import IdentityRequiredError as IdentityRequiredError
    from harborage.runtime.effects.approval.answering import APPROVER_SCOPES as APPROVER_SCOPES
    from harborage.runtime.effects.approval.answering import answer_approval as answer_approval
    from harborage.runtime.effects.approval.errors import ApprovalCancelledError as ApprovalCancelledError
    from harborage.runtime.effects.approval.errors import ApprovalDecisionError as ApprovalDecisionError
    from harborage.runtime.effects.approval.errors import ApprovalError as ApprovalError
    from harborage.runtime.effects.approval.errors import ApprovalMismatchError as ApprovalMismatchError
    from harborage.runtime.effects.approval.errors import ApprovalNotFoundError as ApprovalNotFoundError
    from harborage.runtime.effects.approval.errors import ApprovalScopeRequiredError as ApprovalScopeRequiredError
    from harborage.runtime.effects.approval.errors import ApprovalUnrecordedError as ApprovalUnrecordedError
    from harborage.runtime.effects.approval.errors import BusRequiredError as BusRequiredError
    from harborage.runtime.effects.approval.errors import CoordinatorRequiredError as CoordinatorRequiredError
    from harborage.runtime.effects.approval.errors import GateClosedError as GateClosedError
    from harborage.runtime.effects.approval.errors import InvalidApprovalError as InvalidApprovalError
    from harborage.runtime.effects.approval.errors import PolicyFailedError as PolicyFailedError
    from harborage.runtime.effects.approval.errors import PolicyRequiredError as PolicyRequiredError
    from harborage.runtime.effects.approval.errors import RedactorRequiredError as RedactorRequiredError
    from harborage.runtime.effects.approval.gate import DEFAULT_TIMEOUT as DEFAULT_TIMEOUT
    from harborage.runtime.effects.approval.gate import ApprovalGate as ApprovalGate
    from harborage.runtime.effects.approval.model import AlwaysApprove as AlwaysApprove
    from harborage.runtime.effects.approval.model import AlwaysDeny as AlwaysDeny
    from harborage.runtime.effects.approval.model import ApprovalDecision as ApprovalDecision
    from harborage.runtime.effects.approval.model import ApprovalPolicy as ApprovalPolicy
    from harborage.runtime.effects.approval.model import ApprovalRequest as ApprovalRequest
    from harborage.runtime.effects.approval.model import BySideEffect as BySideEffect
    from harborage.runtime.effects.approval.model import PolicyAnswer as PolicyAnswer
    from harborage.runtime.effects.approval.model import Tagged as Tagged
    from harborage.runtime.effects.approval.model import fingerprint_of as fingerprint_of
    from harborage.tools.errors import ToolRejectedError as ToolRejectedError
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.identity": "IdentityRequiredError",
            "harborage.runtime.effects.approval.answering": "APPROVER_SCOPES answer_approval",
            "harborage.runtime.effects.approval.errors": (
                "ApprovalCancelledError ApprovalDecisionError ApprovalError ApprovalMismatchError "
                "ApprovalNotFoundError ApprovalScopeRequiredError ApprovalUnrecordedError BusRequiredError "
                "CoordinatorRequiredError GateClosedError InvalidApprovalError PolicyFailedError "
                "PolicyRequiredError RedactorRequiredError"
            ),
            "harborage.runtime.effects.approval.gate": "ApprovalGate DEFAULT_TIMEOUT",
            "harborage.runtime.effects.approval.model": (
                "AlwaysApprove AlwaysDeny ApprovalDecision ApprovalPolicy ApprovalRequest BySideEffect "
                "PolicyAnswer Tagged fingerprint_of"
            ),
            "harborage.tools.errors": "ToolRejectedError",
        },
    )
