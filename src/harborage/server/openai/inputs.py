"""What a request says: the last words of its user, what was said before, instructions, and the files beside them."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.artifacts.media import Audio, File, Image, Media, MediaError
from harborage.runtime.messages import Message, Speaker
from harborage.server.openai.answering import without_marks
from harborage.server.openai.errors import bad_input

if TYPE_CHECKING:
    from harborage.artifacts.media import Goal

_INSTRUCTING: Final = frozenset({"system", "developer"})
_ATTACHED: Final = "See what is attached."
"""The goal of a message that is nothing but files."""
_AUDIO: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}


class Content(msgspec.Struct, frozen=True):
    """The content of one message: its texts, and the files beside them. `artifacts` are ids of those that are kept."""

    text: str = ""
    media: tuple[Media, ...] = ()
    artifacts: tuple[str, ...] = ()


class Approval(msgspec.Struct, frozen=True):
    """An answer to one question of a run, as an item of its own."""

    request: str
    approves: bool
    reason: str = ""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says. `last` is None where its last message is not the user's; `before` is the last one of the
    assistant. `is_answered_last` says that nothing follows its approvals."""

    last: Content | None = None
    messages: tuple[Message, ...] = ()
    instructions: str = ""
    media: tuple[Media, ...] = ()
    artifacts: tuple[str, ...] = ()
    before: str = ""
    approvals: tuple[Approval, ...] = ()
    is_answered_last: bool = False

    @property
    def goal(self) -> Goal:
        """The goal of the run: the user's last words, with the files of all messages."""
        assert self.last is not None
        text = self.last.text or (_ATTACHED if self.media or self.artifacts else "")
        return [*self.media, text] if self.media else text


def read_chat(messages: Any) -> Said:
    """Return what the messages of a chat say.

    Raises:
        RequestRefusedError: they are no messages, or have a part that cannot be used; it is named.
    """
    if not isinstance(messages, list) or not messages:
        raise bad_input("'messages' takes a list of at least one message", "messages")
    reader = _Reader("messages")
    for at, message in enumerate(messages):
        reader.add_message(message, f"messages[{at}]")
    return reader.said()


def read_input(given: Any, instructions: str) -> Said:
    """Return what the input of a response says.

    Raises:
        RequestRefusedError: as of `read_chat`.
    """
    reader = _Reader("input", instructions)
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise bad_input("'input' takes a text, or a list of at least one item", "input")
    for at, item in enumerate(given):
        reader.add_item(item, f"input[{at}]")
    return reader.said()


class _Reader:
    """Reads one message or item after the other."""

    def __init__(self, param: str, instructions: str = "") -> None:
        self._param = param
        self._instructions = [instructions] if instructions else []
        self._messages: list[Message] = []
        self._media: list[Media] = []
        self._artifacts: list[str] = []
        self._approvals: list[Approval] = []
        self._tools: dict[str, str] = {}
        self._last: Content | None = None
        self._before = ""
        self._is_answered_last = False

    def said(self) -> Said:
        """All of it."""
        return Said(
            last=self._last,
            messages=tuple(self._messages[:-1] if self._last is not None else self._messages),
            instructions="\n\n".join(self._instructions),
            media=tuple(self._media),
            artifacts=tuple(dict.fromkeys(self._artifacts)),
            before=self._before,
            approvals=tuple(self._approvals),
            is_answered_last=self._is_answered_last,
        )

    def add_message(self, message: Any, place: str) -> None:
        """Add a message with a role."""
        role = message.get("role") if isinstance(message, dict) else None
        match role:
            case "user":
                content = read_content(message.get("content"), place)
                named = message.get("name")
                text = f"{named}: {content.text}" if isinstance(named, str) and named else content.text
                self._add_user(msgspec.structs.replace(content, text=text))
            case "assistant":
                self._add_assistant(message, place)
            case "tool":
                self._add_result(message.get("tool_call_id"), message.get("content"), place)
            case str() if role in _INSTRUCTING:
                if text := _only_text(message.get("content"), place):
                    self._instructions.append(text)
            case _:
                raise bad_input(f"{place}: the role is system, developer, user, assistant or tool", place)

    def add_item(self, item: Any, place: str) -> None:
        """Add an item of the input of a response."""
        kind = item.get("type", "message") if isinstance(item, dict) else None
        match kind:
            case "message":
                self.add_message(item, place)
            case "mcp_approval_response":
                self._add_approval(item, place)
            case "function_call" | "mcp_call":
                self._add_call(item.get("call_id") or item.get("id"), item.get("name"), item.get("arguments"), place)
                if kind == "mcp_call" and (item.get("output") is not None or item.get("error") is not None):
                    self._add_result(item.get("id"), _came_of(item), place)
            case "function_call_output":
                self._add_result(item.get("call_id"), item.get("output"), place)
            case "reasoning" | "mcp_approval_request" | "mcp_list_tools":
                return  # what an earlier response gave out, and nobody needs to be told
            case _:
                raise bad_input(f"{place}: items of this type are not supported", place, code="unsupported_item")

    def _add_user(self, content: Content) -> None:
        content = msgspec.structs.replace(content, text=without_marks(content.text))
        marks = "".join(f"\n[attached: {one.name or one.mime}]" for one in content.media)
        self._messages.append(Message(role=Speaker.USER, text=f"{content.text}{marks}".strip()))
        self._media += content.media
        self._artifacts += content.artifacts
        self._last, self._is_answered_last = content, False

    def _add_assistant(self, message: Mapping[str, Any], place: str) -> None:
        text = _only_text(message.get("content"), place)
        if shown := without_marks(text):
            self._messages.append(Message(role=Speaker.ASSISTANT, text=shown))
        self._before, self._last = text, None
        calls = message.get("tool_calls") or ()
        if not isinstance(calls, list | tuple):
            raise bad_input(f"{place}.tool_calls takes a list", place)
        for call in calls:
            called = call.get("function") if isinstance(call, dict) else None
            if not isinstance(called, dict):
                raise bad_input(f"{place}.tool_calls has a call without a function", place)
            self._add_call(call.get("id"), called.get("name"), called.get("arguments"), place)

    def _add_call(self, call_id: Any, name: Any, args: Any, place: str) -> None:
        if not isinstance(name, str) or not name or not isinstance(args, str | None):
            raise bad_input(f"{place}: a call has a name and its arguments as a text", place)
        self._messages.append(Message(role=Speaker.ASSISTANT, tool=name, args="{}" if args is None else args))
        self._tools[str(call_id)] = name
        self._last = None

    def _add_result(self, call_id: Any, content: Any, place: str) -> None:
        name = self._tools.get(str(call_id))
        if name is None:
            raise bad_input(f"{place}: no call before has this id", place)
        self._messages.append(Message(role=Speaker.TOOL, tool=name, text=_only_text(content, place)))
        self._last = None

    def _add_approval(self, item: Mapping[str, Any], place: str) -> None:
        request, approves, reason = item.get("approval_request_id"), item.get("approve"), item.get("reason")
        if not isinstance(request, str) or not isinstance(approves, bool) or not isinstance(reason, str | None):
            raise bad_input(f"{place}: an answer has approval_request_id, approve and perhaps a reason", place)
        self._approvals.append(Approval(request, approves, reason or ""))
        self._is_answered_last = True


def _came_of(item: Mapping[str, Any]) -> Any:
    """What came of a call that an earlier response shows."""
    error = item.get("error")
    if error is None:
        return item.get("output")
    said = error.get("content") or error.get("message") if isinstance(error, dict) else error
    return said if isinstance(said, str) else "it failed"


def read_content(content: Any, place: str) -> Content:
    """Return the content of a message.

    Raises:
        RequestRefusedError: a part cannot be used.
    """
    if content is None or isinstance(content, str):
        return Content(content or "")
    if not isinstance(content, list):
        raise bad_input(f"{place}.content takes a text or a list of parts", place)
    texts: list[str] = []
    media: list[Media] = []
    artifacts: list[str] = []
    for at, part in enumerate(content):
        found = _read_part(part, f"{place}.content[{at}]")
        if isinstance(found, Media):
            media.append(found)
        elif isinstance(found, _Kept):
            artifacts.append(found.id)
        else:
            texts.append(found)
    return Content("\n".join(filter(None, texts)), tuple(media), tuple(artifacts))


class _Kept(msgspec.Struct, frozen=True):
    """An artifact of the session, by its id."""

    id: str


def _read_part(part: Any, place: str) -> str | Media | _Kept:
    kind = part.get("type") if isinstance(part, dict) else None
    inner: Any
    match kind:
        case "text" | "input_text" | "output_text":
            inner = part.get("text")
            if not isinstance(inner, str):
                raise bad_input(f"{place}.text takes a text", place)
            return inner
        case "refusal":
            return str(part.get("refusal") or "")
        case "image_url" | "input_image":
            inner = part.get("image_url")
            url = inner.get("url") if isinstance(inner, dict) else inner
            return _kept(part) or _from_url(Image, url, "", place)
        case "input_audio":
            inner = part.get("input_audio")
            if not isinstance(inner, dict) or inner.get("format") not in _AUDIO:
                raise bad_input(f"{place}.input_audio has data, and the format wav or mp3", place)
            return _media(Audio, _decoded(inner.get("data"), place), _AUDIO[inner["format"]], "", place)
        case "file" | "input_file":
            inner = part.get("file") if kind == "file" else part
            if not isinstance(inner, dict):
                raise bad_input(f"{place}.file takes an object", place)
            return _kept(inner) or _from_url(File, inner.get("file_data"), str(inner.get("filename") or ""), place)
        case _:
            raise bad_input(f"{place}: parts of this type are not supported", place, code="unsupported_part")


def _kept(part: Mapping[str, Any]) -> _Kept | None:
    """The artifact that a part names in place of bytes."""
    named = part.get("file_id")
    return _Kept(named) if isinstance(named, str) and named else None


def _from_url(made: type[Image | File], url: Any, name: str, place: str) -> Media:
    head, _, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not head.startswith("data:") or not head.endswith(";base64"):
        text = f"{place}: send the bytes, as data:TYPE;base64,…; the server fetches no address"
        raise bad_input(text, place, code="unsupported_url")
    return _media(made, _decoded(data, place), head[len("data:") : -len(";base64")].partition(";")[0], name, place)


def _decoded(data: Any, place: str) -> bytes:
    try:
        return b64decode(data, validate=True) if isinstance(data, str) else b""
    except (binascii.Error, ValueError) as error:
        raise bad_input(f"{place}: the data is no base64", place, code="invalid_base64") from error


def _media(made: type[Image | Audio | File], data: bytes, mime: str, name: str, place: str) -> Media:
    try:
        return made(data, mime=mime, name=name)
    except MediaError as error:
        raise bad_input(f"{place}: {error.reason}", place) from error


def _only_text(content: Any, place: str) -> str:
    found = read_content(content, place)
    if found.media or found.artifacts:
        raise bad_input(f"{place}: only messages of the user have files", place)
    return found.text
