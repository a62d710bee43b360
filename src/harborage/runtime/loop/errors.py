"""The errors of steering a run.

    SteeringError
    ├── UnknownControlTypeError        not one of the nine controls
    ├── PayloadInvalidError            the payload breaks a bound
    ├── UnsupportedPayloadValueError   the payload holds something that JSON does not have
    ├── InvalidScopeError              not one of the three scopes
    ├── ScopeMismatchError             the caller may not send this control
    ├── InboxNotFoundError             the run has no live inbox
    ├── InboxExistsError               the run has one already
    ├── InboxFullError                 too many controls wait for the run
    ├── NoOutstandingPauseError        the run is not paused
    ├── RunCancelledError              the run is being cancelled, and takes no answers
    ├── NoPlannerError                 a run was described without a planner
    ├── RunLoopMisconfiguredError      a dependency of the loop is missing
    ├── MaxStepsExceededError          the planner never finished
    └── DecisionShapeUnsupportedError  the executor does not support this kind of decision

Texts name types, bounds, scopes and runs; they never quote a payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.errors import HarborageError, NotFoundError

if TYPE_CHECKING:
    from harborage.identity import Quadruple


class SteeringError(HarborageError):
    """Steering a run failed."""


class UnknownControlTypeError(SteeringError):
    """A control has a type that is not one of the nine; `control_types()` lists them."""


class PayloadInvalidError(SteeringError):
    """A control's payload breaks a bound. `bound` names it; `limit` and `actual` are its numbers, 0 if it has none."""

    def __init__(self, message: str = "", *, bound: str = "", limit: int = 0, actual: int = 0) -> None:
        self.bound = bound
        self.limit = limit
        self.actual = actual
        super().__init__(message)


class UnsupportedPayloadValueError(SteeringError):
    """A control's payload holds a value that JSON does not have; use None, bool, int, float, str, list and dict."""


class InvalidScopeError(SteeringError):
    """A caller presents a scope that is not one of session_user, owner_user and admin."""


class ScopeMismatchError(SteeringError):
    """The caller's scope is too low for this control. `required` is the lowest allowed, `presented` the caller's."""

    def __init__(self, message: str = "", *, required: str = "", presented: str = "") -> None:
        self.required = required
        self.presented = presented
        super().__init__(message)


class InboxNotFoundError(SteeringError, NotFoundError):
    """No live inbox for this run: it never started here, or it has ended. `run` names it."""

    def __init__(self, message: str = "", *, run: Quadruple | None = None) -> None:
        self.run = run
        text = message or _about(run, "no live inbox: it never started here, or it has ended; start another run")
        super().__init__("" if run is None else run.run_id, what="inbox", message=text)


class InboxExistsError(SteeringError):
    """This run has a live inbox already; retire it before opening another. `run` says which."""

    def __init__(self, message: str = "", *, run: Quadruple | None = None) -> None:
        self.run = run
        super().__init__(message or _about(run, "has a live inbox already; retire it before opening another"))


class InboxFullError(SteeringError):
    """The inbox of `run` holds its most controls, which is `limit`; send again once the run has taken some."""

    def __init__(self, message: str = "", *, run: Quadruple | None = None, limit: int = 0) -> None:
        self.run = run
        self.limit = limit
        super().__init__(
            message or _about(run, f"{limit} controls wait for it, which is the limit; send again once it took some")
        )


class NoPlannerError(SteeringError):
    """A run needs a planner; set `RunSpec.planner`."""


class RunLoopMisconfiguredError(SteeringError):
    """The run loop lacks a part that it needs, or a part does not fit."""


class NoOutstandingPauseError(SteeringError):
    """The run is not paused, so there is nothing to resume, approve or reject."""


class RunCancelledError(SteeringError):
    """The run was cancelled and takes no more answers. `type` is the refused control, `run` the run."""

    def __init__(self, message: str = "", *, type: str = "", run: Quadruple | None = None) -> None:
        self.type = type
        self.run = run
        super().__init__(
            message or _about(run, f"was cancelled, so {type or 'an answer'} changes nothing; start another run")
        )


class MaxStepsExceededError(SteeringError):
    """The planner used up its steps without a finish; raise max_steps or let the planner finish."""

    def __init__(self, message: str = "", *, max_steps: int = 0) -> None:
        self.max_steps = max_steps
        super().__init__(message)


class DecisionShapeUnsupportedError(SteeringError):
    """The tool executor does not support this kind of decision; choose another. `shape` names the kind."""

    def __init__(self, message: str = "", *, shape: str = "") -> None:
        self.shape = shape
        super().__init__(message or (f"decision shape {shape} is not supported by this tool executor" if shape else ""))


def _about(run: Quadruple | None, text: str) -> str:
    return "" if run is None else f"run {run.run_id!r}: {text}"
