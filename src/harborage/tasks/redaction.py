"""What is kept of the texts that people and models write into a task.

Everything goes through the redactor that the registry was given; without one the texts stay as they are. A redactor
that fails fails the operation: nothing unredacted is kept instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harborage import codec
from harborage.tasks.model import TaskFailure

if TYPE_CHECKING:
    from harborage.events import Redactor

__all__ = ["redacted_failure", "redacted_result", "redacted_text"]


def redacted_text(redactor: Redactor | None, text: str) -> str:
    """`text` without its secrets.

    Raises:
        RedactionFailedError: the redactor could not do it.
    """
    if redactor is None or not text:
        return text
    clean = redactor.redact(text)
    return clean if isinstance(clean, str) else codec.encode_text(clean, "text")


def redacted_failure(redactor: Redactor | None, failure: TaskFailure) -> TaskFailure:
    """`failure` with its message redacted; the code is a word of ours and stays."""
    if redactor is None or not failure.message:
        return failure
    return TaskFailure(failure.code, redacted_text(redactor, failure.message))


def redacted_result(redactor: Redactor | None, result: bytes) -> bytes:
    """`result` as JSON text without its secrets: JSON is redacted by structure, other text as one JSON string.

    An empty result stays empty. Without a redactor JSON text is kept byte for byte.
    """
    if not result:
        return b""
    try:
        value = msgspec.json.decode(result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return codec.encode(redacted_text(redactor, result.decode("utf-8", "replace")), "result")
    if redactor is None:
        return bytes(result)
    return codec.encode(redactor.redact(value), "result")
