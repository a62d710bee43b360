"""Which operations an option means: by name, by method and path, by tag, and by globs of these. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeVar

from harborage.errors import InvalidOptionError
from harborage.tools.enums import SideEffect

T = TypeVar("T")


class Names(NamedTuple):
    """All that an operation is called in options: its id or short name, its line, its tool's name, also the one before
    it was renamed, and its tags."""

    short: str
    line: str
    tool: str
    tags: tuple[str, ...] = ()
    was: str = ""

    def match(self, pattern: str) -> bool:
        """Whether a pattern means this operation; paths count as they are, methods in any case."""
        if pattern.startswith("tag:"):
            return any(fnmatchcase(tag, pattern[4:]) for tag in self.tags)
        method, space, path = pattern.partition(" ")
        if space:
            return self.line == f"{method.upper()} {path}" or fnmatchcase(self.line, f"{method.upper()} {path}")
        return any(one == pattern or fnmatchcase(one, pattern) for one in (self.short, self.tool, self.was))


def check_patterns(option: str, patterns: Iterable[str], known: Sequence[Names]) -> None:
    """Accept patterns that each mean an operation.

    Raises:
        InvalidOptionError: one means none; the text has the nearest names.
    """
    for pattern in patterns:
        if any(one.match(pattern) for one in known):
            continue
        words = {word for one in known for word in (one.short, one.line, one.tool, *(f"tag:{tag}" for tag in one.tags))}
        near = get_close_matches(pattern, sorted(words), n=3, cutoff=0.5)
        hint = f"; did you mean {', '.join(map(repr, near))}?" if near else f"; there are {len(known)} operations"
        raise InvalidOptionError(option, pattern, message=f"{option}: nothing is called {pattern!r}{hint}")


def any_match(patterns: Iterable[str], one: Names) -> bool:
    """Whether one of the patterns means the operation."""
    return any(one.match(pattern) for pattern in patterns)


def first_match(options: Mapping[str, T], one: Names) -> T | None:
    """The value of the first pattern that means the operation; None where none does."""
    return next((value for pattern, value in options.items() if one.match(pattern)), None)


def names_in(option: str, given: Any) -> tuple[str, ...]:
    """Accept a list of names.

    Raises:
        InvalidOptionError: it is a single text, or holds anything else.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidOptionError(option, given, f"several names, such as {option}=[{str(given)!r}]")
    found = tuple(given)
    for one in found:
        if not isinstance(one, str) or not one.strip():
            raise InvalidOptionError(option, one, "names as texts")
    return found


def effects_in(given: Any, is_known: Callable[[str], bool] = {*SideEffect}.__contains__) -> dict[str, SideEffect]:
    """Accept effects by pattern; one for all may stand alone.

    Raises:
        InvalidOptionError: one is no effect; the text has the nearest one.
    """
    by_pattern = {"*": given} if isinstance(given, str) else given
    if not isinstance(by_pattern, Mapping):
        raise InvalidOptionError("effects", given, 'effects by name, such as effects={"get_me": "read"}')
    for pattern, effect in by_pattern.items():
        if not isinstance(effect, str) or not is_known(effect):
            near = get_close_matches(str(effect), [*SideEffect], n=1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; one of {', '.join(SideEffect)}"
            where = "effects" if isinstance(given, str) else f"effects[{pattern!r}]"
            raise InvalidOptionError(where, effect, message=f"{where}: {effect!r} is no effect{hint}")
    return {pattern: SideEffect(effect) for pattern, effect in by_pattern.items()}
