"""The root of the error tree, and the rule that a class's docstring is its default message.

Each package declares its own errors next to the code that raises them; this file holds what they share.

    HarborageError
    ├── InvalidOptionError                an option has a value that it cannot have; lists those that it can
    ├── UnknownOptionError                there is no such option; says which one may be meant
    ├── MissingExtraError                 an optional dependency is not installed; names the extra
    ├── NotFoundError                     nothing has the id that was asked for; each package derives its own from it
    ├── identity.IdentityError            the caller's identity is missing or incomplete
    │   ├── IdentityIncompleteError
    │   ├── IdentityMissingError
    │   └── IdentityRequiredError
    ├── identity.AdminScopeRequiredError  what is asked for is not the caller's own
    ├── codec.UnserializableError         a value cannot become JSON; names the path
    ├── drivers.DriverError               a name→factory table was used wrongly
    ├── events.EventError                 bus, filters, replay, redaction
    ├── artifacts.ArtifactError           content store
    ├── state.StateError                  record store
    ├── llm.LLMError                      the edge to language models; drawn in llm.errors
    ├── tools.ToolError                   catalog, policy, invocation
    ├── tasks.TaskError                   task registry and groups
    ├── planner.PlannerError              decisions, trajectory, compression, planners
    └── runtime: SteeringError · PauseError · ApprovalError · EngineError
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

E = TypeVar("E", bound=StrEnum)

_MOST_SHOWN = 80
"""Characters that an error shows of a value."""


class HarborageError(Exception):
    """Something in Harborage went wrong."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or first_sentence(type(self)))


class InvalidOptionError(HarborageError, ValueError):
    """An option has a value that it cannot have. `option` names it, `value` is what was given."""

    def __init__(self, option: str = "", value: object = None, expected: str = "", *, message: str = "") -> None:
        self.option = option
        self.value = value
        super().__init__(message or (f"{option}={value!r}: expected {expected}" if option else ""))


class UnknownOptionError(HarborageError, TypeError):
    """There is no such option. `option` names what was given, `value` is its value."""

    def __init__(self, option: str = "", value: object = None, hint: str = "") -> None:
        self.option = option
        self.value = value
        shown = repr(value)
        shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"
        super().__init__(f"{option}={shown}: there is no such option{f'; {hint}' if hint else ''}" if option else "")


class NotFoundError(HarborageError):
    """Nothing here has the id that was asked for. `what` is the kind of thing that was looked for, `id` its id.

    What belongs to another identity is not found either, and the error does not say which it is.
    """

    what: str = "object"
    fix: str = "check the id, and whose it is"

    def __init__(self, id: str = "", *, what: str = "", message: str = "") -> None:
        self.id = id
        if what:
            self.what = what
        super().__init__(message or (f"no {self.what} {id!r} here; {self.fix}" if id else ""))


class MissingExtraError(HarborageError):
    """An optional dependency is not installed. `extra` is the extra of this package that brings it."""

    def __init__(self, extra: str = "", what: str = "") -> None:
        self.extra = extra
        super().__init__(f"{what or extra} needs an optional part: pip install 'harborage[{extra}]'")


def first_sentence(cls: type) -> str:
    """The first line of a class's docstring: the message an error carries when it is given none."""
    return (inspect.getdoc(cls) or cls.__name__).splitlines()[0].rstrip(".")


def error_text(error: BaseException) -> str:
    """What `error` says, as text that can be recorded whatever it quotes; never raises.

    The class of an error may be anybody's, and so may its `__str__`: where that fails, the text says so.
    """
    try:
        return str.encode(str(error), "utf-8", "backslashreplace").decode()
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # noqa: BLE001 - the text of an error must not replace the error
        return f"its text cannot be shown: its __str__ raised {type(failure).__name__}"


def error_summary(error: BaseException) -> str:
    """The class of an error and what it says."""
    text = error_text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def error_reason(error: BaseException) -> str:
    """The text of an error for a reader who does not see its class: named where the text alone says nothing.

    A KeyError's text is the key alone; others have no text, or only numbers and signs. Safe as `error_text` is.
    """
    text = error_text(error)
    if isinstance(error, KeyError) or not any(map(str.isalpha, text)):
        kind = type(error).__name__
        return f"{kind}: {text}" if text.strip() else kind
    return text


def one_of(kind: type[E], value: object, option: str) -> E:
    """The member of `kind` that `value` is or spells.

    Raises:
        InvalidOptionError: there is none; the text lists those that there are.
    """
    if isinstance(value, kind):
        return value
    known = [member.value for member in kind]
    if isinstance(value, str) and value in known:
        return kind(value)
    from difflib import get_close_matches  # only a mistake needs it

    near = get_close_matches(value.lower(), known, n=1) if isinstance(value, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise InvalidOptionError(option, value, f"one of {', '.join(map(repr, known))}{hint}")


def all_of(kind: type[E], values: object, option: str) -> tuple[E, ...]:
    """The members of `kind` that `values` are or spell, in their order.

    Raises:
        InvalidOptionError: one is none, or `values` is a single text where several are meant.
    """
    if values == ():
        return ()
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidOptionError(option, values, f"several values, such as ({str(next(iter(kind)))!r},)")
    return tuple(one_of(kind, value, option) for value in values)


def names_of(values: object, option: str) -> tuple[str, ...]:
    """The texts that `values` holds, in their order; a single text is not taken for its letters.

    Raises:
        InvalidOptionError: `values` is one text, or nothing that holds several, or holds something that is no text.
    """
    if values == ():
        return ()
    if isinstance(values, str):
        raise InvalidOptionError(option, values, f"several texts, such as ({values!r},)")
    if not isinstance(values, Iterable) or isinstance(values, bytes | bytearray):
        raise InvalidOptionError(option, values, "several texts, such as ('one', 'two')")
    found = tuple(values)
    for one in found:
        if not isinstance(one, str):
            raise InvalidOptionError(option, one, "nothing but texts")
    return found


def known_options(given: Mapping[str, object], known: Iterable[str], hints: Mapping[str, str]) -> None:
    """Accept options that are among those `known`; `hints` say of others what is meant.

    Raises:
        UnknownOptionError: one is not; the text says what may be meant, or lists those that there are.
    """
    names = tuple(known)
    for option, value in given.items():
        if option not in names:
            from difflib import get_close_matches  # only a mistake needs it

            meant = hints.get(option, "") or ", ".join(get_close_matches(option, names, n=1))
            raise UnknownOptionError(option, value, f"did you mean {meant}?" if meant else f"use {', '.join(names)}")


def at_least(least: float, value: object, option: str, *, is_whole: bool = False) -> None:
    """Accept a finite number that is not below `least`.

    Raises:
        InvalidOptionError: it is none, or smaller.
    """
    wanted = (int,) if is_whole else (int, float)
    is_number = isinstance(value, wanted) and not isinstance(value, bool)
    if not is_number or not least <= value < float("inf"):  # type: ignore[operator]
        raise InvalidOptionError(option, value, f"a {'whole ' if is_whole else ''}number from {least:g} on")
