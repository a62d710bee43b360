"""What the library logs while a run is on the screen: a line among the others, never a text across them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from harborage.events import is_announced

__all__ = ["logged"]


@contextmanager
def logged(tell: Callable[[str], None]) -> Iterator[None]:
    """Hear warnings and errors of the library for the length of a block; `tell` is called on the event loop.

    What an event says as well is left to the event.
    """
    logger = logging.getLogger("harborage")
    handler = _Handler(asyncio.get_running_loop(), tell)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Handler(logging.Handler):
    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._loop = loop
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if is_announced(record):
            return  # its event is shown
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]}"
        with suppress(RuntimeError):  # the loop is closed, so nobody looks any more
            self._loop.call_soon_threadsafe(self._tell, text)
