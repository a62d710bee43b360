"""The environment over a file: `HARBORAGE_STATE_DSN` sets `state.dsn`.

A variable sets one plain key: text, secret, boolean, number, duration, or a list of texts with commas. One that is set
to nothing counts. Where a variable is not set, that with the prefix `HARBOR_` is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from harborage.config.decoding import NotReadableError, read_text
from harborage.config.findings import Finding, Origin, semantic_finding
from harborage.config.keys import Form, Path, Shape, dotted, form_of, keys_of
from harborage.errors import UnknownOptionError

S = TypeVar("S", bound=msgspec.Struct)

PREFIXES: Final = ("HARBORAGE_", "HARBOR_")
_LIKE: Final = 0.9
_CLOSED: Final = (Shape.STRUCT, Shape.MAP, Shape.ANY)


class Setting(NamedTuple):
    """A key that stands in no list and no map, and whether a text can set it."""

    path: tuple[str, ...]
    form: Form
    is_settable: bool


@cache
def settings_of(struct: type[msgspec.Struct]) -> Mapping[str, Setting]:
    """Return every key that a variable may name, by the variable's name without its prefix."""
    return {"_".join(one.path).upper(): one for one in _settings(struct, ())}


def _settings(struct: type[msgspec.Struct], path: tuple[str, ...]) -> Iterator[Setting]:
    for info in keys_of(struct).values():
        at, form = (*path, info.name), form_of(info.type)
        if form.shape is Shape.STRUCT and not form.may_be_absent:
            yield from _settings(form.item, at)
            continue
        is_text_list = form.shape is Shape.LIST and form_of(form.item).shape is Shape.TEXT
        is_plain = form.shape not in (*_CLOSED, Shape.LIST) and not form.may_be_absent
        yield Setting(at, form, is_plain or is_text_list)


def overlay(config: S, environ: Mapping[str, str], file: str) -> tuple[S, dict[Path, Origin], list[Finding]]:
    """Return the configuration with what the environment sets, where each such key comes from, and what is wrong."""
    settings = settings_of(type(config))
    origins: dict[Path, Origin] = {}
    findings = [*_mistyped(environ, settings, file)]
    for name, setting in settings.items():
        variable = next((prefix + name for prefix in PREFIXES if prefix + name in environ), "")
        if not variable:
            continue
        origin = Origin(variable)
        try:
            config = put(config, setting.path, _read(environ[variable], setting))
            origins[setting.path] = origin
        except NotReadableError as error:
            findings.append(semantic_finding(file, origin, setting.path, f"must be {error.wanted}"))
        except _NotSettableError:
            reason = f"cannot be set by {variable}"
            findings.append(
                semantic_finding(file, origin, setting.path, reason, hint=f"set it in {file or 'the file'}")
            )
    return config, origins, findings


class _NotSettableError(Exception):
    """No text can stand for the value."""


def _read(text: str, setting: Setting) -> Any:
    if not setting.is_settable:
        raise _NotSettableError
    if setting.form.shape is Shape.LIST:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return read_text(text if setting.form.shape in (Shape.TEXT, Shape.SECRET) else text.strip(), setting.form)


def put(config: S, path: tuple[str, ...], value: Any) -> S:
    """Return a configuration with another value at `path`."""
    name, *rest = path
    inner = value if not rest else put(getattr(config, name), tuple(rest), value)
    return msgspec.structs.replace(config, **{name: inner})


def override(config: S, changes: Mapping[str, str]) -> S:
    """Return a configuration with other values, by dotted keys; texts are read as those of the environment.

    Raises:
        UnknownOptionError: there is no such key, or no text can set it.
        NotReadableError: a text has another form.
    """
    known = {dotted(one.path): one for one in settings_of(type(config)).values()}
    for key, text in changes.items():
        setting = known.get(key)
        if setting is None or not setting.is_settable:
            found = get_close_matches(key, known, n=1)
            hint = "a text cannot set it" if setting else f"did you mean {found[0]}?" if found else ""
            raise UnknownOptionError(key, "…", hint)
        config = put(config, setting.path, _read(text, setting))
    return config


def _mistyped(environ: Mapping[str, str], settings: Mapping[str, Setting], file: str) -> Iterator[Finding]:
    """Variables that begin like one of ours and are very nearly one."""
    prefix = PREFIXES[0]
    for variable in sorted(environ):
        name = variable.removeprefix(prefix)
        if name == variable or name in settings:
            continue
        found = get_close_matches(name, settings, n=1, cutoff=_LIKE)
        if found:
            reason = f"there is no key for {variable}"
            yield semantic_finding(
                file, Origin(variable), settings[found[0]].path, reason, hint=f"did you mean {prefix}{found[0]}?"
            )
