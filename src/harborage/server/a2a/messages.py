"""What a peer sends: a message with its parts, and the other parameters of a method."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.artifacts.media import Audio, File, Image, Media, MediaError
from harborage.server.a2a.errors import CONTENT_TYPE, NO_PUSH, RpcError, bad_params
from harborage.server.a2a.values import JSON_MODE, TEXT_MODE

if TYPE_CHECKING:
    from harborage.artifacts.media import Goal
    from harborage.server.a2a.dialects import Dialect

MOST_ID_CHARS: Final = 150
MOST_TASKS: Final = 100
MAX_WORD: Final = 255
"""The longest media type and the longest name of a file, in characters."""

_MODES: Final = frozenset({TEXT_MODE, JSON_MODE, "text/*", "application/*", "*/*"})
_ATTACHED: Final = "See what is attached."
"""The goal of a message that is nothing but files."""


class _Params(msgspec.Struct, frozen=True, rename="camel"):
    """The parameters of a method; names that are not known are another version's."""


class SentMessage(_Params, frozen=True):
    """A message of the peer, as it came."""

    message_id: str
    role: str
    parts: list[dict[str, Any]]
    context_id: str = ""
    task_id: str = ""


class Configuration(_Params, frozen=True):
    """How a message shall be answered; the last two are those of 0.3."""

    accepted_output_modes: list[str] | None = None
    return_immediately: bool = False
    task_push_notification_config: Any = None
    history_length: int | None = None
    blocking: bool | None = None
    push_notification_config: Any = None


class SendParams(_Params, frozen=True):
    """The parameters of a message."""

    message: SentMessage
    configuration: Configuration | None = None


class TaskParams(_Params, frozen=True):
    """The parameters of what is asked of one task."""

    id: str
    history_length: int | None = None


class ListParams(_Params, frozen=True):
    """The parameters of a list of tasks."""

    context_id: str = ""
    status: str = ""
    page_size: int = 0
    page_token: str = ""
    history_length: int | None = None
    status_timestamp_after: Any = None
    include_artifacts: bool = False


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was understood. `data` are the JSON values among its parts; `waits` says that the peer does."""

    id: str
    context: str
    task: str
    texts: tuple[str, ...]
    data: tuple[Any, ...]
    media: tuple[Media, ...]
    waits: bool = True

    @property
    def text(self) -> str:
        """Its words, with its JSON values behind them."""
        return "\n".join([*self.texts, *(codec.encode_text(one) for one in self.data)])

    @property
    def goal(self) -> Goal:
        """What a run is asked to do."""
        return [*self.media, self.text or _ATTACHED] if self.media else self.text


def read_message(params: dict[str, Any], dialect: Dialect) -> Message:
    """Return the message of a request.

    Raises:
        RpcError: it cannot be used; the text says why.
    """
    given = read_params(params, SendParams)
    _check_configuration(given.configuration)
    sent = given.message
    if sent.role != dialect.user:
        raise bad_params(f"message.role: a peer sends messages as {dialect.user}")
    check_id("message.messageId", sent.message_id)
    for name, value in (("message.contextId", sent.context_id), ("message.taskId", sent.task_id)):
        if value:
            check_id(name, value)
    texts: list[str] = []
    data: list[Any] = []
    media: list[Media] = []
    for at, part in enumerate(sent.parts):
        _add_part(part, f"message.parts[{at}]", texts, data, media)
    said = Message(
        id=sent.message_id,
        context=sent.context_id,
        task=sent.task_id,
        texts=tuple(texts),
        data=tuple(data),
        media=tuple(media),
        waits=_waits(given.configuration),
    )
    if not (said.text.strip() or media):
        raise bad_params("message.parts: the message says nothing")
    return said


def read_params(params: dict[str, Any], kind: type[Any]) -> Any:
    """Return the parameters of a method.

    Raises:
        RpcError: they do not fit; the text says which.
    """
    try:
        found = msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise bad_params(str(error)) from error
    if (getattr(found, "history_length", None) or 0) < 0:
        raise bad_params("historyLength: not negative")
    return found


def check_id(name: str, value: str) -> None:
    """Accept an id that a peer chose.

    Raises:
        RpcError: it is blank, too long or not printable.
    """
    if not value.strip() or len(value) > MOST_ID_CHARS or not value.isprintable():
        raise bad_params(f"{name} is a text of 1 to {MOST_ID_CHARS} printable characters")


def _waits(how: Configuration | None) -> bool:
    return how is None or not (how.return_immediately or how.blocking is False)


def _check_configuration(how: Configuration | None) -> None:
    if how is None:
        return
    if how.task_push_notification_config or how.push_notification_config:
        raise no_push()
    if (how.history_length or 0) < 0:
        raise bad_params("configuration.historyLength: not negative")
    if how.accepted_output_modes and _MODES.isdisjoint(how.accepted_output_modes):
        raise RpcError(CONTENT_TYPE, f"acceptedOutputModes: what agents give here is {TEXT_MODE} or {JSON_MODE}")


def no_push() -> RpcError:
    """The refusal of notifications that the server would have to send."""
    return RpcError(NO_PUSH, "push notifications are not supported; subscribe to the task instead")


def _add_part(part: dict[str, Any], place: str, texts: list[str], data: list[Any], media: list[Media]) -> None:
    """Add one part to what it is."""
    if isinstance(part.get("text"), str):
        texts.append(part["text"])
    elif "data" in part:
        data.append(part["data"])
    elif isinstance(part.get("raw"), str):
        media.append(_media(part["raw"], part.get("mediaType"), part.get("filename"), place))
    elif isinstance(file := part.get("file"), dict) and isinstance(file.get("bytes"), str):
        media.append(_media(file["bytes"], file.get("mimeType"), file.get("name"), place))
    elif "url" in part or "file" in part:
        raise RpcError(CONTENT_TYPE, f"{place}: send the bytes of a file; the server fetches no address")
    else:
        raise RpcError(CONTENT_TYPE, f"{place}: a part has a text, data, or the bytes of a file")


def _media(data: str, mime: Any, name: Any, place: str) -> Media:
    mime, name = (one if isinstance(one, str) else "" for one in (mime, name))
    for what, word in (("media type", mime), ("file name", name)):
        if len(word) > MAX_WORD:
            raise bad_params(f"{place}: its {what} has {len(word)} characters; at most {MAX_WORD}")
    made: type[Image | Audio | File] = File
    if mime.startswith("image/"):
        made = Image
    elif mime.startswith("audio/"):
        made = Audio
    try:
        return made(b64decode(data, validate=True), mime=mime, name=name)
    except (binascii.Error, ValueError) as error:
        reason = error.reason if isinstance(error, MediaError) else "its bytes are no base64"
        raise RpcError(CONTENT_TYPE, f"{place}: {reason}") from error
