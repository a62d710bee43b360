"""What the model is shown of a step's outcome: one non-empty text for each call that was made. Pure.

A heavy result is kept outside the conversation. The wrapper that a dispatcher puts around it is recognised by its keys;
the model sees an excerpt and how to fetch the rest, never the wrapper.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.llm import ArtifactStub
from harborage.planner.decisions import ParallelBranchObservation, ParallelObservation, parallel_observation
from harborage.planner.react.tools import ARTIFACT_FETCH_TOOL_NAME
from harborage.planner.text import one_line, render_value, truncate

if TYPE_CHECKING:
    from harborage.planner.trajectory import Step

_WRAPPER: Final = frozenset(
    {"tool", "size_bytes", "truncated", "preview", "artifact_ref", "mime", "summary", "hash", "fetch"}
)
_NO_EXCERPT: Final = "(no excerpt)"
_OMITTED: Final = '"[omitted:'


def render_heavy_result(value: Any, *, can_fetch: bool = True) -> str | None:
    """Return the excerpt of a heavy result and how to fetch the rest; None when `value` is not one.

    Without `can_fetch` the model has no tool to fetch with, so the text only names where the rest is.
    """
    match value:
        case ArtifactStub():
            footer = _render_footer(value.ref, value.size_bytes, value.mime, can_fetch)
            return f"{one_line(value.summary) or _NO_EXCERPT} {footer}"
        case dict() if _is_wrapper(value):
            return _render_wrapper(value, can_fetch)
        case _:
            return None


def render_fetch_call(ref: str) -> str:
    """Return the call that reads an artifact, as a model would write it."""
    return f"{ARTIFACT_FETCH_TOOL_NAME}(ref={codec.encode_text(ref)})"


def _is_wrapper(value: dict[Any, Any]) -> bool:
    # A tool's own result may have a `preview`, too; only a wrapper, or what holds nothing else, is replaced.
    if not (_get_text(value, "preview") or _get_text(value, "artifact_ref")):
        return False
    return value.get("truncated") is True or value.keys() <= _WRAPPER


def _render_wrapper(value: dict[Any, Any], can_fetch: bool) -> str:
    excerpt, ref = _get_text(value, "preview") or _get_text(value, "summary"), _get_text(value, "artifact_ref")
    if not ref:
        return one_line(excerpt)
    if _has_omitted_fields(excerpt):
        return f"{excerpt}\n\n{_render_field_footer(ref, can_fetch)}"
    footer = _render_footer(ref, value.get("size_bytes"), _get_text(value, "mime"), can_fetch)
    return f"{one_line(excerpt) or _NO_EXCERPT} {footer}"


def _render_footer(ref: str, size: Any, mime: str, can_fetch: bool) -> str:
    is_size = isinstance(size, int | float) and not isinstance(size, bool) and 0 < size < math.inf
    facts = ([f"{int(size)} bytes"] if is_size else []) + ([mime] if mime else [])
    known = f" ({', '.join(facts)})" if facts else ""
    return f"[cut; the whole result{known}: {_render_location(ref, can_fetch)}]"


def _render_field_footer(ref: str, can_fetch: bool) -> str:
    way = f"read them with {render_fetch_call(ref)}" if can_fetch else f"they are {_render_location(ref, can_fetch)}"
    return (
        f"[fields marked as omitted were cut; {way}. All other fields are complete. "
        "Calling the tool again gives the same result.]"
    )


def _render_location(ref: str, can_fetch: bool) -> str:
    return render_fetch_call(ref) if can_fetch else f"kept as {codec.encode_text(ref)}, which no tool of this run reads"


def _has_omitted_fields(excerpt: str) -> bool:
    if _OMITTED not in excerpt:
        return False
    try:
        codec.decode(excerpt)
    except msgspec.DecodeError:
        return False
    return True


def _get_text(value: dict[Any, Any], key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


PLACEHOLDER: Final = "(no observation)"
"""Replaces an outcome that is missing or empty: a call without an answer would break the conversation."""

_ERROR_BYTES: Final = 8 * 1024


def render_observation(step: Step, *, can_fetch: bool = True) -> str:
    """Return the outcome of a step with one call: its failure, its error, or its result; else the placeholder."""
    if step.failure is not None:
        return _render_error(
            f"{step.failure.code}: {step.failure.message}" if step.failure.message else step.failure.code
        )
    if step.error:
        return _render_error(step.error)
    for seen in (step.llm_observation, step.observation):
        heavy = None if seen is None else render_heavy_result(seen, can_fetch=can_fetch)
        if heavy is not None:
            return _or_placeholder(heavy)
    return _render_value(step.observation if step.llm_observation is None else step.llm_observation)


def render_branches(step: Step, branches: int, *, can_fetch: bool = True) -> list[str]:
    """Return the outcome of each branch of a parallel call.

    A call that was aborted as a whole has no outcomes of its branches, so each of them gets that of the step.
    """
    aggregate = _find_aggregate(step)
    if aggregate is None:
        return [render_observation(step, can_fetch=can_fetch)] * branches
    by_index = {outcome.index: outcome for outcome in aggregate.branches}
    return [_render_branch(by_index.get(index), can_fetch) for index in range(branches)]


def _find_aggregate(step: Step) -> ParallelObservation | None:
    return parallel_observation(step.llm_observation) or parallel_observation(step.observation)


def _render_branch(outcome: ParallelBranchObservation | None, can_fetch: bool) -> str:
    if outcome is None:
        return PLACEHOLDER
    if outcome.error:
        return _render_error(outcome.error)
    heavy = render_heavy_result(outcome.value, can_fetch=can_fetch)
    return _render_value(outcome.value) if heavy is None else _or_placeholder(heavy)


def _render_error(text: str) -> str:
    return f"error: {truncate(one_line(text), _ERROR_BYTES) or 'unknown'}"


def _render_value(value: Any) -> str:
    return PLACEHOLDER if value is None else _or_placeholder(render_value(value))


def _or_placeholder(text: str) -> str:
    return text if text.strip() else PLACEHOLDER
