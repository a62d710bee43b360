"""`Secret`: a value that no output shows, written in place or as a reference.

A reference is `env:NAME` (also `env.NAME`), `file:PATH`, or `PROVIDER:PATH` with a provider that a package brings under
the entry point `harborage.secrets`: a function of the path that returns the value. It is read when it is needed, so
that a configuration is valid on a machine that does not have it.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.errors import HarborageError, InvalidOptionError

MASK: Final = "***"
ENTRY_POINTS: Final = "harborage.secrets"

_MOST_BYTES: Final = 64 * 1024
_KEPT_S: Final = 60.0
_SHORTEST: Final = 4
_ENVIRONMENT: Final = re.compile(r"env[:.](.*)", re.DOTALL)
_SCHEME: Final = re.compile(r"([a-z][a-z0-9_-]*):(?!//)(.+)", re.DOTALL)


class SecretMissingError(HarborageError):
    """A reference to a secret leads nowhere. `reference` is what the configuration says; it holds no secret."""

    def __init__(self, reference: str = "", why: str = "") -> None:
        self.reference = reference
        super().__init__(f"the secret {reference} is missing: {why}" if reference else "")


class Secret:
    """A secret of the configuration; its text, its repr and its JSON form are `***`, or empty when it is.

    Two are equal when they were written alike.
    """

    __slots__ = ("_written",)

    def __init__(self, written: str = "") -> None:
        self._written = written

    def __repr__(self) -> str:
        return f"Secret({str(self)!r})"

    def __str__(self) -> str:
        return MASK if self._written else ""

    def __bool__(self) -> bool:
        return bool(self._written.strip())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._written == self._written

    def __hash__(self) -> int:
        return hash(self._written)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not copied out of the process; pass its reference")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _memo: object) -> Secret:
        return self

    @property
    def is_reference(self) -> bool:
        """Whether it leads to a value elsewhere, instead of being written in place."""
        return _is_reference(self._written.strip())

    def mask_in(self, text: str) -> str:
        """Return `text` with this secret masked wherever it stands in it, as it was written."""
        return text.replace(self._written, MASK) if self else text

    def reveal(self, environ: Mapping[str, str] = os.environ, *, folder: Path = Path()) -> str:
        """Return the value, read from where the reference leads; files are relative to `folder`.

        Raises:
            SecretMissingError: there is no such variable, file or value, or it is empty.
        """
        if not self:
            return ""
        written = self._written.strip()
        if found := _ENVIRONMENT.fullmatch(written):
            return _checked(written, environ.get(found[1].strip(), ""), "the variable is not set, or empty")
        if written.startswith("file:"):
            return _checked(
                written, _read(written, folder / written.removeprefix("file:").strip()), "the file is empty"
            )
        if (found := _SCHEME.fullmatch(written)) and (provider := _provider(found[1])) is not None:
            try:
                value = provider(found[2])
            except Exception as error:
                raise SecretMissingError(written, f"its provider raised {type(error).__name__}") from error
            return _checked(written, value, "its provider returned nothing")
        return self._written


def secret(reference: str) -> Secret:
    """Return the secret that a reference leads to, such as `secret("env:CRM_TOKEN")`; it is read when it is needed.

    Raises:
        InvalidOptionError: it is no reference. A secret that stands in the code would be in every copy of it.
    """
    if not _is_reference(reference):
        text = 'secret: give a reference, such as secret("env:CRM_TOKEN") or secret("file:/run/crm"), not the value'
        raise InvalidOptionError("secret", "", message=text)
    return Secret(reference)


def _is_reference(given: object) -> bool:
    return isinstance(given, str) and bool(_ENVIRONMENT.fullmatch(given) or _SCHEME.fullmatch(given))


def _checked(reference: str, value: str, why: str) -> str:
    if not value.strip():
        raise SecretMissingError(reference, why)
    return value.strip()


def _read(reference: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        why = getattr(error, "strerror", "") or f"the file cannot be read: {type(error).__name__}"
        raise SecretMissingError(reference, why) from None


def _provider(name: str) -> Callable[[str], str] | None:
    """Return the function that a package brings for references that begin with `name`; None if there is none."""
    found = tuple(entry_points(group=ENTRY_POINTS, name=name))
    return found[0].load() if found else None


class SecretReader:
    """Reads secrets when they are needed, keeps each for a minute at most, and masks in texts those that it has read.

    `folder` is where files of references are looked for that have no absolute path.
    """

    def __init__(
        self, *, environ: Mapping[str, str] = os.environ, folder: Path = Path(), clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._environ = environ
        self._folder = folder
        self._clock = clock
        self._read: dict[Secret, tuple[str, float]] = {}
        self._masks: dict[str, tuple[str, ...]] = {}

    def reveal(self, secret: Secret) -> str:
        """Return the value of a secret.

        Raises:
            SecretMissingError: its reference leads nowhere.
        """
        now = self._clock.now().timestamp()
        found = self._read.get(secret)
        if found is None or not 0 <= now - found[1] < _KEPT_S:
            found = self._read[secret] = (secret.reveal(self._environ, folder=self._folder), now)
            self.mask_also(found[0])
        return found[0]

    def mask_also(self, value: str) -> None:
        """Mask a value that is no reference of this reader, such as a token that a server gave, from here on."""
        if len(value) >= _SHORTEST and value not in self._masks:
            self._masks[value] = tuple(sorted(_forms(value), key=len, reverse=True))

    @property
    def has_read(self) -> bool:
        """Whether there is anything to mask."""
        return bool(self._masks)

    def mask(self, text: str) -> str:
        """Return `text` without the secrets that were read: plain, in JSON, URL-quoted, and in base64."""
        for forms in self._masks.values():
            for one in forms:
                if one in text:
                    text = text.replace(one, MASK)
        return text

    def mask_bytes(self, data: bytes) -> bytes:
        """The same of bytes that are text in UTF-8."""
        for forms in self._masks.values():
            for one in forms:
                if (plain := one.encode()) in data:
                    data = data.replace(plain, MASK.encode())
        return data


def _forms(value: str) -> set[str]:
    """The ways in which a peer may write a value."""
    raw = value.encode()
    found = {value, quote(value, safe=""), quote(value), quote_plus(value), json.dumps(value)[1:-1]}
    for shift in range(3):
        # In a longer text the value may begin at any of three places of a group of base64.
        begin, end = (0, 2, 3)[shift], -(len(raw) + shift) % 3
        for encoded in (b64encode(bytes(shift) + raw), urlsafe_b64encode(bytes(shift) + raw)):
            text = encoded.decode().rstrip("=")
            found.add(text[begin : len(text) - 1 if end else len(text)])
            found.add(encoded.decode()[begin:])
    return {one for one in found if len(one) >= _SHORTEST}
