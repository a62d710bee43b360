"""Results of a server as values of ours. Pictures, sound and documents in them become artifacts; links stay links."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.artifacts import ArtifactScope
from harborage.artifacts.media import File, kept_media
from harborage.tools.mcp.errors import MCPRequestError, MCPToolError, cleaned
from harborage.tools.model import ToolResult

if TYPE_CHECKING:
    from harborage.secrets import SecretReader
    from harborage.tools.model import CallContext

_MOST_SHOWN: Final = 200


def masked(result: Any, secrets: SecretReader) -> Any:
    """Return a result without the secrets that its server was given: it may echo them."""
    if not secrets.has_read:
        return result
    for one in result.content:
        if one.type == "text":
            one.text = secrets.mask(one.text)
    result.structured_content = _masked(result.structured_content, secrets)
    return result


def _masked(value: Any, secrets: SecretReader) -> Any:
    if isinstance(value, str):
        return secrets.mask(value)
    if isinstance(value, list):
        return [_masked(one, secrets) for one in value]
    if isinstance(value, dict):
        return {name: _masked(one, secrets) for name, one in value.items()}
    return value


async def result_of(result: Any, server: str, tool: str, call: CallContext[Any]) -> ToolResult:
    """Return the result of a call of a tool.

    Raises:
        MCPToolError: the server says that the tool failed.
        MCPRequestError: a part of it cannot be read.
    """
    content = result.content
    if result.is_error:
        text = "\n".join(one.text for one in content if one.type == "text")
        raise MCPToolError(server, f"{tool}: {cleaned(text) or 'the tool failed, and does not say why'}")
    structured = result.structured_content
    if len(content) == 1 and content[0].type == "text":
        return ToolResult(parsed(content[0].text) if structured is None else structured)
    media = [one for one in content if one.type != "text"]
    if not media and (structured is not None or not content):
        return ToolResult(structured)
    parts = [await _part(one, server, tool, call) for one in media]
    if len(content) == 1 and structured is None and "artifact" in parts[0]:
        return ToolResult(parts[0])  # as a tool of one's own that returns a picture
    value: dict[str, Any] = {"text": "\n".join(one.text for one in content if one.type == "text"), "parts": parts}
    if structured is not None:
        value["structured_content"] = structured
    return ToolResult(value)


def parsed(text: str) -> Any:
    """Return the value of a text: nothing, JSON where it is some, else the text itself."""
    if text[:1] in ("{", "["):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return text
    return text or None


async def contents_of(result: Any, server: str, tool: str, call: CallContext[Any]) -> ToolResult:
    """Return the contents of a resource that was read.

    Raises:
        MCPRequestError: a part of it cannot be read.
    """
    found = [await _contents(one, server, tool, call) for one in result.contents]
    return ToolResult(found[0] if len(found) == 1 else found)


async def _contents(one: Any, server: str, tool: str, call: CallContext[Any]) -> Any:
    if getattr(one, "text", None) is not None:
        return one.text
    return await _kept(one.blob, one.mime_type or "", str(one.uri), server, tool, call)


def prompt_text(result: Any) -> str:
    """Return a prompt as lines, each with who says it: `[user] …`."""
    lines = []
    for message in result.messages:
        content = message.content
        text = content.text if content.type == "text" else f"({content.type})"
        lines.append(f"[{message.role}] {text}")
    return "\n".join(lines)


async def _part(one: Any, server: str, tool: str, call: CallContext[Any]) -> dict[str, Any]:
    match one.type:
        case "image" | "audio":
            kept = await _kept(one.data, one.mime_type, "", server, tool, call)
            return {"type": one.type, **kept}
        case "resource_link":
            named = {"name": one.name, "description": one.description, "mime_type": one.mime_type}
            shown = {name: cleaned(text, _MOST_SHOWN) for name, text in named.items() if text}
            return {"type": "resource_link", "uri": str(one.uri), **shown}
        case _:
            return {
                "type": "resource",
                "uri": str(one.resource.uri),
                **await _resource(one.resource, server, tool, call),
            }


async def _resource(resource: Any, server: str, tool: str, call: CallContext[Any]) -> dict[str, Any]:
    uri, mime = str(resource.uri), resource.mime_type or ""
    text = getattr(resource, "text", None)
    if text is None:
        return await _kept(resource.blob, mime, uri, server, tool, call)
    if not text:
        return {"text": ""}
    return await _stored(text.encode("utf-8", "replace"), mime or "text/plain", uri, call, tool)


async def _kept(data: str, mime: str, uri: str, server: str, tool: str, call: CallContext[Any]) -> dict[str, Any]:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MCPRequestError(server, f"{tool}: a part of its result is no base64") from error
    if not raw:
        return {"text": ""}
    return await _stored(raw, mime or "application/octet-stream", uri, call, tool)


async def _stored(raw: bytes, mime: str, uri: str, call: CallContext[Any], tool: str) -> dict[str, Any]:
    name = cleaned(uri.rstrip("/").rpartition("/")[2], 100)
    file = File(raw, mime=cleaned(mime, 100), name=name)
    source = {"source": "tool", "tool": tool, "run_id": call.who.run_id}
    kept: dict[str, Any] = await kept_media(file, call.artifacts, ArtifactScope.of(call.who), source)
    return kept
