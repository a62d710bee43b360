"""What a planner asked its model in one step, with the prompts whole. Pure.

A record holds a prompt as its difference from an earlier one. Only the exchanges that a prompt goes back to are read,
and each of its messages is looked up once, so that the cost is that of the prompt and not of all before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from harborage import codec
from harborage.runtime.durable.histories import read_value
from harborage.runtime.durable.journal import Cut, Done, Entry, Failed, JournalCorruptError, Rolled
from harborage.runtime.durable.model_records import MISSING, Exchange, Prompt, RecordedAnswer, Settings
from harborage.runtime.durable.model_records import Failure as ModelFailure

if TYPE_CHECKING:
    from harborage.llm import ChatMessage, ToolDeclaration

_PLAN: Final = "plan"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the model. `unchanged` counts the leading messages that are those of the call before.

    `has_new_tools` says that the tools are others than in the call before.
    """

    prompt: Prompt
    unchanged: int = 0
    has_new_tools: bool = True
    answer: RecordedAnswer | None = None
    failure: ModelFailure | None = None


class _Noted(msgspec.Struct, frozen=True):
    """The part of a planner's result that holds its calls of the model."""

    heard: msgspec.Raw = msgspec.Raw(b"")


def asks_of(entries: Sequence[Entry], number: int, run_id: str) -> list[Ask]:
    """Return the calls of the model in the planner's step `number`, counted from 1; none if none are on record.

    Raises:
        JournalCorruptError: one of them cannot be read, or goes back to one that is not there.
    """
    exchanges = _Exchanges(run_id)
    steps = 0
    for index, entry in enumerate(entries):
        match entry:
            case Rolled():
                exchanges = _Exchanges(run_id)
            case Done(name="plan") | Failed(name="plan") | Cut(name="plan"):
                steps += 1
                begin = len(exchanges)
                exchanges.add(entry, index)
                if steps == number:
                    return [exchanges.ask(at) for at in range(begin, len(exchanges))]
            case _:
                pass
    return []


class _Exchanges:
    """The exchanges of one history of a run, decoded when they are needed."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._stored: list[tuple[bytes, int]] = []
        self._read: dict[int, Exchange] = {}

    def __len__(self) -> int:
        return len(self._stored)

    def add(self, entry: Done | Failed | Cut, index: int) -> None:
        """Add those of a step; `index` is that of its entry."""
        heard: msgspec.Raw | None
        match entry:
            case Done():
                heard = read_value(entry.result, _Noted, self._where(index)).heard
            case Failed():
                heard = entry.notes
            case Cut():
                heard = None
        if heard:
            found = read_value(heard, list[msgspec.Raw], self._where(index))
            self._stored += [(bytes(one), index) for one in found]

    def ask(self, at: int) -> Ask:
        """Return an exchange with its prompt whole, and what it has in common with the one before."""
        prompt = self._prompt(at)
        before = self._prompt(at - 1) if at else Prompt(())
        exchange = self._exchange(at)
        return Ask(
            prompt=prompt,
            unchanged=_leading(before.messages, prompt.messages),
            has_new_tools=not at or before.tools != prompt.tools,
            answer=exchange.answer,
            failure=exchange.failure,
        )

    def _prompt(self, at: int) -> Prompt:
        wanted = self._exchange(at).asked.count
        messages: list[ChatMessage | None] = [None] * wanted
        tools: tuple[ToolDeclaration, ...] | None = None
        settings: Settings | None = None
        missing = [(0, wanted)]
        while True:
            asked = self._exchange(at).asked
            tools = asked.tools if tools is None else tools
            settings = asked.settings if settings is None else settings
            missing = _take(messages, missing, asked.kept, asked.messages, asked.count)
            is_whole = not missing and tools is not None and settings is not None
            if not asked.follows or is_whole:
                break
            if not 0 < asked.follows <= at:
                raise JournalCorruptError(f"{self._where(self._stored[at][1])}: it goes back to an exchange before all")
            at -= asked.follows
        whole = tuple(MISSING if one is None else one for one in messages)
        return Prompt(whole, () if tools is None else tools, Settings() if settings is None else settings)

    def _exchange(self, at: int) -> Exchange:
        if (known := self._read.get(at)) is not None:
            return known
        data, index = self._stored[at]
        try:
            found: Exchange = codec.decode(data, Exchange)
        except msgspec.ValidationError as error:
            raise JournalCorruptError(f"{self._where(index)}: {error}") from error
        self._read[at] = found
        return found

    def _where(self, index: int) -> str:
        return f"run {self._run_id}, entry {index}"


def _take(
    messages: list[ChatMessage | None],
    missing: Sequence[tuple[int, int]],
    kept: Sequence[tuple[int, int]],
    own: Sequence[ChatMessage],
    count: int,
) -> list[tuple[int, int]]:
    """Fill in the missing messages that an exchange holds itself; return the ranges that it has kept of another.

    `own` are its messages outside of the ranges `kept`.
    """
    left: list[tuple[int, int]] = []
    for begin, end in missing:
        taken = 0  # messages of `own` that lie before the place
        at = 0
        for first, last in (*kept, (count, count)):
            for place in range(max(at, begin), min(first, end)):
                if taken + place - at < len(own):
                    messages[place] = own[taken + place - at]
            taken += max(0, first - at)
            if max(first, begin) < min(last, end):
                left.append((max(first, begin), min(last, end)))
            at = max(at, last)
    return left


def _leading(before: Sequence[ChatMessage], now: Sequence[ChatMessage]) -> int:
    """How many messages two prompts have in common at their beginning."""
    for at, (one, other) in enumerate(zip(before, now, strict=False)):
        if one is not other and one != other:
            return at
    return min(len(before), len(now))
