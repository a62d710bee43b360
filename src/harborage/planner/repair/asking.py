"""One call of a model on behalf of a run: under the run's identity, streamed when the run wants it streamed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from harborage.identity import IdentityMissingError, Quadruple, bound, current_quadruple, missing_parts
from harborage.planner.context import raise_if_cancelled
from harborage.planner.enums import ChunkKind

if TYPE_CHECKING:
    from harborage.llm import CompleteRequest, CompleteResponse, LLMClient
    from harborage.planner.context import OnChunk, RunContext

__all__ = ["ask", "require_identity", "streamed", "void_stream"]


async def ask(run: RunContext, client: LLMClient, request: CompleteRequest) -> CompleteResponse:
    """The model's answer. What the client raises passes through as it is.

    Raises:
        asyncio.CancelledError: the caller was cancelled; reported before the model is called.
    """
    raise_if_cancelled()
    with _as_run(run.quadruple):
        return await client.complete(request)


def streamed(request: CompleteRequest, on_chunk: OnChunk | None, **changes: Any) -> CompleteRequest:
    """The request with its answer streamed to `on_chunk`, when somebody listens, and with `changes`."""
    if on_chunk is None:
        return replace(request, **changes) if changes else request
    return replace(
        request,
        **changes,
        stream=True,
        on_content=partial(_pass_on, on_chunk, ChunkKind.CONTENT),
        on_reasoning=partial(_pass_on, on_chunk, ChunkKind.REASONING),
        on_reset=partial(on_chunk, "", False, ChunkKind.RESET),
    )


def void_stream(run: RunContext) -> None:
    """Tell whoever watches that the step asks its model again, so that what was streamed in it so far is void."""
    if run.on_chunk is not None:
        run.on_chunk("", False, ChunkKind.RESET)


def require_identity(run: RunContext, what: str) -> None:
    """Accept a run whose four parts of identity are all set.

    Raises:
        IdentityMissingError: one is empty; the message names it.
    """
    who = run.quadruple
    if not (who.tenant_id and who.user_id and who.session_id and who.run_id):
        missing = ", ".join(missing_parts(who, run=True))
        raise IdentityMissingError(f"{what} needs the run's whole identity; empty: {missing}")


def _as_run(who: Quadruple) -> AbstractContextManager[None]:
    """A model client reads the ambient identity; a host has usually bound it, and binding it again would cost time."""
    return nullcontext() if current_quadruple() == who else bound(who)


def _pass_on(on_chunk: OnChunk, kind: ChunkKind, delta: str, done: bool) -> None:
    on_chunk(delta, done, kind)
