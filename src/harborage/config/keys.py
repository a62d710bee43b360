"""What is known of each key of a configuration: its type, default, rules and text, read from the structs themselves.

The loader, the overlay of the environment, the rules, the masked dump, the JSON Schema and the reference page all walk
the same table, so that none of them can forget a key.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from harborage.secrets import Secret


class Effect(StrEnum):
    """What a key does in this version: it is applied, nothing (a notice says so), or a server refuses to start."""

    APPLIED = "applied"
    NOTED = "noted"
    REFUSED = "refused"


class Key(msgspec.Struct, frozen=True):
    """What is said of one key beside its type.

    `text` is one line for its reader. Numbers and durations (in seconds) are at least `least`, above `above`, below
    `below`; `is_required` refuses an empty text or list; `check` returns what is wrong with a value, or "". `hint` says
    how to repair it. `effect` is what it does in this version; `reloads` says that a running server takes a new value.
    """

    text: str
    least: float | None = None
    above: float | None = None
    below: float | None = None
    is_required: bool = False
    check: Callable[[Any], str] | None = None
    hint: str = ""
    effect: Effect = Effect.APPLIED
    reloads: bool = False


_NO_KEY: Final = Key("")


class KeyInfo(msgspec.Struct, frozen=True):
    """One field of a struct of the configuration. `type` is without its annotations."""

    name: str
    type: Any
    key: Key
    default: Any


class Named(msgspec.Struct, frozen=True):
    """One step of a path: the name of an entry of a map, which operators choose themselves."""

    name: str


Path: TypeAlias = tuple[str | int | Named, ...]
"""The place of a value: keys, places in lists, and names of entries."""


def dotted(path: Path) -> str:
    """Return a path as texts show it: `tools.custom[0].name`, `llm.model_profiles["gpt-5"].max_retries`."""
    text = ""
    for step in path:
        match step:
            case Named(name):
                text += f'["{name}"]'
            case int():
                text += f"[{step}]"
            case _:
                text += f".{step}" if text else step
    return text


@cache
def keys_of(struct: type[msgspec.Struct]) -> Mapping[str, KeyInfo]:
    """Return the fields of a struct of the configuration, by name."""
    hints = get_type_hints(struct, include_extras=True)
    made = {}
    for field in msgspec.structs.fields(struct):
        type_, key = hints[field.name], _NO_KEY
        if get_origin(type_) is Annotated:
            type_, *notes = get_args(type_)
            key = next((note for note in notes if isinstance(note, Key)), _NO_KEY)
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        made[field.name] = KeyInfo(field.name, type_, key, default)
    return made


class Shape(StrEnum):
    """The form that the value of a key has."""

    STRUCT = "struct"
    LIST = "list"
    MAP = "map"
    ANY = "any"
    SECRET = "secret"
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    DURATION = "duration"
    TEXT = "text"


class Form(msgspec.Struct, frozen=True):
    """A type, taken apart: `item` is the type of the entries of a list or map, or the struct itself.

    `choices` are the texts that a text may be. `may_be_absent` is true of what has None as a value of its own.
    """

    shape: Shape
    item: Any = None
    choices: tuple[str, ...] = ()
    may_be_absent: bool = False


_PLAIN: Final = {
    Secret: Shape.SECRET,
    bool: Shape.BOOL,
    int: Shape.INT,
    float: Shape.FLOAT,
    timedelta: Shape.DURATION,
    str: Shape.TEXT,
    Any: Shape.ANY,
}


@cache
def form_of(type_: Any) -> Form:
    """Return the form of the values of a type."""
    if type_ in _PLAIN:
        return Form(_PLAIN[type_])
    origin, args = get_origin(type_), get_args(type_)
    if origin in (Union, types.UnionType):
        inner = form_of(next(one for one in args if one is not types.NoneType))
        return msgspec.structs.replace(inner, may_be_absent=True)
    if origin is Literal:
        return Form(Shape.TEXT, choices=args)
    if origin is tuple:
        return Form(Shape.LIST, item=args[0])
    if origin is dict:
        return Form(Shape.MAP, item=args[1])
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return Form(Shape.STRUCT, item=type_)
    raise TypeError(f"{type_!r} is no type of a configuration key")


class Place(msgspec.Struct, frozen=True):
    """One value of a configuration, and what is known of its key."""

    path: Path
    info: KeyInfo
    value: Any

    @property
    def form(self) -> Form:
        """The form of its type."""
        return form_of(self.info.type)


def places(struct: msgspec.Struct, path: Path = ()) -> Iterator[Place]:
    """Every key that a configuration has a value for, blocks before what is in them, lists and maps entered."""
    for info in keys_of(type(struct)).values():
        value, at = getattr(struct, info.name), (*path, info.name)
        yield Place(at, info, value)
        yield from _below(value, form_of(info.type), at)


def _below(value: Any, form: Form, path: Path) -> Iterator[Place]:
    if value is None:
        return
    match form.shape:
        case Shape.STRUCT:
            yield from places(value, path)
        case Shape.LIST:
            for index, one in enumerate(value):
                yield from _below(one, form_of(form.item), (*path, index))
        case Shape.MAP:
            for name, one in value.items():
                yield from _below(one, form_of(form.item), (*path, Named(name)))
        case _:
            return


def leaves(struct: type[msgspec.Struct], path: Path = ()) -> Iterator[tuple[Path, KeyInfo]]:
    """Every key that is no block itself, in the order of the structs; in lists it is `[0]`, in maps `["NAME"]`."""
    for info in keys_of(struct).values():
        at, form = (*path, info.name), form_of(info.type)
        while form.shape in (Shape.LIST, Shape.MAP) and form.item is not None:
            inner = form_of(form.item)
            if inner.shape not in (Shape.STRUCT, Shape.LIST, Shape.MAP):
                break
            at, form = (*at, 0 if form.shape is Shape.LIST else Named("NAME")), inner
        if form.shape is Shape.STRUCT:
            yield from leaves(form.item, at)
        else:
            yield at, info
