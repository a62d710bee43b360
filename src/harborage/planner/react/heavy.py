"""Heavy results: what stands for a result that is kept outside the conversation, as text with directions to the rest.

The wrapper that a dispatcher puts around such a result is recognised by its keys and never shown itself. Pure.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from harborage import codec
from harborage.llm import ArtifactStub
from harborage.planner.react.names import ARTIFACT_FETCH_TOOL_NAME
from harborage.planner.react.rendering import one_line

__all__ = ["fetch_call", "heavy_text"]

_WRAPPER: Final = frozenset(
    {"tool", "size_bytes", "truncated", "preview", "artifact_ref", "mime", "summary", "hash", "fetch"}
)
_NO_EXCERPT: Final = "(no excerpt)"
_OMITTED: Final = '"[omitted:'


def heavy_text(value: Any, *, can_fetch: bool = True) -> str | None:
    """The excerpt of a heavy result and how to fetch the rest; None when `value` is not one.

    Without `can_fetch` the model has no tool to fetch with, so the rest is only named.
    """
    match value:
        case ArtifactStub():
            footer = _footer(value.ref, value.size_bytes, value.mime, can_fetch)
            return f"{one_line(value.summary) or _NO_EXCERPT} {footer}"
        case dict() if _is_wrapper(value):
            return _wrapped(value, can_fetch)
        case _:
            return None


def fetch_call(ref: str) -> str:
    """The call that reads an artifact, as a model would write it."""
    return f"{ARTIFACT_FETCH_TOOL_NAME}(ref={codec.encode_text(ref)})"


def _is_wrapper(value: dict[Any, Any]) -> bool:
    # A tool's own result may well have a `preview`; only what a dispatcher made, or what has nothing else, is replaced.
    if not (_text(value, "preview") or _text(value, "artifact_ref")):
        return False
    return value.get("truncated") is True or value.keys() <= _WRAPPER


def _wrapped(value: dict[Any, Any], can_fetch: bool) -> str:
    excerpt, ref = _text(value, "preview") or _text(value, "summary"), _text(value, "artifact_ref")
    if not ref:
        return one_line(excerpt)
    if _has_omitted_fields(excerpt):
        return f"{excerpt}\n\n{_field_footer(ref, can_fetch)}"
    footer = _footer(ref, value.get("size_bytes"), _text(value, "mime"), can_fetch)
    return f"{one_line(excerpt) or _NO_EXCERPT} {footer}"


def _footer(ref: str, size: Any, mime: str, can_fetch: bool) -> str:
    is_size = isinstance(size, int | float) and not isinstance(size, bool) and 0 < size < math.inf
    facts = ([f"{int(size)} bytes"] if is_size else []) + ([mime] if mime else [])
    known = f" ({', '.join(facts)})" if facts else ""
    return f"[cut; the whole result{known}: {_whereabouts(ref, can_fetch)}]"


def _field_footer(ref: str, can_fetch: bool) -> str:
    way = f"read them with {fetch_call(ref)}" if can_fetch else f"they are {_whereabouts(ref, can_fetch)}"
    return (
        f"[fields marked as omitted were cut; {way}. All other fields are complete. "
        "Calling the tool again gives the same result.]"
    )


def _whereabouts(ref: str, can_fetch: bool) -> str:
    return fetch_call(ref) if can_fetch else f"kept as {codec.encode_text(ref)}, which no tool of this run reads"


def _has_omitted_fields(excerpt: str) -> bool:
    if _OMITTED not in excerpt:
        return False
    try:
        codec.decode(excerpt)
    except msgspec.DecodeError:
        return False
    return True


def _text(value: dict[Any, Any], key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""
