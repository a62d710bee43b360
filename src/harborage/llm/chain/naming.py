"""Tool names that every provider takes: one with a dot or a slash travels under another name, and comes back as itself.

Providers accept letters, digits, `_` and `-`, at most 64 of them. Most requests have no other names, and pass as they
are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

import msgspec
from msgspec.structs import replace

from harborage.llm.chain.known import LEGAL_NAME, MessageFacts, facts_of
from harborage.llm.chain.layer import Layer
from harborage.llm.client import ChatMessage, CompleteRequest, CompleteResponse, ToolCallStructured

__all__ = ["Naming", "wire_names"]

_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST: Final = 64
_MARK_CHARS: Final = 8
_RENAMED: Final = "llm.renamed"
_ODD: Final = attrgetter("has_odd_name")


class Naming(Layer):
    """Gives tools whose names a provider would refuse other names, for the length of a call."""

    async def _complete(self, request: CompleteRequest) -> CompleteResponse:
        known = facts_of(request.messages)
        if not _has_odd_name(request, known):
            return await self._inner.complete(request)
        names = wire_names(_names(request, known))
        answer = await self._inner.complete(_renamed(request, known, names))
        back = {wire: name for name, wire in names.items()}
        calls = tuple(_call(call, back) for call in answer.tool_calls)
        return replace(answer, tool_calls=calls) if calls else answer


def wire_names(names: frozenset[str]) -> dict[str, str]:
    """For each name that is not legal, the legal one that stands for it; never one that another tool has."""
    illegal = sorted(name for name in names if not LEGAL_NAME.fullmatch(name))
    taken = set(names)
    found: dict[str, str] = {}
    for name in illegal:
        wire = _OTHER.sub("_", name)
        if wire in taken or not 0 < len(wire) <= _LONGEST:
            mark = hashlib.sha256(name.encode()).hexdigest()[:_MARK_CHARS]
            wire = f"{wire[: _LONGEST - _MARK_CHARS - 1]}_{mark}"
        taken.add(wire)
        found[name] = wire
    return found


def _has_odd_name(request: CompleteRequest, known: Sequence[MessageFacts]) -> bool:
    return any(map(_ODD, known)) or not all(LEGAL_NAME.fullmatch(one.name) for one in request.tools)


def _names(request: CompleteRequest, known: Sequence[MessageFacts]) -> frozenset[str]:
    return frozenset(one.name for one in request.tools).union(*[one.called for one in known])


def _renamed(request: CompleteRequest, known: Sequence[MessageFacts], names: Mapping[str, str]) -> CompleteRequest:
    tools = tuple(replace(one, name=names[one.name]) if one.name in names else one for one in request.tools)
    messages = [
        _message(message, names) if facts.has_odd_name else message
        for message, facts in zip(request.messages, known, strict=True)
    ]
    return replace(request, tools=tools, messages=messages)


class _Renamed(msgspec.Struct, frozen=True):
    """A message as it travels, and the names that it has got; a run's next request most likely gives it the same."""

    message: ChatMessage
    names: tuple[str, ...]


def _message(message: ChatMessage, names: Mapping[str, str]) -> ChatMessage:
    wanted = tuple(names.get(call.name, call.name) for call in message.tool_calls)
    found: _Renamed | None = vars(message).get(_RENAMED)
    if found is None or found.names != wanted:
        calls = tuple(_call(call, names) for call in message.tool_calls)
        found = vars(message)[_RENAMED] = _Renamed(replace(message, tool_calls=calls), wanted)
    return found.message


def _call(call: ToolCallStructured, names: Mapping[str, str]) -> ToolCallStructured:
    return replace(call, name=names[call.name]) if call.name in names else call
