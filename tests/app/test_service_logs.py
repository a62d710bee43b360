"""The log of a server: its two forms, its level, and what is masked."""

from __future__ import annotations

import io
import json
import logging

import pytest

from harborage.app.configured import Logging
from harborage.app.service_logs import ServiceLog


@pytest.fixture
def logger() -> logging.Logger:
    """A logger of its own, so that tests do not share one."""
    return logging.Logger("harborage.test")


def test_lines_are_json_from_the_level_on(logger: logging.Logger) -> None:
    """Time, level, service, logger and message; below the level nothing."""
    stream = io.StringIO()
    log = ServiceLog(Logging(level="warn", service="shop"), stream=stream, logger=logger)
    logger.info("quiet")
    logger.warning("the %s is empty", "shelf")
    log.set_level("debug")
    logger.debug("loud")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {"level": "warn", "service": "shop", "logger": "harborage.test", "message": "the shelf is empty"}
    assert (second["level"], second["message"]) == ("debug", "loud")


def test_text_is_for_people(logger: logging.Logger) -> None:
    """One line with the level in front of the logger."""
    stream = io.StringIO()
    ServiceLog(Logging(format="text"), stream=stream, logger=logger)
    logger.error("gone")
    assert stream.getvalue().endswith("Z error harborage.test: gone\n")


def test_secrets_are_masked_in_messages_and_tracebacks(logger: logging.Logger) -> None:
    """The mask sees the whole text of a line."""
    stream = io.StringIO()
    ServiceLog(Logging(), stream=stream, mask=lambda text: text.replace("hunter2", "***"), logger=logger)
    try:
        raise ValueError("hunter2")
    except ValueError:
        logger.exception("with hunter2")
    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count("***") >= 2


def test_a_closed_log_leaves_the_logger_as_it_was(logger: logging.Logger) -> None:
    """Its level, its handlers and whether it passes lines on."""
    stream = io.StringIO()
    before = (logger.level, logger.propagate, list(logger.handlers))
    log = ServiceLog(Logging(level="error"), stream=stream, logger=logger)
    log.close()
    log.close()
    assert (logger.level, logger.propagate, logger.handlers) == before
