"""The arguments and results of calls as events hold them: redacted, and cut where they are large.

They are JSON already when an event is made of them, and the bus does not read them again: what passes here is what
subscribers and the record get.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, UnsetType

from harborage import codec
from harborage.events.payloads.tools import MAX_VALUE_BYTES, CutValue
from harborage.events.redaction import PatternRedactor

if TYPE_CHECKING:
    from harborage.events.redaction import Redactor

PREVIEW_CHARS: Final = 256
"""The most characters of a cut value that an event shows."""

MOST_READ_BYTES: Final = 1 << 20
"""Up to this size a value is redacted for its preview; a larger one is only measured, so that no event costs more."""

_BYTES_PER_CHAR: Final = 4

_log = logging.getLogger(__name__)


class ShownValue(msgspec.Struct, frozen=True, gc=False):
    """A value as an event holds it: as redacted JSON, or cut; neither if there is none that may be shown."""

    json: msgspec.Raw | UnsetType = UNSET
    cut: CutValue | UnsetType = UNSET
    masked: bool | UnsetType = UNSET


NOT_SHOWN: Final = ShownValue()
"""Stands for no value, and for one that is no JSON or could not be redacted."""


def shown_value(redactor: Redactor, data: bytes, artifact_id: str = "") -> ShownValue:
    """Return what an event may show of the JSON `data`; `artifact_id` names the artifact that has all of it.

    Never: raises. A value that cannot be redacted is not shown, which is logged.
    """
    if len(data) > MOST_READ_BYTES:
        return ShownValue(cut=_cut(f"[{len(data)} bytes, not shown]", len(data), artifact_id))
    try:
        safe, is_masked = _redacted(redactor, data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NOT_SHOWN  # no JSON: its tool refuses it, and says why
    except Exception as error:  # noqa: BLE001 - whatever a redactor raises, nothing unredacted may pass
        _log.warning("a value is not shown in its event: it could not be redacted (%s)", type(error).__name__)
        return NOT_SHOWN
    masked = True if is_masked else UNSET
    if len(safe) <= MAX_VALUE_BYTES:
        return ShownValue(msgspec.Raw(safe), UNSET, masked)
    preview = safe[: PREVIEW_CHARS * _BYTES_PER_CHAR].decode(errors="ignore")
    if len(preview) > PREVIEW_CHARS:
        preview = f"{preview[: PREVIEW_CHARS - 1]}…"
    return ShownValue(cut=_cut(preview, len(data), artifact_id), masked=masked)


def _redacted(redactor: Redactor, data: bytes) -> tuple[bytes, bool]:
    """Return JSON without secrets, on one line, and whether something in it was replaced; the same bytes if they may
    be shown as they are."""
    text = data.decode()
    # A redactor that is derived from the default one may have rules of its own.
    is_known = type(redactor) is PatternRedactor and "\n" not in text and "\r" not in text
    is_clean = is_known and redactor.has_nothing_to_mask(text)  # type: ignore[attr-defined]
    if is_clean and len(data) > MAX_VALUE_BYTES:
        return data, False
    value = msgspec.json.decode(data)
    if is_clean:
        return data, False
    # Written again even if nothing changed: of a key that is there twice, the redactor has seen one value only.
    safe = redactor.redact(value)
    return codec.encode(safe), safe != value


def _cut(preview: str, size: int, artifact_id: str) -> CutValue:
    return CutValue(preview, size, artifact_id or UNSET)
