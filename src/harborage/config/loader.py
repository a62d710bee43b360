"""`load_config`: a file, the environment over it, and every finding at once; or the whole configuration as a value."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Final

import msgspec

from harborage.config.decoding import Decoder, NotReadableError
from harborage.config.document import MAX_BYTES, Document, MappingNode, Mark, read_document
from harborage.config.environment import overlay, override
from harborage.config.findings import (
    Category,
    ConfigNotFoundError,
    Finding,
    InvalidConfigurationError,
    Notice,
    Origin,
    semantic_finding,
)
from harborage.config.keys import Effect, Path, Place, dotted, places
from harborage.config.rules import broken_rules
from harborage.config.values import Config

FILE_NAME: Final = "harborage.yaml"
OTHER_FILE_NAME: Final = "harbor.yaml"
_DEPRECATED: Final = ("default_max_tokens", "cost_ceiling_usd", "rate_limit_tps")
_LOGGER: Final = logging.getLogger("harborage.config")


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A valid configuration, and where it is from.

    `given` are the keys that the file or the environment sets. `notices` are what its author should know: keys that
    are deprecated, and keys that have no effect in this version.
    """

    config: Config
    file: str
    given: frozenset[Path] = frozenset()
    notices: tuple[Notice, ...] = ()
    origins: Mapping[Path, Origin] = {}

    @property
    def folder(self) -> FilePath:
        """The folder that relative paths in it start from."""
        return FilePath(self.file).parent

    def origin(self, path: Path) -> Origin:
        """Return where the value at `path` comes from: a variable, or a place in the file."""
        found = (self.origins[path[:length]] for length in range(len(path), 0, -1) if path[:length] in self.origins)
        return next(found, Origin(self.file))

    def fatal_notices(self) -> tuple[Notice, ...]:
        """Return the notices with which a server does not start."""
        return tuple(one for one in self.notices if one.is_fatal)


def default_file(folder: FilePath = FilePath()) -> FilePath:
    """Return the file of a folder: `harborage.yaml`, or `harbor.yaml` where only that is there."""
    ours, other = folder / FILE_NAME, folder / OTHER_FILE_NAME
    return other if other.is_file() and not ours.exists() else ours


def load_config(
    file: FilePath | str, *, environ: Mapping[str, str] = os.environ, logger: logging.Logger = _LOGGER
) -> Loaded:
    """Return the configuration of a file with the environment over it; deprecated keys are logged.

    Raises:
        ConfigNotFoundError: there is no such file.
        InvalidConfigurationError: it cannot be read, or something in it is wrong; `findings` has everything.
    """
    loaded = read_config(read_file(file), file=str(file), environ=environ)
    for notice in loaded.notices:
        logger.warning("%s source=%s", notice.message, loaded.file)
    return loaded


def read_file(file: FilePath | str) -> bytes:
    """Return the bytes of a configuration file.

    Raises:
        ConfigNotFoundError, InvalidConfigurationError: it is not there, or cannot be read.
    """
    try:
        with FilePath(file).open("rb") as opened:
            return opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        text = f"there is no file {file}"
        hint = "harborage init makes one"
        raise ConfigNotFoundError([_io_finding(Category.NOT_FOUND, file, text, hint)]) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        text = f"{file} cannot be read: {why}"
        raise InvalidConfigurationError([_io_finding(Category.READ, file, text, "")]) from None


def _io_finding(category: Category, file: FilePath | str, text: str, hint: str) -> Finding:
    return Finding(category=category, message=text, file=str(file), hint=hint, reason=text, source=str(file))


def read_config(data: bytes, *, file: str = FILE_NAME, environ: Mapping[str, str] = {}) -> Loaded:
    """Return the configuration that a text holds, with `environ` over it.

    Raises:
        InvalidConfigurationError: something in it is wrong; `findings` has everything, in the order of the file.
    """
    document, notices = _without_deprecated(read_document(data, file))
    decoder = Decoder(file)
    config = decoder.decode(document, Config)
    config, origins, findings = overlay(config, environ, file)
    findings = [*decoder.findings, *findings]
    if document.root is not None or not decoder.findings:
        for path, reason, hint in broken_rules(config):
            # What could not be read has its default, about which there is nothing to say.
            if not any(path[: len(one)] == one or one[: len(path)] == path for one in decoder.unread):
                origin = _origin(path, origins, decoder.marks, file)
                findings.append(semantic_finding(file, origin, path, reason, hint=hint))
    if findings:
        raise InvalidConfigurationError(sorted(findings, key=lambda one: (one.line == 0, one.line, one.column)))
    given = frozenset((*decoder.marks, *origins))
    marked = {path: Origin(file, mark.line, mark.column) for path, mark in decoder.marks.items()}
    return Loaded(
        config=config,
        file=file,
        given=given,
        notices=(*notices, *_without_effect(config, given, decoder.marks)),
        origins={**marked, **origins},
    )


def _origin(path: Path, origins: Mapping[Path, Origin], marks: Mapping[Path, Mark], file: str) -> Origin:
    for length in range(len(path), 0, -1):
        if (found := origins.get(path[:length])) is not None:
            return found
    mark = marks.get(path)
    return Origin(file) if mark is None else Origin(file, mark.line, mark.column)


def _without_deprecated(document: Document) -> tuple[Document, list[Notice]]:
    """Return the document without the keys that an earlier version had, and a notice for each."""
    root = document.root
    block = root.get("governance") if isinstance(root, MappingNode) else None
    if not isinstance(root, MappingNode) or block is None or not isinstance(block.value, MappingNode):
        return document, []
    old = [entry for entry in block.value.entries if entry.key.text in _DEPRECATED]
    kept = tuple(entry for entry in block.value.entries if entry not in old)
    value = msgspec.structs.replace(block.value, entries=kept)
    entries = tuple(msgspec.structs.replace(one, value=value) if one is block else one for one in root.entries)
    notices = [
        Notice(
            path=f"governance.{entry.key.text}",
            key=("governance", entry.key.text),
            message=f"config.deprecated_field field=governance.{entry.key.text} "
            "replacement=governance.identity_tiers removed_in=v0.x",
            line=entry.key.mark.line,
            column=entry.key.mark.column,
        )
        for entry in old
    ]
    return msgspec.structs.replace(document, root=msgspec.structs.replace(root, entries=entries)), notices


def _without_effect(config: Config, given: frozenset[Path], marks: Mapping[Path, Mark]) -> list[Notice]:
    """A notice for each key that is set to something else than its default, and does nothing in this version."""
    found: list[Notice] = []
    covered: list[Path] = []
    for place in places(config):
        effect = place.info.key.effect
        is_set = place.path in given and place.value != place.info.default
        if effect is Effect.APPLIED or not is_set or any(place.path[: len(one)] == one for one in covered):
            continue
        covered.append(place.path)
        mark = marks.get(place.path, Mark(0, 0))
        found.append(_no_effect(place, mark))
    return found


def _no_effect(place: Place, mark: Mark) -> Notice:
    is_fatal = place.info.key.effect is Effect.REFUSED
    more = ", so a server does not start with it" if is_fatal else ""
    text = f"{dotted(place.path)} has no effect in this version{more}"
    return Notice(
        path=dotted(place.path), key=place.path, message=text, line=mark.line, column=mark.column, is_fatal=is_fatal
    )


def with_overrides(loaded: Loaded, changes: Mapping[str, str]) -> Loaded:
    """Return a configuration with other values, by dotted keys, which keep to the same rules.

    Raises:
        UnknownOptionError: there is no such key, or no text can set it.
        InvalidConfigurationError: a value cannot be read, or breaks a rule.
    """
    paths: dict[str, Path] = {key: tuple(key.split(".")) for key in changes}
    origins = dict.fromkeys(paths.values(), Origin("override"))
    config, findings = loaded.config, []
    for key, text in changes.items():
        try:
            config = override(config, {key: text})
        except NotReadableError as error:
            path = paths[key]
            findings.append(semantic_finding(loaded.file, Origin("override"), path, f"must be {error.wanted}"))
    for broken, reason, hint in broken_rules(config):
        origin = _origin(broken, origins, {}, loaded.file)
        findings.append(semantic_finding(loaded.file, origin, broken, reason, hint=hint))
    if findings:
        raise InvalidConfigurationError(findings)
    given = loaded.given | frozenset(paths.values())
    deprecated = [one for one in loaded.notices if one.message.startswith("config.deprecated_field")]
    notices = (*deprecated, *_without_effect(config, given, {}))
    return msgspec.structs.replace(loaded, config=config, given=given, notices=notices)
