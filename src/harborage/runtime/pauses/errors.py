"""What can go wrong with a pause.

    PauseError
    ├── InvalidReasonError              not one of the four reasons
    ├── InvalidDecisionError            not one of the four decisions
    ├── InvalidDeadlineError            a deadline without a time zone
    ├── InvalidPageError                a page number or size out of range
    ├── PauseNotFoundError              nobody here knows this token
    ├── PauseAmbiguousError             several are open, and none was named
    ├── AlreadyResumedError             somebody else settled it first
    │   └── AlreadyAnsweredError        another answer to it is on its way
    ├── ScopeMismatchError              the pause belongs to another identity
    ├── CrossTenantScopeError           a list that reaches beyond the caller's tenant
    ├── CrossUserScopeError             a list that reaches beyond the caller's own pauses
    ├── CheckpointCorruptError          a stored pause cannot be read
    └── UnsupportedFormatVersionError   a stored pause has another format than this code reads

Texts name tokens and versions; they never quote a payload. Who has settled a pause is told to those who may see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from harborage.codec import UnserializableError
from harborage.errors import HarborageError
from harborage.identity import IdentityRequiredError
from harborage.planner.errors import ToolContextLostError

if TYPE_CHECKING:
    from harborage.runtime.pauses.model import Pause

__all__ = [
    "AlreadyAnsweredError",
    "AlreadyResumedError",
    "CheckpointCorruptError",
    "CrossTenantScopeError",
    "CrossUserScopeError",
    "IdentityRequiredError",
    "InvalidDeadlineError",
    "InvalidDecisionError",
    "InvalidPageError",
    "InvalidReasonError",
    "PauseAmbiguousError",
    "PauseError",
    "PauseNotFoundError",
    "ScopeMismatchError",
    "ToolContextLostError",
    "UnserializableError",
    "UnsupportedFormatVersionError",
]


class PauseError(HarborageError):
    """Something went wrong with a pause."""


class InvalidReasonError(PauseError):
    """A pause was asked for with a reason that is not one of the four; `reason` is what came."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(
            f"invalid pause reason {reason!r}; "
            "use approval_required, await_input, external_event or constraints_conflict"
        )


class InvalidDecisionError(PauseError):
    """A pause was given a decision that is not one of the four; `decision` is what came."""

    def __init__(self, decision: str = "") -> None:
        self.decision = decision
        super().__init__(f"invalid pause decision {decision!r}; use approve, reject, resume or timeout")


class InvalidDeadlineError(PauseError):
    """A pause's deadline needs a time zone: datetime(…, tzinfo=UTC)."""


class InvalidPageError(PauseError):
    """A page number or size is out of range. `page` and `page_size` are what came."""

    def __init__(self, page: int = 0, page_size: int = 0) -> None:
        self.page = page
        self.page_size = page_size
        super().__init__(f"invalid page {page} of size {page_size}; neither may be negative, the size is at most 200")


class PauseNotFoundError(PauseError):
    """No pause with this token is known here: it never was, or it was settled and is gone. `token` says which."""

    def __init__(self, token: str = "") -> None:
        self.token = token
        super().__init__(f"no pause {token!r}: it never was, or it was settled and is gone")


class PauseAmbiguousError(PauseError):
    """A run waits for several answers and none was named. `run_id` is the run, `tokens` those of its pauses."""

    def __init__(self, run_id: str = "", pauses: Sequence[tuple[str, str]] = ()) -> None:
        self.run_id = run_id
        self.tokens = tuple(token for token, _ in pauses)
        listed = ", ".join(f"{token} ({about})" for token, about in pauses)
        super().__init__(f"run {run_id} waits for {len(pauses)} answers; name one by its token: {listed}")


class AlreadyResumedError(PauseError):
    """The pause was settled before, by somebody else, by its deadline or with its run; `decision`, `at`, `by` say how.

    `token` names it. `by` is a user, "" where nobody decided; who may not see the pause is told none of the three.
    """

    def __init__(
        self, token: str = "", decision: str = "", *, at: datetime | None = None, by: str = "", message: str = ""
    ) -> None:
        self.token = token
        self.decision = decision
        self.at = at
        self.by = by
        how = _how(decision, at, by)
        super().__init__(message or f"pause {token!r} was settled before{how}; read its status for the outcome")

    @classmethod
    def of(cls, settled: Pause) -> AlreadyResumedError:
        """What whoever may see this pause is told."""
        return AlreadyResumedError(
            settled.token, str(settled.decision or ""), at=settled.resumed_at, by=settled.settled_by
        )


def _how(decision: str, at: datetime | None, by: str) -> str:
    """How a pause was settled, as far as that is told, in brackets."""
    parts = (decision, by and f"by {by}", "" if at is None else f"at {at:%Y-%m-%d %H:%M:%S} UTC")
    said = " ".join(part for part in parts if part)
    return f" ({said})" if said else ""


class AlreadyAnsweredError(AlreadyResumedError):
    """Another answer to the pause is on its way, and the first one counts. `token` names the pause."""

    def __init__(self, token: str = "") -> None:
        super().__init__(
            token, message=f"pause {token!r} has an answer on its way, and the first one counts; read its status"
        )


class ScopeMismatchError(PauseError):
    """The pause belongs to another identity; act as its owner, or as admin of its tenant. `token` names it."""

    def __init__(self, token: str = "") -> None:
        self.token = token
        super().__init__(f"pause {token!r} belongs to another identity; act as its owner, or as admin of its tenant")


class CrossTenantScopeError(PauseError):
    """Listing pauses of another tenant needs the admin scope."""


class CrossUserScopeError(PauseError):
    """Listing pauses of another user needs the admin scope."""


class CheckpointCorruptError(PauseError):
    """A stored pause cannot be read; the store was changed from outside or is damaged. `token` names it where known."""

    def __init__(self, token: str = "", why: str = "") -> None:
        self.token = token
        super().__init__(f"checkpoint of pause {token!r} is corrupt" + (f": {why}" if why else ""))


class UnsupportedFormatVersionError(PauseError):
    """A stored pause has a format that this code does not read. `version` is what was found, None when it has none."""

    def __init__(self, token: str = "", version: int | None = None) -> None:
        self.token = token
        self.version = version
        super().__init__(f"checkpoint of pause {token!r} has format version {version}, which this code does not read")
