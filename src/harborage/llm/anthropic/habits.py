"""How the families of Claude differ in what their API takes, read off a model's name. Pure.

A name that is not known is taken for one of the older models, whose requests the others' stand-ins understand.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["Habits", "habits_of"]


class Habits(msgspec.Struct, frozen=True):
    """What one model takes.

    `decides_itself`: it is told how hard to think, not for how many tokens. `off` is the word that switches its
    thinking off, empty where nothing does. `takes_temperature` and `can_be_forced` (to call a tool) are refused by the
    later models. `max_tokens` is what an answer may take when nobody says.
    """

    decides_itself: bool = False
    off: str = "disabled"
    takes_temperature: bool = True
    can_be_forced: bool = True
    max_tokens: int = 8192


_VERSION = re.compile(
    r"(?:claude-)?(?P<family>opus|sonnet|haiku|fable|mythos)-(?P<major>\d)(?:[-.](?P<minor>\d{1,2}))?(?!\d)"
)
_OLD_VERSION = re.compile(r"claude-(?:3|2|1|instant)(?:[-.](?P<minor>\d{1,2})(?!\d))?")
_ALWAYS_THINK = frozenset({"fable", "mythos"})
_UNKNOWN = Habits()
_SHORT = Habits(max_tokens=4096)


def habits_of(model: str) -> Habits:
    """What the model of this name takes."""
    if "mythos-preview" in model:
        return Habits(decides_itself=True, off="", max_tokens=32_000)
    found = _VERSION.search(model)
    if found is None:
        old = _OLD_VERSION.search(model)
        return _UNKNOWN if old is None or old["minor"] == "7" else _SHORT
    family, version = found["family"], (int(found["major"]), int(found["minor"] or 0))
    if version < (4, 6):
        return _UNKNOWN
    return Habits(
        decides_itself=True,
        off=_off(family, version),
        takes_temperature=version < (4, 7),
        can_be_forced=not _refuses_force(family, version),
        max_tokens=32_000,
    )


def _off(family: str, version: tuple[int, int]) -> str:
    if family in _ALWAYS_THINK or (family == "opus" and version >= (5, 5)):
        return ""
    return "between_tools" if family == "sonnet" and version >= (5, 5) else "disabled"


def _refuses_force(family: str, version: tuple[int, int]) -> bool:
    if family in _ALWAYS_THINK:
        return version >= (5, 1)
    return family in ("opus", "sonnet") and version >= (5, 5)
