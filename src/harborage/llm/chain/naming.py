"""Tool names that every provider accepts: one with a dot or a slash is sent under another one.

Providers accept letters, digits, `_` and `-`, at most 64 of them. Most requests have no other names and pass unchanged;
the answer names the tools as the request did.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from harborage.llm.chain.conversation import read_conversation
from harborage.llm.chain.layer import Layer
from harborage.llm.client import ChatMessage, CompleteRequest, CompleteResponse, ToolCallStructured

_LEGAL: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST: Final = 64
_MARK_CHARS: Final = 8
_RENAMED: Final = "llm.renamed"


class Naming(Layer):
    """Gives tools whose names a provider would refuse other names, for one call."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        called = read_conversation(request.messages).called
        names = wire_names(called.union([one.name for one in request.tools]))
        if not names:
            return await self._inner.complete(request)
        answer = await self._inner.complete(_renamed(request, names))
        back = {wire: name for name, wire in names.items()}
        calls = tuple(_call(call, back) for call in answer.tool_calls)
        return replace(answer, tool_calls=calls) if calls else answer


@lru_cache(maxsize=256)
def wire_names(names: frozenset[str]) -> Mapping[str, str]:
    """Return a legal name for each name that is not; never one that another tool has."""
    illegal = sorted(name for name in names if not _LEGAL.fullmatch(name))
    taken = set(names)
    found: dict[str, str] = {}
    for name in illegal:
        wire = _OTHER.sub("_", name)
        if wire in taken or not 0 < len(wire) <= _LONGEST:
            mark = hashlib.sha256(name.encode()).hexdigest()[:_MARK_CHARS]
            wire = f"{wire[: _LONGEST - _MARK_CHARS - 1]}_{mark}"
        taken.add(wire)
        found[name] = wire
    return MappingProxyType(found)


def _renamed(request: CompleteRequest, names: Mapping[str, str]) -> CompleteRequest:
    tools = tuple(replace(one, name=names[one.name]) if one.name in names else one for one in request.tools)
    messages = [_message(one, names) if one.tool_calls else one for one in request.messages]
    return replace(request, tools=tools, messages=messages)


class _Renamed(msgspec.Struct, frozen=True):
    """A message as it is sent, with the names it was given; the run's next request most likely gives the same."""

    message: ChatMessage
    names: tuple[str, ...]


def _message(message: ChatMessage, names: Mapping[str, str]) -> ChatMessage:
    wanted = tuple([names.get(call.name, call.name) for call in message.tool_calls])
    found: _Renamed | None = vars(message).get(_RENAMED)
    if found is None or found.names != wanted:
        calls = tuple(_call(call, names) for call in message.tool_calls)
        found = vars(message)[_RENAMED] = _Renamed(replace(message, tool_calls=calls), wanted)
    return found.message


def _call(call: ToolCallStructured, names: Mapping[str, str]) -> ToolCallStructured:
    return replace(call, name=names[call.name]) if call.name in names else call
