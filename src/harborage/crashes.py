"""What crashes code of others becomes an ordinary error, so that it fails what called that code, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from harborage.errors import error_summary

T = TypeVar("T")


class WorkCrashedError(RuntimeError):
    """Work raised what Python does not count as an error; chained to it. In a task it would end the event loop."""


async def contained(work: Awaitable[T]) -> T:
    """What `work` gives; a WorkCrashedError where it raised something like SystemExit or GeneratorExit."""
    task = asyncio.current_task()
    try:
        return await work
    except Exception:
        raise
    except BaseException as error:
        if is_order_to_stop(error, task):
            raise
        raise WorkCrashedError(f"it raised {error_summary(error)}") from error


def error_of(task: asyncio.Task[Any]) -> BaseException | None:
    """What a task that has ended failed with; None where it did not, or was cancelled.

    A cancelled one lets go of its traceback, whose frames hold all that the task had in hand, often the task itself:
    that would stay until the next garbage collection.
    """
    try:
        return task.exception()
    except asyncio.CancelledError as cancelled:
        cancelled.__traceback__ = None
        return None


def is_order_to_stop(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Whether `error` asks the code in `task` to stop; False for what that code raised.

    Such are a cancellation, a KeyboardInterrupt, and the GeneratorExit of a coroutine that is thrown away. That does
    not happen to a task that the event loop is running: there a GeneratorExit was raised.
    """
    if not isinstance(error, GeneratorExit):
        return isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True
