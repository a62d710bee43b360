"""What is wrong with a configuration: findings with their places, and the error that carries them all."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from harborage.config.keys import Path, dotted
from harborage.errors import HarborageError, NotFoundError


class Category(StrEnum):
    """The kind of a finding: the text, the meaning, a missing file, or one that cannot be read."""

    PARSE = "config.parse"
    SEMANTIC = "config.semantic"
    NOT_FOUND = "io.not_found"
    READ = "io.read"

    @property
    def is_io(self) -> bool:
        """Whether the file itself could not be had."""
        return self in (Category.NOT_FOUND, Category.READ)


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong with a configuration.

    `message` is the whole sentence with the place in it, `reason` what is wrong alone. Lines and columns count from 1;
    0 means that the file does not have the key, or that an environment variable set it. `source` is the file or the
    variable.
    """

    category: Category
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    hint: str = ""
    reason: str = ""
    source: str = ""
    path: str = ""

    @property
    def place(self) -> str:
        """The place that an editor or a terminal can jump to."""
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}:{self.column}"


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that its author should know of a configuration that is valid.

    `key` is its path in parts. `is_fatal` says that a server does not start with it in this version.
    """

    path: str
    message: str
    key: Path
    line: int = 0
    column: int = 0
    is_fatal: bool = False


class ConfigError(HarborageError):
    """A configuration cannot be used. `findings` are all that is wrong with it, in the order of the file."""

    def __init__(self, findings: Sequence[Finding] = ()) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(_line(one) for one in self.findings))


class InvalidConfigurationError(ConfigError):
    """The text or a value of a configuration is wrong."""


class ConfigNotFoundError(ConfigError, NotFoundError):
    """There is no such configuration file."""

    def __init__(self, findings: Sequence[Finding] = ()) -> None:
        ConfigError.__init__(self, findings)
        self.id = findings[0].file if findings else ""


def _line(finding: Finding) -> str:
    return f"{finding.message} ({finding.hint})" if finding.hint else finding.message


def parse_finding(file: str, line: int, column: int, reason: str, *, hint: str = "") -> Finding:
    """A finding about the text of a file."""
    return Finding(
        category=Category.PARSE,
        message=f"{file}: parse: [{line}:{column}] {reason}",
        file=file,
        line=line,
        column=column,
        hint=hint,
        reason=reason,
        source=file,
    )


class Origin(msgspec.Struct, frozen=True):
    """Where a value comes from: the file or a variable, and its line and column in the file."""

    source: str
    line: int = 0
    column: int = 0


def semantic_finding(file: str, origin: Origin, path: Path, reason: str, *, hint: str = "") -> Finding:
    """A finding about the meaning of a value."""
    return Finding(
        category=Category.SEMANTIC,
        message=f"config.{dotted(path)}: {reason} (source: {origin.source})",
        file=file,
        line=origin.line,
        column=origin.column,
        hint=hint,
        reason=reason,
        source=origin.source,
        path=dotted(path),
    )
