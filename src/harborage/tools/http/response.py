"""What an answer over HTTP means: its value or its error, and when to ask again. Reading it is bounded in bytes."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.artifacts.media import File, Image, image_type, size_text
from harborage.tools.enums import ErrorClass
from harborage.tools.errors import ToolError, ToolInvalidArgsError
from harborage.tools.http.errors import HTTPAnswerError, HTTPRateLimitError, HTTPStatusError
from harborage.tools.text import clean_text, is_text, is_text_type

if TYPE_CHECKING:
    from harborage.secrets import SecretReader

SHOWN_BYTES: Final = 256
"""Bytes of the text of an answer that an error shows."""
LONGEST_WAIT_S: Final = 3600.0
"""A peer that wants to be asked again later than that is asked by the policy of the tool."""
ENCODINGS: Final = "gzip, deflate"
"""How an answer may be packed."""

_GZIP: Final = zlib.MAX_WBITS | 32  # gzip or zlib, as the data says
_PIECE: Final = 64 * 1024


class Answer(msgspec.Struct, frozen=True):
    """An answer: its status, its headers by lower-case names, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def media(self) -> str:
        """Its type, in lower case, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(pieces: AsyncIterator[bytes], encoding: str, most: int) -> bytes:
    """Return the body, unpacked as it comes; no more than `most` bytes are ever unpacked.

    Raises:
        HTTPAnswerError: it is larger, or packed in a way that was not asked for.
    """
    encoding = encoding.strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise HTTPAnswerError("the answer is packed in a way that was not asked for")
    unpack = None if encoding in ("", "identity") else zlib.decompressobj(_GZIP)
    body = bytearray()
    async for piece in pieces:
        left = piece
        while left:
            if unpack is None:
                body, left = body + left, b""
            else:
                try:
                    body += unpack.decompress(left, _PIECE)
                except zlib.error as error:
                    raise HTTPAnswerError("the answer is packed, and cannot be unpacked") from error
                left = unpack.unconsumed_tail
            if len(body) > most:
                raise HTTPAnswerError(
                    f"the answer is larger than {size_text(most)}, which is the limit of a result (tools.limits."
                    "result_bytes); ask for less of it"
                )
    return bytes(body)


def value_of(answer: Answer, secrets: SecretReader, name: str) -> Any:
    """Return the value of a successful answer; what is neither JSON nor text is a file, which becomes an artifact.

    Secrets that were sent are masked where the peer repeats them.

    Raises:
        HTTPAnswerError: it says that it is JSON, and is none.
    """
    media, body = answer.media, answer.body
    if not body:
        return None
    if media.endswith(("/json", "+json")):
        try:
            return codec.decode(secrets.mask_bytes(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HTTPAnswerError(f"{name}: the answer says that it is JSON, and is none") from error
    if is_text_type(media) or (not media and is_text(body, media)):
        return secrets.mask(_text_of(answer))
    shown = clean_text(secrets.mask(_file_name(answer)), 128, one_line=True).replace("/", "_")
    kind = image_type(body)
    if kind:
        return Image(body, mime=kind, name=shown)
    is_plain = media.isascii() and media.isprintable() and media.count("/") == 1 and len(media) < SHOWN_BYTES
    return File(body, mime=secrets.mask(media) if is_plain else "application/octet-stream", name=shown)


def error_of(
    answer: Answer, secrets: SecretReader, name: str, now: datetime, *, may_repeat: bool, hint: str = ""
) -> ToolError:
    """Return the error of an answer that is no success. `may_repeat` says whether the call may be made again."""
    status, excerpt = answer.status, _excerpt(answer, secrets)
    text = f"{name}: status {status}" + (f": {excerpt}" if excerpt else "")
    if status in (429, 503):
        after = retry_after(answer.headers.get("retry-after", ""), now)
        when = "" if after is None or may_repeat else f"; it may be called again in {after:.0f} s"
        return HTTPRateLimitError(status, text + when, after)
    if 300 <= status < 400:
        return HTTPStatusError(status, f"{name}: status {status}: it leads to another address, which is not followed")
    if status in (401, 403):
        return HTTPStatusError(status, f"{text}{f' ({hint})' if hint else ''}")
    if status in (408, 425) or status >= 500:
        return HTTPStatusError(status, text)
    return HTTPRefusedError(status, f"status {status}" + (f": {excerpt}" if excerpt else ""))


class HTTPRefusedError(ToolInvalidArgsError):
    """A peer refused what it was sent, with a status of 4xx. `status` is the status."""

    def __init__(self, status: int = 0, reason: str = "") -> None:
        super().__init__()
        self.status = status
        self.reason = reason
        self.args = (reason,)

    error_class = ErrorClass.PERMANENT


def retry_after(text: str, now: datetime) -> float | None:
    """Return the seconds after which a peer wants to be asked again; None where it says nothing that counts."""
    text = text.strip()
    if not text:
        return None
    try:
        seconds = float(text) if text.isdecimal() else (_date_of(text) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    if seconds > LONGEST_WAIT_S:
        return None
    return max(0.0, seconds)


def _date_of(text: str) -> datetime:
    found = parsedate_to_datetime(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _excerpt(answer: Answer, secrets: SecretReader) -> str:
    if not is_text_type(answer.headers.get("content-type", "text/plain")):
        return ""
    # Masked before it is cut: a part of a secret would no longer be recognised.
    return clean_text(secrets.mask(_text_of(answer)), SHOWN_BYTES, one_line=True)


def _text_of(answer: Answer) -> str:
    message = Message()
    message["content-type"] = answer.headers.get("content-type", "")
    charset = str(message.get_param("charset") or "utf-8")
    try:
        return answer.body.decode(charset, "replace")
    except (LookupError, ValueError):
        return answer.body.decode("utf-8", "replace")


def _file_name(answer: Answer) -> str:
    message = Message()
    message["content-disposition"] = answer.headers.get("content-disposition", "")
    return message.get_filename("")
