"""Query the context providers of a run, all at the same time, each within its own timeout.

A provider that fails, hangs or returns no context is reported, and the run continues without it unless it is required.
The contexts are kept in the form in which they are recorded; secrets in error texts are redacted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import CANCEL_GRACE_S, Crew, together
from harborage.crashes import WorkCrashedError
from harborage.errors import HarborageError, error_reason, error_summary, error_text
from harborage.identity import bound
from harborage.planner.config import DEFAULT_SKILLS_CONTEXT_MAX
from harborage.runtime.effects.model_recording import without_secrets
from harborage.runtime.loop.context import (
    Context,
    ContextProviderError,
    ContextRequest,
    ContextSource,
    ContextUnavailableError,
    ProviderChoice,
    handle_of,
    merged,
    sources_of,
    without_handles,
)
from harborage.state.errors import DatabaseError

if TYPE_CHECKING:
    from harborage.events import Redactor
    from harborage.memory import SessionMemory
    from harborage.planner import HandleRegistry

_GRACE_S: Final = 0.25

MAX_REASON_CHARS: Final = 500
"""How much of an error text is kept as the reason why a provider was skipped."""

_MAX_CONTEXT_BYTES: Final = 64 * 1024


class Skipped(msgspec.Struct, frozen=True):
    """A provider that a run continues without, and why."""

    name: str
    reason: str


class Provided(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The merged context of a run's providers, as it is recorded. With a `failure` the run cannot begin."""

    context: Context = Context()
    skipped: tuple[Skipped, ...] = ()
    failure: str = ""


class ContextProviders:
    """The context providers of a runtime, the session memory first.

    A provider that ignores its cancellation is ended after a grace of 0.2 s, for which nothing waits.

    Raises:
        ContextProviderError: a provider has the name of the memory.
    """

    def __init__(
        self,
        sources: Sequence[ContextSource],
        memory: SessionMemory | None,
        handles: HandleRegistry,
        *,
        redactor: Redactor,
        max_skills: int = DEFAULT_SKILLS_CONTEXT_MAX,
        clock: Timers = SYSTEM_CLOCK,
        logger: logging.Logger,
    ) -> None:
        self.memory = memory
        self.max_skills = max_skills
        self._sources = sources_of(sources if memory is None else _with_memory(memory, sources))
        self.handles = handles
        self.redactor = redactor
        self._clock = clock
        self._logger = logger
        self._crew = Crew(lambda name, error: logger.debug("%s: %s", name, error_reason(error)))

    async def query(self, run: ContextRequest) -> Provided:
        """Return the merged context of the runtime's providers for a run, which alone keeps their live objects.

        Raises:
            DatabaseError: a required provider could not reach the database, so the step must be retried.
        """
        provided = await self._query_all(self._sources, run)
        return replace(provided, context=self.keep_handles(provided.context, run.who.run_id))

    async def _query_all(self, sources: Sequence[ContextSource], run: ContextRequest) -> Provided:
        with bound(run.who):
            answers = await together(*(self._query_one(source, run) for source in sources))
        named: list[tuple[str, Context]] = []
        skipped: list[Skipped] = []
        failures: list[str] = []
        for source, answer in zip(sources, answers, strict=True):
            if isinstance(answer, Context):
                named.append((source.name, answer))
            elif source.is_required:
                failures.append(f"the required context provider {source.name!r} gave nothing: {answer}")
            else:
                skipped.append(Skipped(source.name, answer))
        if failures:
            return Provided(skipped=tuple(skipped), failure="; ".join(failures))
        return Provided(context=merged(named) if named else Context(), skipped=tuple(skipped))

    async def resolve_choice(self, choice: Context | Iterable[ProviderChoice], run: ContextRequest) -> Context | None:
        """Return the context the caller of `start` passes, or that the providers it names return; None if neither.

        Raises:
            ContextProviderError: it is neither, or cannot be recorded.
            ContextUnavailableError: a required provider returned no context.
        """
        context = _recordable(choice) if isinstance(choice, Context) else await self._query_chosen(choice, run)
        if context is not None and not self._sources and (omitted := describe_omitted_skills(context, self.max_skills)):
            # With providers of the runtime's own, the warning comes once they have been queried.
            self._logger.warning("a run starts: %s", omitted)
        return context

    async def _query_chosen(self, choice: Iterable[ProviderChoice], run: ContextRequest) -> Context | None:
        """Return the merged context of the providers that the caller of `start` names; None if it names none."""
        sources = sources_of(choice)
        if not sources:
            return None
        provided = await self._query_all(sources, run)
        if provided.failure:
            raise ContextUnavailableError(provided.failure)
        for skipped in provided.skipped:
            self._logger.warning("a run starts without context provider %r: %s", skipped.name, skipped.reason)
        return provided.context

    def keep_handles(self, context: Context, run_id: str) -> Context:
        """Keep the context's live objects for that run only; return the context as the run records it."""
        for name, value in context.handles.items():
            self.handles.set(handle_of(run_id, name), value)
        return without_handles(context, run_id)

    async def aclose(self) -> None:
        """Cancel the providers that still run; one that ignores that is ended after 0.2 s and logged."""
        for name in await self._crew.close_within(_GRACE_S):
            self._logger.warning("%s has not ended yet and was left behind", name)

    async def _query_one(self, source: ContextSource, run: ContextRequest) -> Context | str:
        """Return the context of one provider, as it is recorded; or why it returned none."""
        try:
            found = await self._crew.within(
                partial(_call_provider, source, run),
                source.timeout_s,
                f"context provider {source.name}",
                clock=self._clock,
                on_left=partial(self._log_abandoned, source.name),
            )
            if found is None:
                return Context()
            if not isinstance(found, Context):
                raise ContextProviderError(f"it returned a {type(found).__name__}, not a Context")
            return _plain(found, source.max_bytes)
        except DatabaseError as error:
            if source.is_required:
                raise
            return self._reason(error)
        except Exception as error:  # noqa: BLE001 - any failure of a provider is reported, and the run continues
            return self._reason(error)

    def _log_abandoned(self, name: str, problem: BaseException | None) -> None:
        why = "" if problem is None else f", and could not be closed: {error_text(problem)}"
        text = "context provider %s was abandoned: it ignored its cancellation for %g s%s"
        self._logger.warning(text, name, CANCEL_GRACE_S, why)

    def _reason(self, error: BaseException) -> str:
        is_own = isinstance(error, TimeoutError | ContextProviderError | WorkCrashedError)
        text = error_reason(error) if is_own else error_summary(error)
        # Redacted before it is cut, or a secret could lose the mark by which it is known.
        return without_secrets(self.redactor, text)[:MAX_REASON_CHARS]

    def drop_handles(self, run_id: str, handles: Iterable[str]) -> None:
        """Drop the live objects of a run that has ended."""
        for handle in handles:
            if handle.startswith(f"{run_id}/"):
                self.handles.delete(handle)


def describe_omitted_skills(context: Context, max_skills: int) -> str:
    """Return a sentence on the skills that the planner is not shown; empty when it is shown all."""
    count = len(context.skills_context)
    if count <= max_skills:
        return ""
    return (
        f"of {count} skills the planner is shown the first {max_skills}; RuntimeOptions(max_skills=…), or "
        "planner.skills_context_max, is the limit"
    )


def _recordable(context: Context) -> Context:
    try:
        return _plain(context, _MAX_CONTEXT_BYTES)
    except (HarborageError, msgspec.ValidationError) as error:
        raise ContextProviderError(f"start: this context cannot be recorded: {error_text(error)}") from error


def _plain(context: Context, max_bytes: int = 0) -> Context:
    """Return the context as it is read back from the record, still with its live objects.

    Raises:
        UnserializableError: something in it has no JSON form.
        ValidationError: a field is of another type.
        ContextProviderError: it is larger than `max_bytes`, where there is a limit.
    """
    data = codec.encode(replace(context, handles={}), "context")
    if max_bytes and len(data) > max_bytes:
        raise ContextProviderError(f"it returned {len(data)} bytes of context; at most {max_bytes} are allowed")
    found: Context = codec.decode(data, Context)
    return replace(found, handles=dict(context.handles))


async def _call_provider(source: ContextSource, run: ContextRequest) -> object:
    return await source.provider.provide(run)


def _with_memory(memory: SessionMemory, sources: Sequence[ContextSource]) -> tuple[ContextSource, ...]:
    """Return the session memory as a provider before the others."""
    from harborage.runtime.effects.session_memory import memory_source  # loaded only for a runtime with a memory

    return (memory_source(memory), *sources)
