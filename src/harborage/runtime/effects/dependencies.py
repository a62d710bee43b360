"""The dependencies of runs: live objects that tools use, of the type that their agent declares. Nothing is recorded.

A caller gives them when it starts a run; a run that goes on in another process gets them from a factory of its runtime.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import CLOSE_GRACE_S, CancelScope, Crew, leavable
from harborage.errors import HarborageError, InvalidOptionError, error_reason
from harborage.planner import HandleRegistry, ToolContext, ToolContextLostError
from harborage.runtime.durable.engine import DependenciesMissingError, RunLeftError
from harborage.tools import HandleUnknownError

if TYPE_CHECKING:
    import logging

    from harborage.identity import Identity, Quadruple

DepsFactory: TypeAlias = Callable[["Identity"], Any]
"""Called with the identity of a run; returns its dependencies, a coroutine of them, or an async context manager that
yields them and is left when the run stops here."""

OPEN_S: Final = 30.0
"""Seconds that a factory may take."""


class DependenciesFailedError(HarborageError):
    """The factory of a run's dependencies failed, or took too long; the call that needs them was not made."""


class Dependencies:
    """The dependencies of the runs of one runtime, by run."""

    def __init__(
        self, factories: Mapping[Any, DepsFactory], logger: logging.Logger, clock: Timers = SYSTEM_CLOCK
    ) -> None:
        self._factories = factories
        self._logger = logger
        self._clock = clock
        self._given: dict[str, Any] = {}
        self._opened: dict[str, _Opened] = {}

    def give(self, run_id: str, deps: Any) -> None:
        """Keep what a caller gave for a run, until it ends."""
        self._given[run_id] = deps

    def is_given(self, run_id: str) -> bool:
        """Whether a caller of this process gave them for a run."""
        return run_id in self._given

    def inherit(self, run_id: str, parent: str, wanted: Any) -> None:
        """Keep for a run what was given for its parent, where it is of the type that the run's agent wants."""
        if parent in self._given and fits(self._given[parent], wanted):
            self._given[run_id] = self._given[parent]

    def has_factory(self, wanted: Any) -> bool:
        """Whether a factory makes dependencies of the type."""
        return self._factory(wanted) is not None

    @asynccontextmanager
    async def during(self, run_id: str, wanted: Any) -> AsyncIterator[None]:
        """While a run is executed here: what a factory made for it is closed after it, what was given is kept until
        the run ends.

        Raises:
            DependenciesMissingError: its dependencies are not here; it is kept for a worker that has them.
        """
        self._require(run_id, wanted)
        try:
            yield
        except RunLeftError:
            raise  # it goes on, here or elsewhere
        except Exception:
            self.drop(run_id)
            raise
        else:
            self.drop(run_id)
        finally:
            await self.leave(run_id)

    def _require(self, run_id: str, wanted: Any) -> None:
        """Accept a run whose dependencies are here, or can be made.

        Raises:
            DependenciesMissingError: they are not; the run is kept for a worker that has them.
        """
        if wanted is not NoneType and run_id not in self._given and not self.has_factory(wanted):
            raise DependenciesMissingError(run_id, name_of(wanted))

    async def of(self, who: Quadruple, wanted: Any) -> Any:
        """The dependencies of a run; its factory is called once while the run is executed here.

        Raises:
            DependenciesFailedError: the factory failed, or took longer than 30 s.
            DependenciesMissingError: no caller gave them, and there is no factory.
        """
        if who.run_id in self._given:
            return self._given[who.run_id]
        opened = self._opened.get(who.run_id)
        if opened is None or opened.has_failed:
            factory = self._factory(wanted)
            if factory is None:
                raise DependenciesMissingError(who.run_id, name_of(wanted))
            opened = self._opened[who.run_id] = _Opened(factory, who.identity, wanted, self._logger, self._clock)
        return await opened.value()

    async def leave(self, run_id: str) -> None:
        """Close what a factory made for a run that stops here, whether it has ended or goes on elsewhere."""
        opened = self._opened.pop(run_id, None)
        if opened is not None:
            await opened.aclose()

    def drop(self, run_id: str) -> None:
        """Forget what was given for a run that has ended."""
        self._given.pop(run_id, None)

    async def aclose(self) -> None:
        """Close what factories made for runs that are still there."""
        for run_id in tuple(self._opened):
            await self.leave(run_id)

    def _factory(self, wanted: Any) -> DepsFactory | None:
        """The factory of the type itself, else of a class derived from it."""
        if wanted in self._factories:
            return self._factories[wanted]
        derived = (make for made, make in self._factories.items() if is_class(made, wanted))
        return next(derived, None)


class _Opened:
    """What a factory made for one run. One task enters and leaves its context manager, as cancel scopes need it."""

    def __init__(self, factory: DepsFactory, who: Identity, wanted: Any, logger: logging.Logger, clock: Timers) -> None:
        self._made: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._leaving = asyncio.Event()
        self._what = name_of(wanted)
        self._clock = clock
        self._crew = Crew(lambda name, error: logger.warning("%s: %s", name, error_reason(error)))
        self._logger = logger
        self._crew.start(self._kept(factory, who), f"dependencies of type {self._what}")

    @property
    def has_failed(self) -> bool:
        return self._made.done() and (self._made.cancelled() or self._made.exception() is not None)

    async def value(self) -> Any:
        """The dependencies, when they are there.

        Raises:
            DependenciesFailedError: the factory failed, or takes too long.
        """
        with CancelScope(self._clock, OPEN_S):
            return await asyncio.shield(self._made)
        await self.aclose()
        raise DependenciesFailedError(f"making {self._what} took longer than {OPEN_S:g} s")

    async def _kept(self, factory: DepsFactory, who: Identity) -> None:
        """Keep them; a factory that ignores its cancellation is ended: it would keep `asyncio.run` from returning."""
        await leavable(self._keep(factory, who), clock=self._clock, on_left=self._was_left)

    def _was_left(self, _: BaseException | None) -> None:
        self._logger.warning("the factory of %s was abandoned: it ignored its cancellation", self._what)

    async def _keep(self, factory: DepsFactory, who: Identity) -> None:
        try:
            made = factory(who)
            if inspect.isawaitable(made):
                made = await made
            if not isinstance(made, AbstractAsyncContextManager):
                self._made.set_result(made)
                return
            async with made as value:
                self._made.set_result(value)
                await self._leaving.wait()
        except Exception as error:
            if self._made.done():
                raise
            failed = DependenciesFailedError(f"making {self._what} failed: {type(error).__name__}: {error}")
            failed.__cause__ = error
            self._made.set_exception(failed)
            self._made.exception()  # its callers get the error; there may be none
        finally:
            if not self._made.done():
                self._made.cancel()

    async def aclose(self) -> None:
        """Leave the context manager; one that does not let itself be left is abandoned after a grace, and logged."""
        self._leaving.set()
        with CancelScope(self._clock, CLOSE_GRACE_S):
            await self._crew.join()
        await self._crew.aclose(clock=self._clock, grace_s=CLOSE_GRACE_S)


def fits(deps: Any, wanted: Any) -> bool:
    """Whether an object is of a type; of one that cannot be asked, such as a protocol, type checkers say it alone."""
    try:
        return isinstance(deps, wanted)
    except TypeError:
        return True


def is_class(made: Any, wanted: Any) -> bool:
    """Whether a class is derived from another."""
    try:
        return issubclass(made, wanted)
    except TypeError:
        return False


def name_of(wanted: Any) -> str:
    """How a type is called in a text."""
    return getattr(wanted, "__name__", str(wanted))


def check_factories(factories: Mapping[Any, DepsFactory]) -> None:
    """Accept a mapping of types to functions.

    Raises:
        InvalidOptionError: it is none; the text shows one.
    """
    example = "types and their factories, such as {Shop: open_shop}"
    if not isinstance(factories, Mapping):
        raise InvalidOptionError("deps", factories, example)
    for wanted, make in factories.items():
        if isinstance(wanted, str) or wanted is NoneType or wanted is None:
            raise InvalidOptionError("deps", wanted, example)
        if not callable(make):
            raise InvalidOptionError(f"deps[{name_of(wanted)}]", make, "a function of the identity of the run")


def check_given(deps: Any, wanted: Any, agent: str, known: Dependencies) -> None:
    """Accept the dependencies that a caller gives to a run of an agent, or leaves to a factory.

    Raises:
        InvalidOptionError: the agent takes none, or others; or it needs some.
    """
    if wanted is NoneType:
        if deps is not None:
            what = type(deps).__name__
            text = f"deps: the agent {agent!r} takes none; declare them: Agent({agent!r}, deps={what})"
            raise InvalidOptionError("deps", deps, message=text)
        return
    needed = name_of(wanted)
    if deps is None:
        if not known.has_factory(wanted):
            fix = f"deps={needed}(…), or a factory: Runtime([…], deps={{{needed}: factory}})"
            raise InvalidOptionError("deps", deps, message=f"deps: the agent {agent!r} needs {fix}")
    elif not fits(deps, wanted):
        text = f"deps: the agent {agent!r} takes {needed}, not {type(deps).__name__}"
        raise InvalidOptionError("deps", deps, message=text)


def find_handle(registry: HandleRegistry | None, given: ToolContext, run_id: str, name: str) -> Any:
    """The live object that a run's tool context has under `name`: the run's own one first, then one of the process.

    Raises:
        HandleUnknownError: the context names none, or the object is not in this process.
    """
    fitting = [handle for handle in given.handles if handle == name or handle.endswith(f"/{name}")]
    wanted = min(fitting, key=lambda handle: (handle != f"{run_id}/{name}", handle != name), default=None)
    if wanted is None:
        raise HandleUnknownError(name)
    try:
        if registry is None:
            raise ToolContextLostError(wanted)
        return registry.get(wanted)
    except ToolContextLostError as lost:
        raise HandleUnknownError(name, message=str(lost)) from lost
