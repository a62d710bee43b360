"""What a person writes in an editor, as the goal of a run: words, pictures, and the files that go with them."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from harborage.artifacts.media import File, Image, Media, MediaError
from harborage.errors import HarborageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harborage.artifacts.media import Goal

_MOST_INLINE: Final = 16_384


class PromptError(HarborageError):
    """A prompt cannot be taken; the text says which part, and what to send."""


def read_prompt(blocks: Sequence[Any]) -> list[str | Media]:
    """Return the parts of a prompt: texts, pictures, and files.

    A short text of a resource stands in the prompt under its address, a longer one is a file of the run.

    Raises:
        PromptError: there is no text, or a part is of a kind that is not taken.
    """
    parts = [_part(block) for block in blocks]
    if not any(isinstance(one, str) and one.strip() for one in parts):
        raise PromptError("the prompt has no text; say what to do")
    return parts


def text_of(goal: Goal) -> str:
    """Return the text of a prompt that answers a question.

    Raises:
        PromptError: it has more than text.
    """
    if isinstance(goal, str):
        return goal
    if any(not isinstance(one, str) for one in goal):
        raise PromptError("the run has asked a question, whose answer is a text: send it without files")
    return "\n".join(one for one in goal if isinstance(one, str))


def _part(block: Any) -> str | Media:
    try:
        match block.type:
            case "text":
                return str(block.text)
            case "image":
                return Image(_bytes(block.data, "image"), mime=block.mime_type, name=_name(block.uri or ""))
            case "resource_link":
                return f"[{block.name}]({block.uri})"
            case "resource":
                return _resource(block.resource)
            case kind:
                raise PromptError(f"content of the type {kind} is not taken: send text, images or resources")
    except MediaError as error:
        raise PromptError(str(error)) from error


def _resource(resource: Any) -> str | Media:
    mime, name = resource.mime_type or "", _name(resource.uri)
    text = getattr(resource, "text", None)
    if text is None:
        data = _bytes(resource.blob, resource.uri)
        return Image(data, mime=mime, name=name) if mime.startswith("image/") else File(data, mime=mime, name=name)
    if len(text) > _MOST_INLINE:
        return File(text.encode(), mime=mime or "text/plain", name=name)
    return f'<resource uri="{resource.uri}">\n{text}\n</resource>'


def _name(uri: str) -> str:
    return unquote(urlsplit(uri).path.rpartition("/")[2])


def _bytes(data: str, what: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PromptError(f"the data of {what} is no base64") from error
