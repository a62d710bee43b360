"""Effects: everything a run does to the world, as functions registered by name.

The loop names a step and hands over data; the host looks the name up here. What must hold when a process dies in the
middle of a step is part of the registration: whether an intent is recorded first, and what a repeat may do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, final

import msgspec

from harborage.errors import HarborageError, NotFoundError
from harborage.runtime.loop.arrivals import Interrupt


class StepCall(msgspec.Struct, frozen=True, gc=False):
    """One step of one run, as its effect sees it. `key` is the same for every attempt at this very step.

    `begun` is how often workers that died had begun it before; 0 for a step that is not interrupted. For a postponed
    step it is how often it was postponed, and `since` when that was first.
    """

    run_id: str
    position: str
    name: str
    payload: Any
    begun: int = 0
    since: datetime | None = None

    @property
    def key(self) -> str:
        """The idempotency key: the run and the position, nothing else."""
        return f"{self.run_id}/{self.position}"


class StepPutOffError(HarborageError):
    """A step could not be taken now, and is begun again at `until`; nothing came of it. `reason` says why."""

    def __init__(self, until: datetime, reason: str = "") -> None:
        self.until = until
        self.reason = reason
        super().__init__(f"{reason}; begun again at {until:%Y-%m-%d %H:%M:%S} UTC")


@final
class Done(msgspec.Struct, frozen=True, gc=False):
    """The step was performed, and its outcome is recorded or on its way to the record; `result` is what it gave."""

    result: Any


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The step raised `error`, which is its recorded outcome: it is never performed again."""

    error: Exception


class Cut(msgspec.Struct, frozen=True, gc=False):
    """The step was cut short, or did not begin at all; `reason` is what interrupted it."""

    reason: Interrupt


class Waiting(msgspec.Struct, frozen=True):
    """The step can only wait: for a time, the end of another run, or both; a control ends the wait, too.

    `reason` says why a step that was put off is begun again at that time.
    """

    until: datetime | None = None
    run_id: str = ""
    reason: str = ""


Answer: TypeAlias = Done | Failed | Cut | Waiting
"""What came of performing a step."""


class Performer(Protocol):
    """What a host is to the runs that it executes: it performs their steps, each with its intent, work and commit."""

    async def perform(self, call: StepCall) -> Answer:
        """Perform a step that has no recorded outcome; `call.begun` says how often it had begun before.

        Raises:
            RunLeftError: the run can go on later, or elsewhere, but not here now.
            CancelledError: this host stops executing the run.
        """
        ...


class Recovery(StrEnum):
    """How an interrupted step continues: it is retried, its outcome is unknown, or a probe or a person resolves it."""

    RETRY = "retry"
    UNKNOWN = "unknown"
    RESOLVE = "resolve"


Run: TypeAlias = Callable[[StepCall], Awaitable[Any]]
Recalled: TypeAlias = Callable[[StepCall, Any], None]


class Rules:
    """How a host treats a kind of effect. These are the rules of a kind that has none of its own.

    Plain values, not properties: a host asks for several of them at every step.
    """

    __slots__ = ()

    is_intended = False
    """Whether an intent is recorded before the work begins."""

    flushes_intent = False
    """Whether the step has its intent stored itself, right before it acts."""

    commits = False
    """Whether the step commits its change itself, and its intent with that."""

    is_kept_at_once = False
    """Whether its outcome is on disk before the run continues."""

    only_thinks = False
    """Whether the step does nothing but find an answer: it may begin before what led to it is recorded."""

    is_interruptible = False
    """Whether a hard cancel and the run's deadline cut the step short."""

    yields_to_pause = False
    """Whether a pause cuts the step short, too."""

    acts = False
    """Whether the step does not begin once the run is cancelled, softly or not."""

    recalled: Recalled | None = None
    """Called with a recorded result, for what must be at hand in the process that goes on with the run."""

    cut: Callable[[StepCall], None] | None = None
    """Called when the step is cut short, be it before it began here, or in a process that is gone."""

    self_cancelled: Callable[[StepCall], Any] | None = None
    """The result of a step that cancelled its own task, as only its run may; without it the step fails."""

    waits_for: Callable[[StepCall], Waiting | None] | None = None
    """What a step that only waits waits for."""

    def yields(self, call: StepCall) -> bool:
        """Whether a soft cancel cuts this call short, too."""
        return False


class Kind(Rules, msgspec.Struct, frozen=True, kw_only=True):
    """What every kind of effect has: `run` does the work, `result` is the type that a recorded result is read back as.

    A kind says which of its rules differ, and which of them each of its effects may set.
    """

    run: Run
    result: Any = Any


class Note(Kind, frozen=True, kw_only=True):
    """A short change of what belongs to the run itself. Only one that `is_interruptible` can be cut short."""

    is_interruptible: bool = False


class Think(Kind, frozen=True, kw_only=True):
    """Finds an answer and changes nothing, so it may begin again at any time.

    A hard cancel and the deadline cut it short, a soft cancel too if it `yields_to_cancel`. It may raise
    `StepPutOffError`: its run is left until then, or until something arrives.
    """

    recalled: Recalled | None = None
    yields_to_cancel: bool = False

    only_thinks = True
    is_interruptible = True

    def yields(self, call: StepCall) -> bool:
        return self.yields_to_cancel


class Ask(Kind, frozen=True, kw_only=True):
    """Asks code of the user that is not asked twice: the answer is on disk before the run continues.

    It may be asked again only by a worker that takes over before that. A hard cancel and the deadline cut it short
    unless it is not `is_interruptible`.
    """

    is_interruptible: bool = True
    recalled: Recalled | None = None

    is_kept_at_once = True


class Change(Kind, frozen=True, kw_only=True):
    """Writes a row of its own, such as a pause or a task, and finds it again by the step's key when it is repeated.

    With `commits` the row is written in one commit with the intent of the step, under the lease of the run. With `acts`
    it does not begin once the run is cancelled.
    """

    recalled: Recalled | None = None
    acts: bool = False
    commits: bool = False

    is_intended = True
    is_kept_at_once = True


class Act(Kind, frozen=True, kw_only=True):
    """Has effects outside the run, at most once.

    `recover` is called for an intent without an outcome, whose worker died: RETRY runs it again with the same key,
    UNKNOWN takes the result of `unknown`, RESOLVE that of `resolve`, which may take long and be interrupted like the
    work itself; if that returns RETRY, the work is run again. `self_cancelled` is the result of work that cancelled its
    own task. `after` runs once the outcome is recorded, or on its way there, and never for a recorded one. The outcome
    of a call for which `may_repeat` is False is on disk before the run continues, because it could not be found out
    after a crash. A hard cancel and the deadline interrupt it; a soft cancel does so while `yields_to_cancel` is true
    of the call, and while it only waits for what `waits_for` returns, mostly an answer. One that `flushes_intent` does
    so right before it acts, with `Outbox.flush_before`: in one commit with the events that it has published by then.
    """

    is_intended: bool = True
    flushes_intent: bool = False
    recover: Callable[[StepCall], Recovery] | None = None
    unknown: Callable[[StepCall], Any] | None = None
    resolve: Run | None = None
    self_cancelled: Callable[[StepCall], Any] | None = None
    after: Callable[[StepCall, Any], Awaitable[None] | None] | None = None
    may_repeat: Callable[[StepCall], bool] | None = None
    cut: Callable[[StepCall], None] | None = None
    yields_to_cancel: Callable[[StepCall], bool] | None = None
    waits_for: Callable[[StepCall], Waiting | None] | None = None

    is_interruptible = True
    acts = True

    def yields(self, call: StepCall) -> bool:
        return self.yields_to_cancel is not None and self.yields_to_cancel(call)


class Wait(Kind, frozen=True, kw_only=True):
    """Only waits, so it has no effect to lose and can begin again; every cancel and the deadline cut it short.

    `waits_for` says what for: the run may leave memory meanwhile, and the step begins again when it is back. It returns
    None while there is still something to do that would be cut short. With `commits` it opens what it waits for in one
    commit with its intent.
    """

    waits_for: Callable[[StepCall], Waiting | None] | None = None
    cut: Callable[[StepCall], None] | None = None
    commits: bool = False
    yields_to_pause: bool = False

    is_interruptible = True

    def yields(self, call: StepCall) -> bool:
        return True


Effect: TypeAlias = Note | Think | Ask | Change | Act | Wait


class Effects(Protocol):
    """The effects that a worker executes runs with, by the agent that a run names."""

    def of(self, agent: str) -> EffectTable:
        """The effects of the runs of an agent.

        Raises:
            HarborageError: this worker has no such agent.
        """
        ...


class EffectTable:
    """Effects by name; a name ending in `.` stands for every name that begins with it (`tool.` for `tool.search`)."""

    def __init__(self, effects: Mapping[str, Effect]) -> None:
        self._exact = {name: effect for name, effect in effects.items() if not name.endswith(".")}
        self._families = {name: effect for name, effect in effects.items() if name.endswith(".")}

    def each(self, change: Callable[[str, Effect], Effect]) -> EffectTable:
        """The table with `change(name, effect)` in place of every effect."""
        every = {**self._exact, **self._families}
        return EffectTable({name: change(name, effect) for name, effect in every.items()})

    def of(self, agent: str) -> EffectTable:
        """The effects of the runs of an agent: these, whatever the agent."""
        return self

    def find(self, name: str) -> Effect:
        """The effect that `name` stands for.

        Raises:
            NotFoundError: there is none.
        """
        effect = self._exact.get(name)
        if effect is None:
            effect = self._families.get(name[: name.find(".") + 1])
            if effect is None:
                known = ", ".join(sorted((*self._exact, *self._families))) or "<none>"
                raise NotFoundError(name, what="effect", message=f"no effect {name!r} is registered (known: {known})")
        return effect
