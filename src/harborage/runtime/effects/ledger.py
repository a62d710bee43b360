"""What one run draws from the limits of its tree: counted for the run, summed over all runs that share the limits.

Every run writes one row of its own and reads those of the others, so no two runs ever write the same row. A call is
set aside in the row before the rows of others are read: of two runs that ask at once at least one sees the other. The
bound: a limit may be exceeded by one call's estimate, and by what each call in flight takes beyond its own. Tool calls
are counted before they are made, with the model calls that they make.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.clock import Timers, sleep
from harborage.errors import error_reason
from harborage.ids import new_id
from harborage.llm import CallEstimate, LimitReachedError, PriceUnknownError, accounting, current_account
from harborage.planner import CallParallel, CallTool
from harborage.runtime.loop.limits import NOTHING_SPENT, Caps, LimitName, Reached, Spent, Verdict, judge, micro_dollars
from harborage.state import RecordNotFoundError, StateRecord, StateStore
from harborage.state.errors import StateError

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.planner import Budget
    from harborage.runtime.loop.limits import Reached

_KIND: Final = "limits"
_MEMBERS: Final = "limits.runs"
_LOOK_S: Final = 0.25
_LONGEST_WAIT_S: Final = 120.0


class _Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run has taken, and what is set aside for its calls in flight."""

    spent: Spent = Spent()
    held: dict[str, Spent] = {}
    is_closed: bool = False


class _Left(NamedTuple):
    """What was taken of a limit, and its cap, if there is one."""

    cap: int | None
    taken: int


class _Tree:
    """The limits of a run and of all below it, and the list of those runs; without a store there are no others."""

    def __init__(self, caps: Caps, root: Quadruple, store: StateStore | None) -> None:
        from harborage.state.directory import Directory  # loaded where a run has limits

        self.caps = caps
        self.others = Spent()
        self.members = None if store is None else Directory(store, root, _MEMBERS)

    async def run_ids(self) -> list[str]:
        """The runs of the tree that have drawn on it."""
        entries = [] if self.members is None else await self.members.entries()
        return list(dict.fromkeys(entry[0] for entry in entries))


class RunLedger:
    """One run's part of a ledger. `root` is the run whose limits they are; `spent` is what its record says was taken.

    `inner` are further limits that the run is within, each with the run below `root` whose they are, outer ones first.
    Without a `store` the run is alone, and nothing outlives the process.
    """

    def __init__(
        self,
        who: Quadruple,
        caps: Caps,
        *,
        root: str = "",
        inner: Sequence[tuple[Caps, str]] = (),
        store: StateStore | None = None,
        clock: Timers,
        spent: Spent = Spent(),  # noqa: B008 - a frozen value
        logger: logging.Logger,
    ) -> None:
        self._who = who
        self._store = store
        self._clock = clock
        self._logger = logger
        self._row = _Row(spent=spent)
        self._is_open = False
        self._closed: dict[str, Spent] = {}
        self._saving = asyncio.Lock()
        trees = ((caps, root or who.run_id), *inner)
        self._trees = [_Tree(caps, replace(who, run_id=of), store) for caps, of in trees]

    @property
    def needs_price(self) -> bool:
        """Whether what a call may cost must be known before it is made."""
        return any(tree.caps.cost is not None for tree in self._trees)

    async def begin_step(self, number: int, recorded: Spent) -> Reached | None:
        """Count planner step `number`, from 0, once however often it is begun; the limit that forbids it, if one does.

        `recorded` is what the run's own record says it took so far: where the ledger is new, it begins with that.

        Raises:
            StateError: the store refused.
        """
        await self._opened(recorded)
        before = self._row.spent
        if number >= before.steps:
            await self._save(replace(self._row, spent=replace(before, steps=number + 1)))
        reached = await self._reached()
        if reached is not None and reached.limit is LimitName.STEPS and self._row.spent.steps > before.steps:
            await self._save(replace(self._row, spent=replace(self._row.spent, steps=before.steps)))
            return replace(reached, spent=reached.spent - 1)  # the step that is refused is not taken
        return reached

    async def count_call(self, key: str) -> Reached | None:
        """Count a tool call once however often it is begun; the limit that forbids it, if one does.

        Raises:
            StateError: the store refused.
        """
        if all(tree.caps.calls is None for tree in self._trees):
            return None
        await self._opened(Spent())
        if key in self._row.held:
            return None
        spent = self._row.spent
        await self._save(replace(self._row, spent=replace(spent, calls=spent.calls + 1), held=self._held(key, Spent())))
        reached = await self._reached()
        if reached is None or reached.limit is not LimitName.CALLS:
            return None
        return replace(reached, spent=reached.spent - 1)  # the call that is refused is not made

    def ended_call(self, key: str) -> None:
        """The call is over, and is not begun again; its row is written with the next change."""
        held = {name: one for name, one in self._row.held.items() if name != key}
        self._row = replace(self._row, held=held)

    async def reserve(self, estimate: CallEstimate) -> str:
        """Set aside what a model call may come to, once others have settled enough; returns the reservation's key.

        Raises:
            LimitReachedError: nothing is left, or others held on to the rest for two minutes.
            PriceUnknownError: cost is limited, and the model has no known price.
            StateError: the store refused.
        """
        if estimate.cost is None and self.needs_price:
            raise PriceUnknownError(estimate.model)
        wanted = Spent(tokens=estimate.tokens, cost=micro_dollars(estimate.cost or 0.0))
        key = new_id()
        latest = self._clock.monotonic() + _LONGEST_WAIT_S
        while True:
            mine = Spent.sum(self._row.held.values())
            try:
                await self._save(replace(self._row, held=self._held(key, wanted)))
                verdict, reached = await self._judged(mine, wanted)
            except BaseException:
                self.ended_call(key)  # a call without permission is not made
                raise
            if verdict is Verdict.ADMIT:
                return key
            self.ended_call(key)
            await self._save(self._row)
            if verdict is Verdict.REFUSE or self._clock.monotonic() >= latest:
                assert reached is not None
                raise LimitReachedError(reached.limit, reached.text)
            await sleep(self._clock, _LOOK_S)

    async def settle(self, key: str, spent: Spent) -> None:
        """Replace a reservation by what its call took. A store that refuses gets it with the next change, or counts the
        reservation as spent when the run is taken up again."""
        if key not in self._row.held:
            return
        self.ended_call(key)
        row = replace(self._row, spent=self._row.spent + spent)
        try:
            await self._save(row)
        except StateError as error:
            self._logger.warning(
                "run %s: what a model call took is written later: %s", self._who.run_id, error_reason(error)
            )

    def keep(self, key: str) -> Spent:
        """Count a reservation as spent; its row is written with the next change."""
        held = self._row.held.get(key, Spent())
        self.ended_call(key)
        self._row = replace(self._row, spent=self._row.spent + held)
        return held

    async def close(self) -> None:
        """The run has ended: others need not ask for it again. The last one takes the ledger away."""
        if self._store is None:
            return
        await self._opened(Spent())
        await self._save(replace(self._row, held={}, is_closed=True))
        for tree in self._trees:
            run_ids = await tree.run_ids()
            rows = [await self._load(run_id) for run_id in run_ids]
            if tree.members is None or not all(row is None or row.is_closed for row in rows):
                continue
            if tree is self._trees[0]:  # the rows of an inner tree count in the outer one still
                for run_id in run_ids:
                    await self._store.delete(replace(self._who, run_id=run_id), _KIND)
            await tree.members.clear()

    def budget(self, base: Budget) -> Budget:
        """What is left, as the planner is shown it, by what was known of others when the step began."""
        steps, calls = self._tightest(LimitName.STEPS), self._tightest(LimitName.CALLS)
        tokens, cost = self._tightest(LimitName.TOKENS), self._tightest(LimitName.COST)
        return replace(
            base,
            hop_budget=base.hop_budget if steps.cap is None else max(0, steps.cap - steps.taken + 1),
            cost_cap=cost.cap or base.cost_cap,
            cost_spent=cost.taken,
            token_cap=tokens.cap or 0,
            tokens_spent=tokens.taken,
            call_cap=calls.cap or 0,
            calls_made=calls.taken,
        )

    def _tightest(self, limit: LimitName) -> _Left:
        """The cap of a limit of which least is left, and what was taken of it; without a cap what the tree took."""
        each = [
            _Left(cap, taken)
            for tree in self._trees
            for name, cap, taken in tree.caps.against(self._row.spent + tree.others)
            if name is limit
        ]
        capped = [(one.cap - one.taken, place) for place, one in enumerate(each) if one.cap is not None]
        return each[min(capped)[1]] if capped else each[0]

    async def _reached(self) -> Reached | None:
        """The first limit of which too much was taken, or nothing is left."""
        first: Reached | None = None
        for tree in self._trees:
            spent, _ = await self._others_now(tree)
            first = first or tree.caps.used_up(self._row.spent + spent)
        return first

    async def _judged(self, mine: Spent, wanted: Spent) -> tuple[Verdict, Reached | None]:
        """Whether a call may be made by all the limits: one that refuses counts before one that lets it wait."""
        worst: tuple[Verdict, Reached | None] = (Verdict.ADMIT, None)
        for tree in self._trees:
            others, held = await self._others_now(tree)
            judged = judge(tree.caps, spent=self._row.spent + others, held=mine + held, wanted=wanted)
            if judged[0] is Verdict.REFUSE:
                return judged
            worst = judged if judged[0] is Verdict.WAIT else worst
        return worst

    async def _opened(self, recorded: Spent) -> None:
        """Take up the run's row. What was set aside when a process died is spent: its calls may have been made."""
        if self._is_open:
            return
        if self._store is None:
            self._row = replace(self._row, spent=self._row.spent + recorded)
        else:
            kept = await self._load(self._who.run_id)
            if kept is None:
                for tree in self._trees:
                    assert tree.members is not None
                    await tree.members.add((self._who.run_id,))
                self._row = replace(self._row, spent=self._row.spent + recorded)
            else:
                # A tool call that was counted keeps its key: it is begun again under the same one.
                lost = Spent.sum(kept.held.values())
                held = {key: one for key, one in kept.held.items() if one == Spent()}
                self._row = _Row(spent=kept.spent + lost, held=held)
            await self._save(self._row)
        self._is_open = True

    def _held(self, key: str, amount: Spent) -> dict[str, Spent]:
        return {**self._row.held, key: amount}

    async def _save(self, row: _Row) -> None:
        self._row = row
        if self._store is None:
            return
        async with self._saving:  # what is written last is the newest, however many calls are open
            await self._store.save(StateRecord(new_id(), self._who, _KIND, codec.encode(self._row)))

    async def _load(self, run_id: str) -> _Row | None:
        assert self._store is not None
        try:
            record = await self._store.load(replace(self._who, run_id=run_id), _KIND)
        except RecordNotFoundError:
            return None
        row: _Row = codec.decode(record.data, _Row)
        return row

    async def _others_now(self, tree: _Tree) -> tuple[Spent, Spent]:
        """What the other runs of the tree have taken, and hold; those that have ended are read once."""
        if self._store is None:
            return Spent(), Spent()
        spent = held = Spent()
        for run_id in await tree.run_ids():
            if run_id == self._who.run_id:
                continue
            known = self._closed.get(run_id)
            if known is None:
                row = await self._load(run_id)
                if row is None:
                    continue
                known = row.spent
                held += Spent.sum(row.held.values())
                if row.is_closed:
                    self._closed[run_id] = row.spent
            spent += known
        tree.others = spent
        return spent, held


class StepAccount:
    """What the model calls of one planner step, or of one tool call, draw on. Without a ledger it only counts.

    `spent` is what they took, `refused` why one was not made, `fault` the error of a store that could not be asked.
    """

    __slots__ = ("_ledger", "_open", "fault", "refused", "spent")

    def __init__(self, ledger: RunLedger | None) -> None:
        self._ledger = ledger
        self._open: dict[str, Callable[[], CallEstimate]] = {}
        self.spent = NOTHING_SPENT
        self.refused: LimitReachedError | PriceUnknownError | None = None
        self.fault: StateError | None = None

    @property
    def needs_price(self) -> bool:
        return self._ledger is not None and self._ledger.needs_price

    async def reserve(self, estimate: Callable[[], CallEstimate]) -> str:
        if self._ledger is None:
            key = str(len(self._open))
        else:
            try:
                key = await self._ledger.reserve(estimate())
            except (LimitReachedError, PriceUnknownError) as error:
                self.refused = error
                raise
            except StateError as error:
                self.fault = error
                raise
        self._open[key] = estimate
        return key

    async def settle(self, key: str, *, tokens: int, cost: float) -> None:
        spent = Spent(tokens=tokens, cost=micro_dollars(cost))
        self.spent += spent
        if self._ledger is not None:
            await self._ledger.settle(key, spent)

    def keep(self, key: str) -> None:
        if self._ledger is not None:
            self.spent += self._ledger.keep(key)
            return
        estimate = self._open[key]()
        self.spent += Spent(tokens=estimate.tokens, cost=micro_dollars(estimate.cost or 0.0))


def call_keys(key: str, decision: Any) -> tuple[str, ...]:
    """A key for each tool call of a decision, `key` being that of the decision's step."""
    match decision:
        case CallTool():
            return (key,)
        case CallParallel(branches=branches):
            return tuple(f"{key}.{index}" for index in range(len(branches)))
        case _:
            return ()


@asynccontextmanager
async def metered(
    ledger: RunLedger | None, keys: tuple[str, ...], step: tuple[str, int] | None = None
) -> AsyncIterator[Reached | None]:
    """The limit that forbids one of these calls, if one does; else the block makes them, on the run's account.

    `step` is the run and its step that they belong to. Without a ledger nothing is counted.

    Raises:
        StateError: the store of the ledger refused.
    """
    if ledger is None:
        with accounting(current_account(), step):
            yield None
        return
    try:
        for key in keys:
            reached = await ledger.count_call(key)
            if reached is not None:
                yield reached
                return
        with accounting(StepAccount(ledger), step):
            yield None
    finally:
        for key in keys:
            ledger.ended_call(key)
