"""Asking the context providers of a run, all at the same time, each within its own time.

One that fails, hangs, or gives what is no context is named, and the run goes on without it unless it is required.
What was given is kept as the record can hold it, secrets of errors redacted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import Crew, together
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


MOST_REASON: Final = 500


_MOST_BYTES: Final = 64 * 1024


class Skipped(msgspec.Struct, frozen=True):
    """A provider that a run goes on without, and why."""

    name: str
    reason: str


class Provided(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the providers of a run gave, as it is recorded. With a `failure` the run cannot begin."""

    context: Context = Context()
    skipped: tuple[Skipped, ...] = ()
    failure: str = ""


class ContextDesk:
    """Asks the context providers of a runtime, the memory of sessions first. What ignores its cancellation is left
    behind here, not waited for.

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
        self._sources = sources_of(sources if memory is None else _remembering(memory, sources))
        self.handles = handles
        self.redactor = redactor
        self._clock = clock
        self._logger = logger
        self._crew = Crew(lambda name, error: logger.debug("%s: %s", name, error_reason(error)))

    async def ask(self, run: ContextRequest) -> Provided:
        """What the runtime's providers give to a run; their live objects are kept for that run alone.

        Raises:
            DatabaseError: a required provider could not reach the database, so the step is to be taken again.
        """
        provided = await self._ask(self._sources, run)
        return replace(provided, context=self.own(provided.context, run.who.run_id))

    async def _ask(self, sources: Sequence[ContextSource], run: ContextRequest) -> Provided:
        with bound(run.who):
            answers = await together(*(self._answer(source, run) for source in sources))
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

    async def given(self, choice: Context | Iterable[ProviderChoice], run: ContextRequest) -> Context | None:
        """What the caller of `start` gives to a run, or what the providers do that it names; None for nothing.

        Raises:
            ContextProviderError: it is neither, or cannot be recorded.
            ContextUnavailableError: a required provider gave nothing.
        """
        context = _recordable(choice) if isinstance(choice, Context) else await self._first(choice, run)
        if context is not None and not self._sources and (told := left_out_of(context, self.max_skills)):
            # With sources it is told when they have been asked.
            self._logger.warning("a run starts: %s", told)
        return context

    async def _first(self, choice: Iterable[ProviderChoice], run: ContextRequest) -> Context | None:
        """What the providers give that the caller of `start` names."""
        sources = sources_of(choice)
        if not sources:
            return None
        provided = await self._ask(sources, run)
        if provided.failure:
            raise ContextUnavailableError(provided.failure)
        for skipped in provided.skipped:
            self._logger.warning("a run starts without context provider %r: %s", skipped.name, skipped.reason)
        return provided.context

    def own(self, context: Context, run_id: str) -> Context:
        """The context as the run records it; its live objects are kept for that run alone."""
        for name, value in context.handles.items():
            self.handles.set(handle_of(run_id, name), value)
        return without_handles(context, run_id)

    async def aclose(self) -> None:
        """Cancel what providers still do; what ignores that is left behind after a moment, and the log names it."""
        for name in await self._crew.close_within(_GRACE_S):
            self._logger.warning("%s ignores its cancellation and was left behind", name)

    async def _answer(self, source: ContextSource, run: ContextRequest) -> Context | str:
        """The context that a source gives, as it is recorded; or why it gave none."""
        try:
            name = f"context provider {source.name}"
            given = await self._crew.within(_asked(source, run), source.timeout_s, name, clock=self._clock)
            if given is None:
                return Context()
            if not isinstance(given, Context):
                raise ContextProviderError(f"it gave a {type(given).__name__}, not a Context")
            return _plain(given, source.max_bytes)
        except DatabaseError as error:
            if source.is_required:
                raise
            return self._reason(error)
        except Exception as error:  # noqa: BLE001 - whatever a provider raises, its run is told and goes on
            return self._reason(error)

    def _reason(self, error: BaseException) -> str:
        is_told = isinstance(error, TimeoutError | ContextProviderError | WorkCrashedError)
        text = error_reason(error) if is_told else error_summary(error)
        return without_secrets(self.redactor, text)[:MOST_REASON]  # cut first, a secret could lose its mark

    def forget(self, run_id: str, handles: Iterable[str]) -> None:
        """Drop the live objects of a run that has ended."""
        for handle in handles:
            if handle.startswith(f"{run_id}/"):
                self.handles.delete(handle)


def left_out_of(given: Context, max_skills: int) -> str:
    """Which of these skills no planner is shown, in words; empty when all are."""
    count = len(given.skills_context)
    if count <= max_skills:
        return ""
    return (
        f"of {count} skills the planner is shown the first {max_skills}; RuntimeOptions(max_skills=…), or "
        "planner.skills_context_max, is the limit"
    )


def _recordable(given: Context) -> Context:
    try:
        return _plain(given, _MOST_BYTES)
    except (HarborageError, msgspec.ValidationError) as error:
        raise ContextProviderError(f"start: this context cannot be recorded: {error_text(error)}") from error


def _plain(given: Context, max_bytes: int = 0) -> Context:
    """The context as a reader of the record finds it, still with its live objects.

    Raises:
        UnserializableError: something in it has no JSON form.
        ValidationError: a field is of another type.
        ContextProviderError: it is larger than `max_bytes`, where there is a limit.
    """
    data = codec.encode(replace(given, handles={}), "context")
    if max_bytes and len(data) > max_bytes:
        raise ContextProviderError(f"it gave {len(data)} bytes of context; at most {max_bytes} may be given")
    found: Context = codec.decode(data, Context)
    return replace(found, handles=dict(given.handles))


async def _asked(source: ContextSource, run: ContextRequest) -> object:
    return await source.provider.provide(run)


def _remembering(memory: SessionMemory, sources: Sequence[ContextSource]) -> tuple[ContextSource, ...]:
    """The memory of sessions as a provider before the others."""
    from harborage.runtime.effects.session_memory import memory_source  # loaded where something is to be remembered

    return (memory_source(memory), *sources)
