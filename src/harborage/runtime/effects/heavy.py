"""Heavy results: what the planner sees of a tool result that is too large to show, and where the rest is kept.

A result is encoded once. The same bytes are measured, previewed, stored and handed on, so a large result costs one
encoding however many readers it has. Reducing one never fails a call.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.artifacts import ArtifactScope, ArtifactStore
from harborage.artifacts.media import kept_media
from harborage.clock import SYSTEM_CLOCK, Clock, timers_of
from harborage.events import NOT_SHOWN, ShownValue, shown_value
from harborage.planner import RequestPause
from harborage.runtime.effects.user_code import STORE_TIMEOUT_S, bounded
from harborage.tools.inputs import InputNeeded

if TYPE_CHECKING:
    from harborage.events import Redactor
    from harborage.identity import Quadruple
    from harborage.tools import ToolResult

DEFAULT_HEAVY_THRESHOLD = 32 * 1024
"""Bytes of JSON from which a result is heavy, by default."""
PREVIEW_FIELD_MAX_BYTES = 1024
"""Bytes of JSON up to which a preview keeps a field as it is."""
PREVIEW_TOTAL_MAX_BYTES = 16 * 1024
"""Bytes of a preview, without the mark at its cut end."""

_CUT = "...(truncated)"
_Fields = dict[str, msgspec.Raw]
_fields = msgspec.json.Decoder(_Fields)


class Projection(msgspec.Struct, frozen=True):
    """A result as it was (`raw`), as the planner sees it (`llm`), and as JSON (`encoded`).

    `encoded` is empty for a result that has no JSON form; then `llm` has the reason, and `raw` cannot be stored.
    """

    raw: Any
    llm: Any
    encoded: bytes = b""
    is_heavy: bool = False


def heavy_truncation_summary(tool: str, encoded: bytes, artifact_ref: str = "") -> dict[str, Any]:
    """Return the summary that replaces a heavy result.

    Its keys are `tool`, `size_bytes`, `truncated`, `preview`, and `artifact_ref` if the result is stored. This shape is
    a contract: prompts recognise a heavy result by these keys.
    """
    summary = {"tool": tool, "size_bytes": len(encoded), "truncated": True, "preview": _preview(encoded)}
    if artifact_ref:
        summary["artifact_ref"] = artifact_ref
    return summary


def is_kept_summary(value: Any) -> bool:
    """Whether a value is the summary of a heavy result that is kept as an artifact."""
    return isinstance(value, dict) and value.get("truncated") is True and {"artifact_ref", "preview"} <= value.keys()


def heavy_answer(envelope: Any) -> dict[str, Any] | None:
    """Return the summary that replaces the heavy answer of an ended task in its decoded result; None for any other."""
    answer = envelope.get("answer") if isinstance(envelope, dict) else None
    if not isinstance(answer, str) or not answer.startswith("{"):
        return None
    try:
        summary = codec.decode(answer.encode())
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return summary if is_kept_summary(summary) else None


def project(tool: str, value: Any, *, threshold: int = DEFAULT_HEAVY_THRESHOLD, exempt: bool = False) -> Projection:
    """The projection of a result, a heavy one without a reference; `exempt` results are heavy from twice the size on.

    Tools that read artifacts are exempt: reducing a window that they fetch would only make another artifact to fetch.
    """
    try:
        encoded = codec.encode(value, "observation")
    except codec.UnserializableError as error:
        return Projection(value, {"tool": tool, "error": _say_why_not(tool, value, error)})
    limit = 2 * threshold if exempt else threshold
    if value is None or len(encoded) < limit:
        return Projection(value, value, encoded)
    return Projection(value, heavy_truncation_summary(tool, encoded), encoded, is_heavy=True)


def _say_why_not(tool: str, value: Any, error: codec.UnserializableError) -> str:
    if error.field == "observation" and error.reason == f"{type(value).__name__} has no JSON form":
        return f"{tool} returned {type(value).__name__}; annotate the result or return JSON"
    return f"observation could not be JSON-encoded: {error}"


async def project_observation(
    tool: str,
    value: Any,
    *,
    who: Quadruple,
    store: ArtifactStore | None,
    threshold: int = DEFAULT_HEAVY_THRESHOLD,
    logger: logging.Logger,
    exempt: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> Projection:
    """The projection of a result of the run `who`; a heavy one is kept in `store` and names its artifact.

    Without a store, or when the store fails, the summary has no reference and a warning is logged.

    Never: raises because of the value or the store.
    """
    projection = project(tool, value, threshold=threshold, exempt=exempt)
    if not projection.is_heavy:
        return projection
    return await kept(projection, tool, who=who, store=store, logger=logger, clock=clock)


async def kept(
    projection: Projection,
    tool: str,
    *,
    who: Quadruple,
    store: ArtifactStore | None,
    logger: logging.Logger,
    clock: Clock = SYSTEM_CLOCK,
) -> Projection:
    """Return a heavy projection with its result in `store`; unchanged, with a warning, if the store fails.

    Never: raises because of the store.
    """
    note = {
        "action": "heavy_result.cut",
        "tool": tool,
        "size_bytes": len(projection.encoded),
        "run_id": who.run_id,
    }
    if store is None:
        logger.warning("a heavy tool result is cut and not kept: there is no artifact store", extra=note)
        return projection
    try:
        kept = store.put_bytes(
            ArtifactScope.of(who),
            projection.encoded,
            mime_type="application/json",
            filename=f"tool-result-{tool}.json",
            source=_source(tool, who, clock),
        )
        on_left = partial(_was_left, logger, note)
        artifact_id = (await bounded(kept, STORE_TIMEOUT_S, clock=timers_of(clock), on_left=on_left)).id
    except Exception:
        logger.warning("a heavy tool result is cut and not kept: the store failed", extra=note, exc_info=True)
        return projection
    return replace(projection, llm={**projection.llm, "artifact_ref": artifact_id})


async def media_kept(
    value: Any, tool: str, who: Quadruple, store: ArtifactStore | None, *, clock: Clock, logger: logging.Logger
) -> Any:
    """The result of a tool with its pictures, sounds and files as artifacts.

    Raises:
        MediaError: there is no store to keep them in.
        TimeLimitError: the store takes too long.
        Exception: the store failed.
    """
    source = {"source": "tool", "tool": tool, "run_id": who.run_id}
    keeping = kept_media(value, store, ArtifactScope.of(who), source)
    on_left = partial(_was_left, logger, {"tool": tool, "run_id": who.run_id})
    return await bounded(keeping, STORE_TIMEOUT_S, clock=timers_of(clock), on_left=on_left)


def _was_left(logger: logging.Logger, note: dict[str, Any], _: BaseException | None) -> None:
    logger.warning("the artifact store was abandoned: it ignored its cancellation", extra=note)


def _source(tool: str, who: Quadruple, clock: Clock) -> dict[str, Any]:
    created = clock.now().astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {
        "source": "tool",
        "producer": "dev-tool-executor",
        "tool": tool,
        "run_id": who.run_id,
        "created_at": created,
    }


def _preview(encoded: bytes) -> str:
    """The result field by field with the large ones left out, or its beginning when it is not an object."""
    fields = _object(encoded)
    if fields is None:
        return _cut(encoded)
    if len(fields) == 1:
        inner = _object(memoryview(next(iter(fields.values()))))
        if inner is not None and len(inner) > 1:
            fields = inner
    return _cut(codec.encode({name: _kept(fields[name]) for name in sorted(fields)}))


def _object(encoded: bytes | memoryview) -> _Fields | None:
    try:
        return _fields.decode(encoded)
    except msgspec.DecodeError:
        return None


def _kept(field: msgspec.Raw) -> msgspec.Raw | str:
    size = memoryview(field).nbytes  # without a copy of what may be most of the result
    return field if size <= PREVIEW_FIELD_MAX_BYTES else f"[omitted: {size} bytes]"


def _cut(encoded: bytes) -> str:
    if len(encoded) <= PREVIEW_TOTAL_MAX_BYTES:
        return encoded.decode(errors="replace")
    # A character that the cut falls into is left out whole.
    return encoded[:PREVIEW_TOTAL_MAX_BYTES].decode(errors="ignore") + _CUT


class Ending:
    """What becomes of the result of one call: its projection, made once, and what its event shows of it."""

    __slots__ = ("_finish", "_redactor", "projection")

    def __init__(self, finish: Callable[[ToolResult], Awaitable[Projection]], redactor: Redactor | None) -> None:
        self._finish = finish
        self._redactor = redactor
        self.projection: Projection | None = None

    async def show(self, result: ToolResult) -> ShownValue:
        if isinstance(result.value, RequestPause | InputNeeded):
            return NOT_SHOWN
        projection = self.projection = await self._finish(result)
        if self._redactor is None or not projection.encoded:
            return NOT_SHOWN
        artifact_id = projection.llm.get("artifact_ref", "") if projection.is_heavy else ""
        return shown_value(self._redactor, projection.encoded, artifact_id)
