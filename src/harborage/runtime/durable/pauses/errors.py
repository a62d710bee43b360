"""The errors of pauses.

    PauseError
    ├── InvalidReasonError              not one of the four reasons
    ├── PauseDecisionError              not one of the four decisions
    ├── InvalidPageError                a page number or size out of range
    ├── PauseNotFoundError              there is no pause with this token
    ├── PauseAmbiguousError             several are open, and the answer names none
    ├── AlreadyResumedError             it was resolved before
    │   └── AlreadyAnsweredError        another answer to it is pending
    ├── PauseScopeMismatchError         the pause belongs to another identity
    ├── CrossTenantScopeError           a list that reaches beyond the caller's tenant
    ├── CheckpointCorruptError          a stored pause cannot be read
    └── UnsupportedFormatVersionError   a stored pause has another format than this code reads

Texts name tokens and versions; they never quote a payload. Only callers who may see a pause learn who resolved it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from harborage.errors import HarborageError, NotFoundError
from harborage.identity import AdminScopeRequiredError

if TYPE_CHECKING:
    from harborage.runtime.loop.pauses import Pause


class PauseError(HarborageError):
    """An operation on a pause failed."""


class InvalidReasonError(PauseError):
    """A pause was requested with a reason that is not one of the four; `reason` is that value."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(
            f"invalid pause reason {reason!r}; "
            "use approval_required, await_input, external_event or constraints_conflict"
        )


class PauseDecisionError(PauseError):
    """A pause was resolved with a decision that is not one of the four; `decision` is that value."""

    def __init__(self, decision: str = "") -> None:
        self.decision = decision
        super().__init__(f"invalid pause decision {decision!r}; use approve, reject, resume or timeout")


class InvalidPageError(PauseError):
    """A page number or size is out of range. `page` and `page_size` are the values."""

    def __init__(self, page: int = 0, page_size: int = 0) -> None:
        self.page = page
        self.page_size = page_size
        super().__init__(f"invalid page {page} of size {page_size}; neither may be negative, the size is at most 200")


class PauseNotFoundError(PauseError, NotFoundError):
    """There is no pause with this token, its `id`: it was never opened, or was resolved and deleted."""

    what = "pause"
    fix = "it was never opened, or was resolved and deleted: use the token of a pending one"


class PauseAmbiguousError(PauseError):
    """A run has several open pauses and the answer names none. `run_id` is the run, `tokens` those of its pauses."""

    def __init__(self, run_id: str = "", pauses: Sequence[tuple[str, str]] = ()) -> None:
        self.run_id = run_id
        self.tokens = tuple(token for token, _ in pauses)
        listed = ", ".join(f"{token} ({about})" for token, about in pauses)
        super().__init__(f"run {run_id} waits for {len(pauses)} answers; name one by its token: {listed}")


class AlreadyResumedError(PauseError):
    """The pause was resolved before, by a caller, its deadline or the end of its run; `decision`, `at`, `by` say how.

    `token` names it. `by` is a user, "" if no person decided; callers who may not see the pause get none of the three.
    """

    def __init__(
        self, token: str = "", decision: str = "", *, at: datetime | None = None, by: str = "", message: str = ""
    ) -> None:
        self.token = token
        self.decision = decision
        self.at = at
        self.by = by
        how = _describe_resolution(decision, at, by)
        super().__init__(message or f"pause {token!r} was resolved before{how}; read its status for the outcome")

    @classmethod
    def of(cls, resolved: Pause) -> AlreadyResumedError:
        """Return the error for a caller who may see this pause."""
        return AlreadyResumedError(
            resolved.token, str(resolved.decision or ""), at=resolved.resumed_at, by=resolved.resolved_by
        )


def _describe_resolution(decision: str, at: datetime | None, by: str) -> str:
    """Return in brackets how a pause was resolved, as far as it is known."""
    parts = (decision, by and f"by {by}", "" if at is None else f"at {at:%Y-%m-%d %H:%M:%S} UTC")
    known = " ".join(part for part in parts if part)
    return f" ({known})" if known else ""


class AlreadyAnsweredError(AlreadyResumedError):
    """Another answer to the pause is pending, and the first one counts. `token` names the pause."""

    def __init__(self, token: str = "") -> None:
        super().__init__(
            token, message=f"pause {token!r} has a pending answer, and the first one counts; read its status"
        )


class PauseScopeMismatchError(PauseError):
    """The pause belongs to another identity; act as its owner, or as admin of its tenant. `token` names it."""

    def __init__(self, token: str = "") -> None:
        self.token = token
        super().__init__(f"pause {token!r} belongs to another identity; act as its owner, or as admin of its tenant")


class CrossTenantScopeError(PauseError, AdminScopeRequiredError):
    """Listing pauses of another tenant needs the admin scope."""


class CheckpointCorruptError(PauseError):
    """A stored pause cannot be read; another program changed it, or it is damaged. `token` names it if it is known."""

    def __init__(self, token: str = "", why: str = "") -> None:
        self.token = token
        super().__init__(f"checkpoint of pause {token!r} is corrupt" + (f": {why}" if why else ""))


class UnsupportedFormatVersionError(PauseError):
    """A stored pause has a format that this code does not read. `version` is its version, None if it has none."""

    def __init__(self, token: str = "", version: int | None = None) -> None:
        self.token = token
        self.version = version
        super().__init__(f"checkpoint of pause {token!r} has format version {version}, which this code does not read")
