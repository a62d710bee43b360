"""The mark of a log record whose words are an event as well, so that who shows both shows them once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["ANNOUNCED", "is_announced"]

ANNOUNCED: Final[Mapping[str, object]] = MappingProxyType({"is_announced": True})
"""What such a record is logged with: `logger.warning(text, extra=ANNOUNCED)`."""


def is_announced(record: logging.LogRecord) -> bool:
    """Whether an event says the same as this record."""
    return bool(getattr(record, "is_announced", False))
