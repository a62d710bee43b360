"""What a step of a run failed with, where that is more than what its effect raised."""

from __future__ import annotations

from harborage.errors import error_summary
from harborage.runtime.durable import EngineError


class RecordedFailureError(EngineError):
    """A step raised when it ran; this is what was recorded of it."""

    def __init__(self, name: str = "", error: str = "", message: str = "") -> None:
        self.name = name
        self.error = error
        self.reason = message
        super().__init__(f"step {name!r} failed: {error}: {message}")


class StrayCancellationError(EngineError):
    """A step ended in a cancellation that nobody asked of it: it or what it awaited was cancelled elsewhere."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        super().__init__(f"step {name!r} awaited something that was cancelled elsewhere")


class StepCrashedError(EngineError):
    """A step raised what Python does not count as an error, such as SystemExit; it fails the run like any other."""

    def __init__(self, name: str = "", crash: BaseException | None = None) -> None:
        self.name = name
        super().__init__(f"step {name!r} raised {'' if crash is None else error_summary(crash)}")
