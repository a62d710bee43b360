"""A recorded run, run again offline: the same loop, the same planner, the recorded answers of models, tools and people.

The record answers every question but one: the planner is asked anew at each step, with what it was shown then and the
model answers of then, and what it decides must be what was recorded, byte for byte. Nothing is written anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.errors import HarborageError
from harborage.planner import ArtifactManifestEntry, Finish, FinishReason, JoinSpec
from harborage.runtime.durable.engine import HistoryMismatchError, RecordedFailureError, RunLeftError
from harborage.runtime.durable.execution import Executor, failure_of
from harborage.runtime.durable.histories import History, latest_history, read_value
from harborage.runtime.durable.inbox import Inbox
from harborage.runtime.durable.journal import Begun, Done, Ended, Failed, JournalCorruptError
from harborage.runtime.durable.model_records import prompts_of
from harborage.runtime.durable.steps import Effect, StepCall, Think
from harborage.runtime.effects.assembly import Setup, assemble
from harborage.runtime.history.differences import Difference, DifferenceKind, value_diff
from harborage.runtime.history.reading import Opened, exchanges_in, open_record
from harborage.runtime.history.surroundings import (
    Attempts,
    RecordedCall,
    RecordedClock,
    ReplayClient,
    offline,
    replay_setup,
)
from harborage.runtime.loop.capabilities import INSTRUCTIONS, OFFERED
from harborage.runtime.loop.seam import Concluded, Durable, GatedTools, RunRequest
from harborage.runtime.loop.state import Planned, RunState

if TYPE_CHECKING:
    from harborage.artifacts import ArtifactStore
    from harborage.concurrency import Crew
    from harborage.runtime.durable.mailbox import Mailbox
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.runtime.effects.agent_parts import AgentParts
    from harborage.runtime.loop.arrivals import Arrivals, Hold, Woken
    from harborage.runtime.loop.joins import BranchOutcome

T = TypeVar("T")

_PLAN: Final = "plan"


class ReplayError(HarborageError):
    """A replay differs from the record; `difference` is the first difference."""

    def __init__(self, run_id: str = "", difference: Difference | None = None) -> None:
        self.run_id = run_id
        self.difference = difference
        super().__init__(f"run {run_id} does not replay: {difference}" if difference else "")


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay: `steps` is the number of repeated decisions, `model_calls` that of served answers.

    `is_whole` says that the record goes to the run's end; otherwise the replay ends where the record does.
    """

    run_id: str
    steps: int = 0
    model_calls: int = 0
    is_whole: bool = False
    difference: Difference | None = None

    @property
    def is_same(self) -> bool:
        """Whether the replay made the same decisions as the recorded run."""
        return self.difference is None

    def summary(self) -> str:
        """Return the result as text; a difference is shown in full."""
        if self.difference is not None:
            return str(self.difference)
        served = f", with {self.model_calls} answers of the model" if self.model_calls else ""
        where = "" if self.is_whole else " as far as its record goes"
        return f"{self.steps} decisions are the same as recorded{served}{where}"

    def to_json(self) -> bytes:
        """Return the result as JSON."""
        return codec.encode({"is_same": self.is_same, **codec.to_plain(self)})

    def check(self) -> None:
        """Accept a replay without a difference.

        Raises:
            ReplayError: there is one; the text shows it.
        """
        if self.difference is not None:
            raise ReplayError(self.run_id, self.difference)


class _RecordEndsError(RunLeftError):
    """The record ends here."""


class _DiffersError(RunLeftError):
    """The replay differs from the record."""

    def __init__(self, difference: Difference) -> None:
        self.difference = difference
        super().__init__(str(difference))


async def replay(
    setup: Setup,
    record: Sequence[bytes],
    *,
    artifacts: ArtifactStore | None = None,
    everywhere: bool = False,
    clean: Callable[[Any], Any] | None = None,
    agent: str = "",
) -> Replayed:
    """Run a recorded run again with the planner, tools and options of `setup`, as far as its record goes.

    `agent` is another than the recorded one. Steps that a fork has from a run with another model are not decided again.
    No tool runs, no model is opened and nothing is kept. The network is refused meanwhile: to what the replay starts,
    or `everywhere` to the whole process. `artifacts` are read for what the user had attached, by default from where
    `setup` keeps them. `clean` does what was done to the record, such as hiding secrets, to what the planner asks and
    gives now: to a `Prompt`, and to a `Planned` step; it returns a value of the same type. Of a run with rollovers the
    last history is replayed.

    Raises:
        JournalCorruptError: the record cannot be read.
        HarborageError: the setup does not fit together.
    """
    opened = open_record(record)
    if agent:
        opened = opened._replace(request=replace(opened.request, agent=agent))
    history = latest_history(opened.request, opened.entries)
    recorded = _RecordedHistory(opened, history)
    served = ReplayClient(is_any_recorded=recorded.has_calls, clean=clean)
    clock = RecordedClock(opened.entries[0].at)
    with ExitStack() as stack:
        attempts = stack.enter_context(offline(everywhere=everywhere))
        parts = await assemble(replay_setup(setup, served, clock, artifacts))
        try:
            deciding = parts.agents.get(opened.request.agent)
            first = history.request.changed_at
            comparison = _Comparison(recorded, deciding, served, clock, attempts, clean, decides_from=first)
            difference, is_whole = await _run_over_record(opened, deciding, comparison, setup.logger)
        finally:
            for close in parts.closers:
                await close()
    return Replayed(
        run_id=opened.run_id,
        steps=comparison.asked,
        model_calls=comparison.served_calls,
        is_whole=is_whole,
        difference=difference,
    )


def _with_current_guards(request: RunRequest, gated: GatedTools, hooks: tuple[str, ...]) -> RunRequest:
    """The same under the hooks and approvals of this runtime, which are compared, too. Under a policy for all tools
    then and now what was recorded says which tools were registered when the run started. What an operator had decided
    stays: it is no part of the runtime."""
    if request.changed_at:
        return request  # its first steps were guarded as those of the run that it has them from
    request = replace(request, hooks=hooks)
    if request.gated is None:
        return replace(request, gated=gated)
    if request.gated.is_all and gated.is_all:
        return request
    return replace(request, gated=replace(gated, forced=request.gated.forced, waived=request.gated.waived))


async def _run_over_record(
    opened: Opened, agent: AgentParts, comparison: _Comparison, logger: logging.Logger
) -> tuple[Difference | None, bool]:
    """Execute the run over its record: the first difference, and whether the record went to the run's end."""
    executor = Executor(
        program=comparison.program,
        effects=agent.table.each(comparison.recalled),
        pauses=_NO_PAUSES,
        clock=comparison.clock,
        recheck_s=0.0,
        logger=logger,
    )
    run = _ReplayedRun(_with_current_guards(opened.request, agent.gates.current(), agent.hooks))
    ended = next((one for one in reversed(opened.entries) if isinstance(one, Ended)), None)
    try:
        now = await executor.perform(opened.run_id, run, _NullRecord(), opened.entries, is_stopping=lambda: False)
    except _RecordEndsError:
        return (None if ended is None else _continues(comparison.asked)), False
    except _DiffersError as error:
        return error.difference, False
    except HistoryMismatchError as error:
        return _mismatch(error, comparison.asked), False
    except JournalCorruptError:
        raise
    except Exception as error:  # noqa: BLE001 - how the run ends now, to be compared with how it ended
        return _ending(ended, failure_of(error), comparison.asked), ended is not None
    return _ending(ended, Concluded.of(now).finish, comparison.asked), ended is not None


def _continues(step: int) -> Difference:
    what = "the run ended here, and now it continues"
    return Difference(kind=DifferenceKind.ENDING, step=step, what=what)


def _mismatch(error: HistoryMismatchError, step: int) -> Difference:
    what = f"at position {error.position} the record has {error.recorded!r}, and now {error.asked!r} is requested"
    return Difference(kind=DifferenceKind.STEP, step=step, what=what)


def _ending(ended: Ended | None, now: Finish | tuple[str, str], step: int) -> Difference | None:
    """How the end of the run differs from the recorded one, if there is one on record."""
    if ended is None:
        return None
    recorded: Any = {"error": ended.error, "message": ended.message}
    if ended.finish is not None:
        recorded = read_value(ended.finish, Finish, "the recorded finish")
    found: Any = now if isinstance(now, Finish) else {"error": now[0], "message": now[1]}
    if codec.encode(recorded) == codec.encode(found):
        return None
    what = "the run ends in another way"
    return Difference(kind=DifferenceKind.ENDING, step=step, what=what, diff=value_diff(recorded, found))


class _RecordedHistory:
    """One history of the record, as a replay needs it: the planner's steps in order, intents by position."""

    def __init__(self, opened: Opened, history: History) -> None:
        self.plans = [
            one for one in history.entries if not isinstance(one, Begun) and getattr(one, "name", "") == _PLAN
        ]
        self.intents: Mapping[str, Begun] = {one.position: one for one in history.entries if isinstance(one, Begun)}
        calls = [exchanges_in(_recorded_calls(one), f"run {opened.run_id} at {one.position}") for one in self.plans]
        prompts = iter(prompts_of([exchange for step in calls for exchange in step]))
        self.calls = [[RecordedCall(next(prompts), exchange) for exchange in step] for step in calls]
        self.has_calls = any(self.calls)


def _recorded_calls(entry: Any) -> msgspec.Raw | None:
    match entry:
        case Done():
            planned: Planned = read_value(entry.result, Planned, entry.position)
            return planned.heard
        case Failed():
            return entry.notes
        case _:
            return None


class _Comparison:
    """Calls the planner again at each recorded step, and compares its decision."""

    def __init__(
        self,
        recorded: _RecordedHistory,
        agent: AgentParts,
        served: ReplayClient,
        clock: RecordedClock,
        attempts: Attempts,
        clean: Callable[[Any], Any] | None,
        *,
        decides_from: int = 0,
    ) -> None:
        self._clean = clean
        self._decides_from = decides_from
        self._recorded = recorded
        self._agent = agent
        self._served = served
        self.clock = clock
        self._attempts = attempts
        self._plan = agent.table.find(_PLAN)
        self._step = 0
        self._manifest: tuple[ArtifactManifestEntry, ...] = ()
        self.asked = 0
        self.served_calls = 0

    async def program(self, io: Any, request: RunRequest) -> Concluded:
        """The run's own program, over a seam that calls the planner again."""
        ending = await self._agent.program(_ReplaySeam(io, self), request)
        if self._step < len(self._recorded.plans):
            left = len(self._recorded.plans) - self._step
            what = f"the run ends here, and the record holds {left} more step(s)"
            self._differs(DifferenceKind.ENDING, what)
        return ending

    def recalled(self, name: str, effect: Effect) -> Effect:
        """What answers from the record alone; what is not on record ends the replay."""
        recalled: Callable[[StepCall, Any], None] | None
        recalled = self._compare_intent if name in ("tool.", "task.spawn") else None
        if name in ("context.provide", INSTRUCTIONS, OFFERED):
            recalled = effect.recalled  # the planner gets its recorded context
        return Think(run=_record_ends, result=effect.result, recalled=recalled)

    def _compare_intent(self, call: StepCall, _: Any) -> None:
        """Compare the arguments of a call with the recorded ones."""
        intent = self._recorded.intents.get(call.position)
        if intent is None:
            return
        recorded, now = codec.decode(bytes(intent.payload)), codec.to_plain(call.payload)
        if call.name == "task.spawn":
            recorded, now = recorded[1], now[1]  # the child's key holds the run's id, which a fork has anew
        if recorded != now:
            what = f"{call.name} would be called with something else"
            self._differs(DifferenceKind.ARGUMENTS, what, value_diff(recorded, now))

    async def plan(self, io: Durable, run: RunState) -> Planned:
        """Return the recorded answer to a step, after the planner has been called again."""
        number, self._step = self._step, self._step + 1
        try:
            recorded: Planned = await io.step(_PLAN, run)
        except RecordedFailureError as error:
            entry = self._recorded.plans[number]
            now = await self._asked(run, number, Planned(decision=_NO_DECISION, started_at=entry.at))
            self._compare_failure(error, now)
            raise
        if recorded.limit:
            return recorded  # a limit decided, not the planner
        if number + 1 < self._decides_from:
            self._manifest = recorded.manifest_after(self._manifest)
            return recorded  # another planner decided
        now = await self._asked(run, number, recorded)
        if isinstance(now, Exception):
            what = f"the planner fails: {type(now).__name__}: {now}"
            self._differs(DifferenceKind.FAILURE, what)
        self._compare(recorded, now)
        return recorded

    async def _asked(self, run: RunState, number: int, recorded: Planned) -> Planned | Exception:
        """Return the planner's new result or error; it is shown the recorded inputs."""
        live = self._agent.effects.live(run.who.run_id)
        live.listing = None  # the planner is shown the recorded artifacts
        self._manifest = recorded.manifest_after(self._manifest)
        live.base.session_artifacts = self._manifest
        live.ledger, live.shown = None, recorded.budget
        if recorded.started_at is not None:
            self.clock.set(recorded.started_at)
        calls = self._recorded.calls[number]
        self._served.begin(number + 1, calls)
        refused = len(self._attempts.refused)
        answer: Planned | Exception
        try:
            answer = await self._plan.run(StepCall(run.who.run_id, self._recorded.plans[number].position, _PLAN, run))
        except Exception as error:  # noqa: BLE001 - compared with what was recorded
            answer = error
        self.asked += 1
        self.served_calls += len(calls) - len(self._served.unasked)
        if self._served.difference is not None:
            raise _DiffersError(self._served.difference)
        if len(self._attempts.refused) > refused:
            self._differs(DifferenceKind.NETWORK, str(self._attempts.refused[refused]))
        if self._served.unasked:
            what = f"the model is called {len(self._served.unasked)} time(s) less than recorded"
            self._differs(DifferenceKind.MODEL, what)
        return answer

    def _compare(self, recorded: Planned, now: Planned) -> None:
        if self._clean is not None:
            now = self._clean(Planned(decision=now.decision, **_notes(now)))  # what is compared, and nothing else
        if codec.encode(recorded.decision) != codec.encode(now.decision):
            what = "the planner decides something else"
            self._differs(DifferenceKind.DECISION, what, value_diff(recorded.decision, now.decision))
        before, after = _notes(recorded), _notes(now)
        if codec.encode(before) != codec.encode(after):
            what = "the planner decides the same and notes something else"
            self._differs(DifferenceKind.NOTES, what, value_diff(before, after))

    def _compare_failure(self, recorded: RecordedFailureError, now: Planned | Exception) -> None:
        before = {"error": recorded.error, "message": recorded.reason}
        if not isinstance(now, Exception):
            what = "the planner failed here, and now it decides"
            self._differs(DifferenceKind.FAILURE, what, value_diff(before, now.decision))
        error, message = failure_of(now)
        after = {"error": error, "message": message}
        if before != after:
            self._differs(DifferenceKind.FAILURE, "the planner fails with another error", value_diff(before, after))

    def _differs(self, kind: DifferenceKind, what: str, diff: str = "") -> NoReturn:
        raise _DiffersError(Difference(kind=kind, step=self._step, what=what, diff=diff))


_NO_DECISION: Final = Finish(FinishReason.NO_PATH)


def _notes(planned: Planned) -> dict[str, Any]:
    return {
        "reasoning": planned.reasoning,
        "preamble": planned.preamble,
        "pending": planned.pending,
        "summary": planned.summary,
    }


async def _record_ends(call: StepCall) -> NoReturn:
    raise _RecordEndsError(f"run {call.run_id}: the record ends before {call.name} at {call.position}")


class _ReplaySeam:
    """The seam of a replay: the recorder's, but the planner is called again."""

    def __init__(self, io: Any, comparison: _Comparison) -> None:
        self._io = io
        self._watch = comparison
        self.mailbox: Mailbox = io.mailbox
        self.crew: Crew = io.crew

    @property
    def run_id(self) -> str:
        return str(self._io.run_id)

    async def step(self, name: str, payload: Any) -> Any:
        if name == _PLAN:
            return await self._watch.plan(self._io, payload)
        return await self._io.step(name, payload)

    async def gather(
        self, branches: Sequence[Callable[[Durable], Awaitable[T]]], join: JoinSpec
    ) -> list[BranchOutcome[T]]:
        outcomes: list[BranchOutcome[T]] = await self._io.gather(branches, join)
        return outcomes

    async def drain(self) -> Arrivals:
        arrivals: Arrivals = await self._io.drain()
        return arrivals

    async def wait(self, hold: Hold) -> Woken:
        woken: Woken = await self._io.wait(hold)
        return woken

    async def spawn(self, child_id: str, spec: Any) -> Any:
        return await self._io.spawn(child_id, spec)

    async def join(self, child_id: str) -> Any:
        return await self._io.join(child_id)

    async def rollover(self, carry: RunRequest) -> NoReturn:
        await self._io.rollover(carry)
        raise AssertionError("a rollover never returns")

    async def patched(self, change: str) -> bool:
        return bool(await self._io.patched(change))


class _ReplayedRun:
    """The run of a replay, as its engine sees it."""

    def __init__(self, request: RunRequest) -> None:
        self.request = request
        self.inbox: Inbox | None = Inbox(request.who)
        self.mailbox: Mailbox | None = None
        self.tool_calls = 0
        self.unsaved: list[bytes] = []
        self.unreadable = None


class _NullRecord:
    """The record of a replay, which keeps nothing."""

    append_now = write = None

    async def append(self, run_id: str, entries: Sequence[bytes]) -> None:
        pass


class _NoPauses:
    """The pauses of a replay: at one without a recorded end the record ends."""

    def on_resolved(self, token: str, wake: Callable[[Any], None]) -> NoReturn:
        raise _RecordEndsError(f"the record ends while the run waits on pause {token}")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a replay asked the coordinator of pauses for {name}")


_NO_PAUSES: Final = cast("Coordinator", _NoPauses())
