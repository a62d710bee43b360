"""The part of a run's handle that works on its record: a new run from its first steps, its replay, a test of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from harborage.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime
    from pathlib import Path

    from harborage.artifacts import ArtifactStore
    from harborage.identity import Quadruple
    from harborage.runtime.history.replaying import Replayed
    from harborage.runtime.loop.limits import Limits


class Relives(Protocol):
    """The runtime of a run's handle; the options are those of its methods."""

    @property
    def fork(self) -> Callable[..., Awaitable[Any]]: ...

    @property
    def replay(self) -> Callable[..., Awaitable[Replayed]]: ...

    @property
    def artifacts(self) -> ArtifactStore: ...


class RelivesRuns:
    """The part of a run's handle that works on its record."""

    who: Quadruple
    _runtime: Relives | None = None

    async def history(self) -> list[bytes]:
        """Return the run's recorded entries, in order."""
        raise NotImplementedError

    async def fork(
        self,
        at: int,
        *,
        goal: str = "",
        model: str = "",
        instructions: str = "",
        agent: str = "",
        live: bool = False,
        max_steps: int = 0,
        limits: Limits | None = None,
        deadline: datetime | None = None,
        key: str = "",
    ) -> Self:
        """Start a new run whose steps before `at`, counted from 1, are those of this one, as `Runtime.fork` says.

        Raises:
            Exception: as of `Runtime.fork`.
        """
        forked: Self = await self._relived_by("fork").fork(
            self.who.run_id,
            at=at,
            who=self.who.identity,
            goal=goal,
            model=model,
            instructions=instructions,
            agent=agent,
            live=live,
            max_steps=max_steps,
            limits=limits,
            deadline=deadline,
            key=key,
        )
        return forked

    async def replay(self, *, agent: str = "") -> Replayed:
        """Have the planner decide each step again, with what it was shown then, and return how that came out.

        The record answers for models, tools and people: nothing is written, and no network is reached.

        Raises:
            JournalCorruptError: the record cannot be read.
        """
        return await self._relived_by("replay").replay(await self.history(), agent=agent)

    async def freeze(self, test: str | Path, *, agent: str = "", root: str | Path = ".", force: bool = False) -> Path:
        """Write the run as a test, such as `freeze("tests/test_refund.py")`, and its record into `runs` beside it.

        It is replayed first. `agent` names its agent in the folder `root`, as on a command line; "" is the name that is
        recorded. Secrets are hidden. Returns the file of the record.

        Raises:
            InvalidOptionError: the file is not named `test_….py`.
            ReplayError: the run does not come out the same.
            FreezeError: it has not ended, or a file is there and may not be replaced.
        """
        from pathlib import Path  # with the rest loaded by the first test

        from harborage.runtime.history.freezing import attached_to, freeze, write_frozen

        runtime, path = self._relived_by("freeze"), Path(test)
        name = path.stem.removeprefix("test_")
        if path.suffix != ".py" or not path.stem.startswith("test_") or not name.isidentifier():
            raise InvalidOptionError("freeze: test", str(test), 'the path of a test, such as "tests/test_refund.py"')
        record = await self.history()
        (await runtime.replay(record)).check()
        attached = await attached_to(record, runtime.artifacts)
        frozen = freeze(record, agent=agent, root=Path(root), out=path.parent, attached=attached, name=name)
        write_frozen(frozen, force=force)
        return frozen.run

    def _relived_by(self, method: str) -> Relives:
        if self._runtime is None:
            raise InvalidOptionError(method, "", message=f"{method}: this handle has no runtime; use Runtime.run(…)")
        return self._runtime
