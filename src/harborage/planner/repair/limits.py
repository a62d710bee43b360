"""How far repairing goes within one step. Values only."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import force_setattr

__all__ = ["DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES", "DEFAULT_REPAIR_ATTEMPTS", "RepairLimits"]

DEFAULT_REPAIR_ATTEMPTS: Final = 3
"""Calls of the model that one step may take, unless told otherwise."""

DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES: Final = 2
"""Failures over arguments after which a step gives up, unless told otherwise."""


class RepairLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of repairing in one step; a number that is not positive means the default.

    `repair_attempts` counts every call of the model, the first one included. Without `arg_fill_enabled` nothing is
    judged and nothing is asked again: what the model wrote goes on as it is, or fails.
    """

    repair_attempts: int = DEFAULT_REPAIR_ATTEMPTS
    max_consecutive_arg_failures: int = DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES
    arg_fill_enabled: bool = True

    def __post_init__(self) -> None:
        if self.repair_attempts <= 0:
            force_setattr(self, "repair_attempts", DEFAULT_REPAIR_ATTEMPTS)
        if self.max_consecutive_arg_failures <= 0:
            force_setattr(self, "max_consecutive_arg_failures", DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES)
