"""`ConfigReloader`: new values of a running server's configuration, read when its file changes.

Only keys that are marked so take effect without a restart; the others keep their values, and are named. A file that is
wrong changes nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from harborage.clock import SYSTEM_CLOCK, Timers, sleep
from harborage.config.environment import put, settings_of
from harborage.config.findings import ConfigError, Finding
from harborage.config.keys import Form, Path, Shape, dotted, form_of, keys_of
from harborage.config.loader import Loaded, read_config, read_file
from harborage.config.values import Config

EVERY_S: Final = 1.0
"""Seconds between two looks at a file."""


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    """A file that changed and is right.

    `loaded` is what counts from now on: new values of the keys in `changed`, and the old ones of the keys in `waiting`,
    which need a restart.
    """

    loaded: Loaded
    changed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


class ReloadRefused(msgspec.Struct, frozen=True):
    """A file that changed and is wrong, so that everything stays as it was."""

    findings: tuple[Finding, ...]


Reload: TypeAlias = Reloaded | ReloadRefused


class ConfigReloader:
    """Watches the file of a configuration: `async for change in reloader.changes(): …`, until its task is cancelled.

    `current` is what counts now. The environment is the one that is passed in; it does not change.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        environ: Mapping[str, str] = os.environ,
        clock: Timers = SYSTEM_CLOCK,
        every_s: float = EVERY_S,
    ) -> None:
        self.current = loaded
        self._environ = environ
        self._clock = clock
        self._every_s = every_s
        self._newest = loaded.config
        self._seen = _signature(loaded.file)
        self._refused: tuple[Finding, ...] = ()

    async def changes(self) -> AsyncIterator[Reload]:
        """Every change of the file, from the time it was loaded on."""
        while True:
            await sleep(self._clock, self._every_s)
            change = await self.look()
            if change is not None:
                yield change

    async def look(self) -> Reload | None:
        """Read the file now if it changed; None when it did not, or when nothing in it means anything else."""
        seen = _signature(self.current.file)
        if seen == self._seen:
            return None
        try:
            loaded = await asyncio.to_thread(self._read)
        except ConfigError as error:
            self._seen = seen
            is_new = error.findings != self._refused
            self._refused = error.findings
            return ReloadRefused(error.findings) if is_new else None
        self._seen, self._refused = seen, ()
        return self._taken(loaded)

    def _read(self) -> Loaded:
        return read_config(read_file(self.current.file), file=self.current.file, environ=self._environ)

    def _taken(self, loaded: Loaded) -> Reload | None:
        before, self._newest = self._newest, loaded.config
        if before == loaded.config:
            return None
        config, changed = self.current.config, list[str]()
        for setting in settings_of(Config).values():
            new, old = _at(loaded.config, setting.path), _at(config, setting.path)
            if new != old and _reloads(setting.path):
                config = put(config, setting.path, new)
                changed.append(dotted(setting.path))
        waiting = tuple(_differing(config, loaded.config))
        self.current = msgspec.structs.replace(
            self.current, config=config, given=loaded.given, notices=loaded.notices, origins=loaded.origins
        )
        return Reloaded(loaded=self.current, changed=tuple(changed), waiting=waiting)


def _signature(file: str) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced; None when it is not there."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _at(config: msgspec.Struct, path: tuple[str, ...]) -> Any:
    for name in path:
        config = getattr(config, name)
    return config


def _reloads(path: tuple[str, ...]) -> bool:
    block: type[msgspec.Struct] = Config
    for name in path[:-1]:
        block = form_of(keys_of(block)[name].type).item
    return keys_of(block)[path[-1]].key.reloads


def _differing(one: msgspec.Struct, other: msgspec.Struct, path: Path = ()) -> list[str]:
    """The keys, outside of lists and maps, that have other values in two configurations."""
    found: list[str] = []
    for info in keys_of(type(one)).values():
        at, form = (*path, info.name), form_of(info.type)
        left, right = getattr(one, info.name), getattr(other, info.name)
        if left == right:
            continue
        found += _differing(left, right, at) if _is_block(form) else [dotted(at)]
    return found


def _is_block(form: Form) -> bool:
    return form.shape is Shape.STRUCT and not form.may_be_absent
