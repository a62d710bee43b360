"""Effects: everything a run does to the world, as functions registered by name.

The loop names a step and hands over data; the host looks the name up here. What must hold when a process dies in the
middle of a step is part of the registration: whether an intent is recorded first, and what a repeat may do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from harborage.errors import HarborageError, NotFoundError


class StepCall(msgspec.Struct, frozen=True, gc=False):
    """One step of one run, as its effect sees it. `key` is the same for every attempt at this very step.

    `begun` is how often it had begun before in processes that are gone; 0 for a step that nobody is in doubt about. Of
    a step that was put off it is how often, and `since` when that was first.
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


class Waiting(msgspec.Struct, frozen=True):
    """What a step that only waits waits for: a time, the end of another run, or both; a control ends it, too."""

    until: datetime | None = None
    run_id: str = ""


class Doubt(StrEnum):
    """What to do about a step that had begun when its process died."""

    REPEAT = "repeat"
    ASK = "ask"
    CLEAR_UP = "clear_up"


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """A registered effect.

    `run` does the work. `result` is the type a recorded result is read back as. `is_intended` records an intent before
    the work. `in_doubt` is asked when an intent without an outcome is found: REPEAT runs it again with the same key,
    ASK takes the answer of `unknown` instead, CLEAR_UP that of `clear_up`, which may take its time and be cut short
    like the work itself; where that answers REPEAT, the work is done again after all. `after` runs once the outcome is
    recorded, or on its way there (`is_kept_soon`), and never for a recorded one; `recalled` hears of a recorded one
    instead, for what must be at hand in the process that carries the run on. `cut` hears of a step that was cut short,
    be it before it began here, or in a process that is gone. `is_interruptible` lets a hard cancel and the deadline cut
    it short; `yields_to_cancel` lets a soft cancel do so too, or says of a call whether it does, and `yields_to_pause`
    a pause: for waiting, which has no effect to lose and can begin again. What `acts` does not begin once the run is
    cancelled, softly or not. `waits_for` says of a step that only waits what for: its run may leave memory meanwhile,
    and the step begins again when the run is back. It answers None while there is still something to do that would be
    cut short. With `is_kept_soon` the run goes on while the outcome is on its way to the record, as far as steps go
    that only think: `only_thinks` says that a step does nothing but find an answer. One that `may_be_put_off` may raise
    `StepPutOffError`: its run is left until then, or until something arrives. `stray` is what a step gives that ended
    in a cancellation which nobody asked of it, as code does that cancels its own task; without it the step fails. The
    outcome of a step for which `may_repeat` answers False is on disk first: lost with its process it could never be
    found out.
    """

    run: Callable[[StepCall], Awaitable[Any]]
    result: Any = Any
    is_intended: bool = False
    in_doubt: Callable[[StepCall], Doubt] | None = None
    unknown: Callable[[StepCall], Any] | None = None
    stray: Callable[[StepCall], Any] | None = None
    clear_up: Callable[[StepCall], Awaitable[Any]] | None = None
    after: Callable[[StepCall, Any], Awaitable[None]] | None = None
    recalled: Callable[[StepCall, Any], None] | None = None
    cut: Callable[[StepCall], None] | None = None
    is_interruptible: bool = False
    yields_to_cancel: bool | Callable[[StepCall], bool] = False
    yields_to_pause: bool = False
    acts: bool = False
    waits_for: Callable[[StepCall], Waiting | None] | None = None
    is_kept_soon: bool = False
    may_repeat: Callable[[StepCall], bool] | None = None
    only_thinks: bool = False
    may_be_put_off: bool = False

    def yields(self, call: StepCall) -> bool:
        """Whether a soft cancel cuts this call short."""
        rule = self.yields_to_cancel
        return rule if isinstance(rule, bool) else rule(call)


class EffectTable:
    """Effects by name; a name ending in `.` stands for every name that begins with it (`tool.` for `tool.search`)."""

    def __init__(self, effects: Mapping[str, Effect]) -> None:
        self._exact = {name: effect for name, effect in effects.items() if not name.endswith(".")}
        self._families = {name: effect for name, effect in effects.items() if name.endswith(".")}

    def each(self, change: Callable[[str, Effect], Effect]) -> EffectTable:
        """The table with `change(name, effect)` in place of every effect."""
        every = {**self._exact, **self._families}
        return EffectTable({name: change(name, effect) for name, effect in every.items()})

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
