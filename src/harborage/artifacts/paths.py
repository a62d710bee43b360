"""Where an artifact lies below the store's folder: `<tenant>/<user>/<session>/<task or _>/<namespace>/<id>`.

Pure: names in, names out. Every name a caller can choose is escaped here, so that two different names never share a
file and none can leave the folder.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from harborage.artifacts.errors import UnsafePathError

if TYPE_CHECKING:
    from harborage.artifacts.values import ArtifactScope

__all__ = ["META_SUFFIX", "TEMP_FOLDER", "TEMP_PREFIX", "namespace_of", "scope_parts", "segment"]

META_SUFFIX = ".meta.json"
TEMP_FOLDER = ".tmp"  # no escaped name begins with a dot, so no tenant can be called this
TEMP_PREFIX = "tmp."

_NO_TASK = "_"
_SEPARATORS = re.compile(r"[/\\]")
# File systems allow 255 bytes, of which the suffix needs ten. A shortened name is longer than any other can be, so the
# two kinds never meet.
_LONGEST = 180
_CUT = 160
_HASH_DIGITS = 40


def segment(name: str) -> str:
    """`name` as one safe path component; different names give different components, and only the empty one is empty.

    Raises:
        UnsafePathError: taken as a path, the name would climb (`..`) or stay (`.`).
    """
    if any(part in (".", "..") for part in _SEPARATORS.split(name)):
        raise UnsafePathError(
            f"{name[:80]!r} would lead out of the store's folder; use a name without '.' or '..' parts"
        )
    safe = quote(name, safe="@+=,", errors="surrogatepass")
    if safe == _NO_TASK or safe.startswith("."):
        safe = f"%{ord(safe[0]):02X}{safe[1:]}"
    if len(safe) <= _LONGEST:
        return safe
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe[:_CUT]}~{digest[:_HASH_DIGITS]}"


def scope_parts(scope: ArtifactScope) -> tuple[str, str, str, str]:
    """The four folder names of a scope; no task has a name of its own, an empty tenant, user or session has none.

    Raises:
        UnsafePathError: a part would lead out of the folder.
    """
    task = segment(scope.task_id) or _NO_TASK
    return segment(scope.tenant_id), segment(scope.user_id), segment(scope.session_id), task


def namespace_of(artifact_id: str) -> str:
    """The namespace an id begins with: everything up to its last underscore."""
    return artifact_id.rpartition("_")[0]
