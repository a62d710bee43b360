"""Taking secrets and binary bodies out of a value before it is stored or shown.

`PatternRedactor` is the default driver: nine rules in a fixed order, written here as data. What it returns is always
a fresh copy; its argument is never changed. It knows nothing of events.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from harborage.drivers import DriverTable
from harborage.errors import names_of
from harborage.events.errors import RedactionDepthExceededError, RedactionFailedError, RedactorMissingError

if TYPE_CHECKING:
    from dataclasses import Field

MASK = "***"
DEPTH_LIMIT = 64


@runtime_checkable
class Redactor(Protocol):
    """Makes values safe to store and to show."""

    def redact(self, value: Any) -> Any:
        """Return a copy of `value` without secrets.

        Raises:
            RedactionFailedError: no safe copy can be made. Never: returns part of one.
        """
        ...


KEY_RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("api_key", ("api_key", "apikey", "api-key", "x-api-key")),
    ("password", ("password", "passwd", "pass")),
    ("secret", ("secret", "client_secret", "private_key", "signing_key")),
    ("token", ("token", "access_token", "refresh_token", "id_token")),
    ("cookie", ("cookie", "set-cookie")),
    ("authorization", ("authorization", "authorisation")),
    ("bearer", ("bearer", "bearer_token")),
)
"""Rules that mask the whole value under a key: name, and the keys in lower case."""

RULES = (*(name for name, _ in KEY_RULES), "bearer_in_value", "multimodal")
"""The names of all rules, in the order in which they apply."""

_SECRET_KEYS = frozenset(key for _, keys in KEY_RULES for key in keys)
# An ASCII word boundary with Unicode white space: of the two readings, each time the one that hides more.
# As texts: `re` compiles them for the first value that they are about and keeps them.
_BEARER = r"(?i)(?<![A-Za-z0-9_])Bearer\s+[A-Za-z0-9._\-+/=~]+"
_DATA_URL = r"(?ia)data:([a-z0-9.+\-]+/[a-z0-9.+\-]+)?(;base64)?,([A-Za-z0-9+/=._\-]+)"
# What a JSON text has at least one of, in lower case, if a rule about keys, tokens or data URLs applies to it.
_MARKS = (*(key for key in _SECRET_KEYS if not any(one in key for one in _SECRET_KEYS - {key})), "data:")
_SHORTEST_SECRET = 8
_SECRET_VARIABLES = ("key", "token", "secret", "password", "passwd", "credential", "credentials")
_BASE64_MIN_CHARS = 256
# Order matters: the first header that fits names the type.
_BASE64_HEADERS = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGRiQ", "audio/wav"),
    ("UklGR", "image/webp"),
    ("AAABAA", "image/x-icon"),
    ("SUkqAA", "image/tiff"),
    ("TU0AKgA", "image/tiff"),
    ("//uQ", "audio/mpeg"),
    ("//tA", "audio/mpeg"),
    ("AAAAIGZ0eXA", "video/mp4"),
    ("AAAAGGZ0eXA", "video/mp4"),
)
_QUOTED_HEADERS = tuple(f'"{header}' for header, _ in _BASE64_HEADERS)


def is_reference(value: Any) -> bool:
    """Return whether `value` only points at an artifact; it is shown as it is, even under a secret's name."""
    return getattr(type(value), "__harborage_reference__", False) is True


class PatternRedactor:
    """Masks values under secret-looking keys, bearer tokens in text, and binary bodies in text.

    Keys match whole, ignoring case and surrounding white space: `token` is masked, `tokens` is not. Structs,
    dataclasses and pydantic models become dicts keyed by their aliases. `secrets` of at least 8 characters are masked
    wherever they occur in a text. One redactor may serve all identities.

    The rules touch different things (a masked value matches no later rule), so one walk gives what nine in a row
    would.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # The longest first: one secret may be the beginning of another.
        known = {secret for secret in names_of(secrets, "secrets") if len(secret) >= _SHORTEST_SECRET}
        self._secrets = tuple(sorted(known, key=len, reverse=True))

    def redact(self, value: Any) -> Any:
        """Return a redacted deep copy of `value`.

        Raises:
            RedactionFailedError: nested 64 levels or deeper (`__cause__` is then a RedactionDepthExceededError), or
                an object could not be read.
        """
        try:
            return self._redact_text(value) if type(value) is str else self._walk(value, 0)
        except RedactionDepthExceededError as error:
            raise RedactionFailedError(f"audit: redaction failed: {error}", rule=RULES[0]) from error
        except Exception as error:
            # The text of a foreign error may quote the very secret, so only its kind is passed on.
            raise RedactionFailedError(f"audit: redaction failed: {type(error).__name__}", rule=RULES[0]) from error

    def has_nothing_to_mask(self, text: str) -> bool:
        """Whether a JSON text surely holds nothing that `redact` would replace, found without decoding it.

        False says nothing: a text with escapes, or with the word of a rule in it, has to be decoded and redacted.
        """
        if "\\" in text:
            return False
        if len(text) >= DEPTH_LIMIT and text.count("{") + text.count("[") >= DEPTH_LIMIT:
            return False
        # `any` over `map` is no loop in Python: this is asked about each call of a tool.
        if any(map(text.lower().__contains__, _MARKS)) or any(map(text.__contains__, self._secrets)):
            return False
        return len(text) < _BASE64_MIN_CHARS or not any(header in text for header in _QUOTED_HEADERS)

    def _walk(self, value: Any, depth: int) -> Any:
        if depth >= DEPTH_LIMIT:
            raise RedactionDepthExceededError(DEPTH_LIMIT)
        if isinstance(value, str):
            return self._redact_text(value)
        if value is None or isinstance(value, (int, float, bytes, bytearray)):
            return value
        if is_reference(value):
            return value
        if isinstance(value, Mapping):
            return {self._key(key): self._walk_entry(key, inner, depth + 1) for key, inner in value.items()}
        if isinstance(value, (list, set, frozenset)):
            return [self._walk(inner, depth + 1) for inner in value]
        if isinstance(value, tuple):
            return tuple(self._walk(inner, depth + 1) for inner in value)
        if isinstance(value, msgspec.Raw):
            return self._walk(msgspec.json.decode(value), depth + 1)
        fields = _fields_of(value)
        return value if fields is None else self._walk(fields, depth + 1)

    def _key(self, key: Any) -> Any:
        return self._redact_text(key) if isinstance(key, str) else key

    def _walk_entry(self, key: Any, value: Any, depth: int) -> Any:
        if isinstance(key, str) and key.strip().lower() in _SECRET_KEYS:
            return value if is_reference(value) else MASK
        return self._walk(value, depth)

    def _redact_text(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        # Searching the lower-cased text is far cheaper than running patterns that ignore case over it.
        lowered = text.lower()
        if "bearer" in lowered:
            text = re.sub(_BEARER, f"Bearer {MASK}", text)
        if "data:" in lowered:
            text = re.sub(_DATA_URL, _describe_data_url, text)
        if len(text) >= _BASE64_MIN_CHARS:
            for header, mime in _BASE64_HEADERS:
                if text.startswith(header):
                    return _placeholder(mime, _decoded_size(text))
        return text


def _describe_data_url(match: re.Match[str]) -> str:
    mime, is_base64, body = match.groups()
    return _placeholder(mime or "application/octet-stream", _decoded_size(body) if is_base64 else len(body))


def _decoded_size(body: str) -> int:
    """Return the exact size of well-formed base64, and the nearest guess for other text."""
    return len(body.rstrip("=")) * 3 // 4


def _placeholder(mime: str, size: int) -> str:
    return f"[redacted: {mime} of {size} bytes]"


def _fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a typed object by alias, or None for a type without fields (times, enums, …).

    It knows every type that the encoder can write; the content of any other would pass the redactor.
    """
    kind = type(value)
    if isinstance(value, type):
        return None
    if isinstance(value, msgspec.Struct):
        return _struct_fields(value)
    if hasattr(kind, "__dataclass_fields__"):
        from dataclasses import fields  # loaded already where there is such a value

        return {_dataclass_key(field): getattr(value, field.name) for field in fields(value)}
    if isinstance(models := getattr(kind, "model_fields", None), Mapping):
        known = {_model_key(name, info): getattr(value, name) for name, info in models.items()}
        return known | (getattr(value, "model_extra", None) or {})
    if isinstance(attributes := getattr(kind, "__attrs_attrs__", None), tuple):
        return {attribute.name.lower(): getattr(value, attribute.name) for attribute in attributes}
    return _own_form(value)


def _struct_fields(value: msgspec.Struct) -> dict[str, Any]:
    config = value.__struct_config__
    out: dict[str, Any] = {}
    if config.tag_field is not None:
        out[config.tag_field] = config.tag
    for name, alias in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        out[name.lower() if alias == name else alias] = getattr(value, name)
    return out


def _dataclass_key(field: Field[Any]) -> str:
    alias = field.metadata.get("config") or field.metadata.get("json")
    return str(alias or field.name.lower())


def _model_key(name: str, info: Any) -> str:
    alias = getattr(info, "serialization_alias", None) or getattr(info, "alias", None)
    return str(alias or name.lower())


def _own_form(value: Any) -> dict[str, Any] | None:
    for name in ("__json__", "to_json"):
        method: Callable[[], Any] | None = getattr(value, name, None)
        if callable(method):
            form = method()
            return form if isinstance(form, dict) else {"value": form}
    return None


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """Return the values of environment variables whose names say that they are secrets."""
    return [value for name, value in environ.items() if name.casefold().endswith(_SECRET_VARIABLES)]


def default_redactor() -> PatternRedactor:
    """Return a redactor that also masks the secrets in this process's environment."""
    return PatternRedactor(secrets_of(os.environ))


_ambient: ContextVar[Redactor | None] = ContextVar("harborage_redactor", default=None)


@contextmanager
def with_redactor(redactor: Redactor) -> Iterator[None]:
    """Make `redactor` the ambient one inside the block, then restore the previous one."""
    undo = _ambient.set(redactor)
    try:
        yield
    finally:
        _ambient.reset(undo)


def redactor() -> Redactor | None:
    """Return the ambient redactor, or None."""
    return _ambient.get()


def safe_excerpt(text: str, most: int, by: Redactor | None = None) -> str:
    """Return the first `most` characters of `text`, redacted before it is cut, so that no part of a secret remains.

    `by` is the redactor; without one, the ambient or the default. If it fails, the result gives the text's length only.
    """
    by = redactor() if by is None else by
    try:
        safe = str((default_redactor() if by is None else by).redact(text))
    except Exception:  # noqa: BLE001 - whatever a redactor raises, nothing unredacted may pass
        safe = f"[{len(text)} characters withheld: redaction failed]"
    return safe if len(safe) <= most else f"{safe[: most - 1]}…"


def must_redactor() -> Redactor:
    """Return the ambient redactor.

    Raises:
        RedactorMissingError: none is bound.
    """
    found = _ambient.get()
    if found is None:
        raise RedactorMissingError()
    return found


REDACTOR_DRIVERS: DriverTable[Callable[..., Redactor]] = DriverTable(
    "audit", {"patterns": "harborage.events.redaction:default_redactor"}
)
"""The redactors that configuration may name. Code passes the objects themselves."""
