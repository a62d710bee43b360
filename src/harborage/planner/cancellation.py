"""The one question about cancellation that planners ask before they do anything."""

from __future__ import annotations

import asyncio

__all__ = ["raise_if_cancelled"]


def raise_if_cancelled() -> None:
    """Return when the calling task may go on.

    A task learns of its cancellation only at its next wait, which may lie behind work that costs money.

    Raises:
        asyncio.CancelledError: the task has been asked to stop.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
