"""Options that are one of a few words: a misspelt one is refused where it is written, with the words that there are."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import msgspec
import pytest

import harborage.runtime.approval
import harborage.tools
from harborage.errors import InvalidOptionError, at_least
from harborage.events import MemoryEventBus, PatternRedactor
from harborage.identity import Quadruple
from harborage.runtime.approval import AlwaysDeny, ApprovalGate, BySideEffect
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import InboxRegistry, RunLoop
from harborage.tools import tool

# What each value needs besides the option that is tried. A new value with such an option needs its line here.
NEEDED: dict[str, dict[str, Any]] = {
    "ApprovalRequest": {"tool": "x", "args": b"{}", "identity": Quadruple("t", "u", "s", "r")},
    "CatalogFilter": {},
    "Tool": {"name": "x"},
    "ToolPolicy": {},
}
# Values that the runtime makes and nobody writes.
MADE = {"EffectivePolicy"}


def enums_in(hint: Any) -> Iterator[type[StrEnum]]:
    """The enums that a type annotation allows."""
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        yield hint
    for part in typing.get_args(hint):
        yield from enums_in(part)


def worded() -> Iterator[tuple[type[msgspec.Struct], str, type[StrEnum], bool]]:
    """Every option that is a word, of the public values: the value, the option's name, the words, whether several."""
    for package in (harborage.tools, harborage.runtime.approval):
        for name in package.__all__:
            value = getattr(package, name)
            if not (isinstance(value, type) and issubclass(value, msgspec.Struct)) or name in MADE:
                continue
            hints = typing.get_type_hints(value, localns={"ArtifactStore": Any, "Event": Any, "InputGiven": Any})
            for field in value.__struct_fields__:
                for words in enums_in(hints[field]):
                    yield value, field, words, "tuple" in str(hints[field])


def misspelt(words: type[StrEnum]) -> str:
    """A word with a letter too many."""
    return max(words, key=len).value + "e"


def test_a_misspelt_word_is_refused_where_it_is_written() -> None:
    """In every public value that takes one; the text lists the words and has the one that was meant."""
    tried = 0
    for value, field, words, is_many in worded():
        wrong: Any = (misspelt(words),) if is_many else misspelt(words)
        right: Any = (next(iter(words)).value,) if is_many else next(iter(words)).value
        with pytest.raises(InvalidOptionError) as caught:
            value(**{**NEEDED[value.__name__], field: wrong})
        text = str(caught.value)
        assert field in text, text
        assert f"did you mean {max(words, key=len).value!r}?" in text, text
        assert all(repr(word.value) in text for word in words), text
        kept = getattr(value(**{**NEEDED[value.__name__], field: right}), field)
        assert isinstance(kept[0] if is_many else kept, words), (value, field)
        tried += 1
    assert tried >= 8


def test_functions_and_classes_that_take_a_word_refuse_another_one() -> None:
    """The decorator, a policy, and the loop."""
    parts = (Coordinator(), MemoryEventBus(), PatternRedactor())
    wrong: dict[str, Callable[[], object]] = {
        "effects": lambda: tool(lambda: None, name="x", description="Nothing.", effects="wrte"),  # type: ignore[arg-type,call-overload]
        "loading": lambda: tool(lambda: None, name="x", description="Nothing.", loading="alway"),  # type: ignore[arg-type,call-overload]
        "classes": lambda: BySideEffect(["wrte"]),  # type: ignore[list-item]
        "several values": lambda: BySideEffect("write"),
        "control_errors": lambda: RunLoop(InboxRegistry(), Coordinator(), control_errors="rejct"),
        "policy": lambda: ApprovalGate("deny", *parts),  # type: ignore[arg-type]
        "timeout": lambda: ApprovalGate(AlwaysDeny(), *parts, timeout=-1 * harborage.runtime.approval.DEFAULT_TIMEOUT),
    }
    for word, make in wrong.items():
        with pytest.raises(InvalidOptionError, match=word):
            make()


def test_a_number_is_one_that_can_be_counted_with() -> None:
    """Neither text nor a truth value, nothing below the least, and nothing without end."""
    for value in ("1", True, -1, float("nan"), float("inf"), None):
        with pytest.raises(InvalidOptionError, match="n="):
            at_least(0, value, "n")
    with pytest.raises(InvalidOptionError, match="whole"):
        at_least(0, 1.5, "n", is_whole=True)
    at_least(0, 1.5, "n")
    at_least(0, 0, "n", is_whole=True)
