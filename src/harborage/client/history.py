"""What a server has recorded of a run: its steps, replays, forks, tests and comparisons, where it offers them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from harborage.errors import InvalidOptionError, at_least
from harborage.ids import new_id
from harborage.protocol.wire.runs import (
    MAX_LIMIT,
    CompareAnswer,
    ForkAnswer,
    FreezeAnswer,
    ReplayAnswer,
    StepAnswer,
    StepsAnswer,
)

if TYPE_CHECKING:
    from typing import Self

    from harborage.identity import Quadruple

T = TypeVar("T")
_MOST_PAGES: Final = 1000


class RecordedRun(ABC):
    """The methods of a run's handle that read or repeat its record; each raises RunNotFoundError for a run that is not
    there, and RemoteError with the code `unknown_method` where the server does not offer it."""

    who: Quadruple

    @abstractmethod
    async def _ask(
        self,
        method: str,
        body: Mapping[str, Any],
        answer: type[T],
        identity: Mapping[str, str] | None = None,
        *,
        about: str = "",
    ) -> T: ...

    @abstractmethod
    def _other(self, who: Quadruple) -> Self: ...

    async def history(self) -> StepsAnswer:
        """Return what happened step by step, and the controls that were sent, also while the run goes on."""
        whole: StepsAnswer | None = None
        for _ in range(_MOST_PAGES):
            after = whole.steps[-1].step if whole is not None and whole.steps else 0
            body = {"id": self.who.run_id, "after": after, "limit": MAX_LIMIT}
            page = await self._ask("runs.steps", body, StepsAnswer)
            if whole is not None:
                page = replace(page, steps=whole.steps + page.steps, controls=whole.controls + page.controls)
            whole = page
            if not page.more:
                break
        assert whole is not None
        return whole

    async def step(self, number: int, *, full: bool = False) -> StepAnswer:
        """Return one step: what the planner saw, what it said, and what that brought. `full` gives prompts whole.

        Raises:
            InvalidOptionError: steps are counted from 1.
        """
        at_least(1, number, "step", is_whole=True)
        return await self._ask("runs.step", {"id": self.who.run_id, "step": number, "full": full}, StepAnswer)

    async def fork(
        self,
        at: int,
        *,
        goal: str = "",
        model: str = "",
        instructions: str = "",
        agent: str = "",
        max_steps: int = 0,
        live: bool = False,
        key: str = "",
    ) -> Self:
        """Start a new run whose steps before `at` are this one's; return its handle.

        `goal`, `model` and `instructions` hold from that step on. Unless it is `live`, calls that have effects are held
        back. A fork with the `key` of an earlier one is that run.

        Raises:
            InvalidOptionError: steps are counted from 1.
            RemoteError: the run has no such step (`invalid_request`).
        """
        at_least(1, at, "at", is_whole=True)
        wanted: dict[str, Any] = {
            "goal": goal,
            "model": model,
            "instructions": instructions,
            "agent": agent,
            "max_steps": max_steps,
            "live": live,
        }
        body = {key: value for key, value in wanted.items() if value}
        body |= {"id": self.who.run_id, "step": at, "idempotency_key": key or new_id()}
        found = await self._ask("runs.fork", body, ForkAnswer)
        return self._other(self.who.identity.with_run(found.task_id))

    async def replay(self, *, agent: str = "") -> ReplayAnswer:
        """Run the record again on the server, offline, and say where it differs; `agent` names another than its own."""
        return await self._ask("runs.replay", _named(self.who, agent), ReplayAnswer)

    async def freeze(self, folder: str | Path | None = None, *, agent: str = "") -> FreezeAnswer:
        """Return a test made of the run, which passes offline; with a `folder` its files are written there, too.

        Raises:
            RemoteError: the run goes on, or does not replay (`invalid_request`).
            InvalidOptionError: the server named a file outside the folder; nothing was written.
        """
        found = await self._ask("runs.freeze", _named(self.who, agent), FreezeAnswer)
        if folder is not None:
            _write(found, Path(folder))
        return found

    async def compare(self, other: str) -> CompareAnswer:
        """Return this run and the run `other` side by side, from the first step that they do not share."""
        body = {"id": self.who.run_id, "other": other, "limit": MAX_LIMIT}
        return await self._ask("runs.compare", body, CompareAnswer)


def _named(who: Quadruple, agent: str) -> dict[str, str]:
    return {"id": who.run_id, **({"agent": agent} if agent else {})}


def _write(frozen: FreezeAnswer, folder: Path) -> None:
    """Write the files of a test; a path that leads out of the folder is refused before anything is written."""
    places = [(folder / file.path, file.content) for file in frozen.files]
    for place, _ in places:
        if not place.resolve().is_relative_to(folder.resolve()):
            raise InvalidOptionError("freeze: path", str(place), f"a file in {folder}")
    for place, content in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content, "utf-8")
