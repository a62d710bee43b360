"""The log of a server: lines of JSON or text on a stream, from a level that can change while it runs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from harborage.app.configured import Logging

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}
_NAMES: Final = {number: name for name, number in _LEVELS.items()}


class ServiceLog:
    """Writes what is logged under `harborage` to a stream; closed, the logger is as it was before.

    `mask` is called with the text of each line, tracebacks included, and returns it without secrets.
    """

    def __init__(
        self,
        options: Logging,
        *,
        stream: TextIO | None = None,
        mask: Callable[[str], str] = str,
        logger: logging.Logger | None = None,
    ) -> None:
        self._logger = logging.getLogger("harborage") if logger is None else logger
        self._before = self._logger.level, self._logger.propagate
        self._handler = logging.StreamHandler(sys.stderr if stream is None else stream)
        make = JSONLines if options.format == "json" else TextLines
        self._handler.setFormatter(make(options.service, mask))
        self._logger.addHandler(self._handler)
        self._logger.propagate = False
        self.set_level(options.level)

    def set_level(self, level: str) -> None:
        """Log from `level` on, which is one of debug, info, warn and error.

        Raises:
            KeyError: it is none of them.
        """
        self._logger.setLevel(_LEVELS[level])

    def close(self) -> None:
        """Log nothing more here. Closing twice does nothing."""
        self._logger.removeHandler(self._handler)
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)


class _Lines(logging.Formatter):
    def __init__(self, service: str, mask: Callable[[str], str]) -> None:
        super().__init__()
        self._service = service
        self._mask = mask

    def _text(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return self._mask(text)


class JSONLines(_Lines):
    """One object a line: time, level, service, logger and message."""

    def format(self, record: logging.LogRecord) -> str:
        body = {
            "time": _time(record),
            "level": _level(record),
            "service": self._service,
            "logger": record.name,
            "message": self._text(record),
        }
        return json.dumps(body, ensure_ascii=False)


class TextLines(_Lines):
    """Time, level, logger and message."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_time(record)} {_level(record):5} {record.name}: {self._text(record)}"


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname.lower())
