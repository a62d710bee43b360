"""One run from a person's chair: what happens is shown as it happens, what is typed is acted upon.

Everything that arrives (events, records, lines, signals) goes through one queue and is handled in order by one task.
What it means is decided by pure files: `view`, `questions`, `answers`, `outcome`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, assert_never

import msgspec
from rich.text import Text

from harborage.app import Agent, attach
from harborage.app.own_sessions import close_own
from harborage.artifacts import ArtifactRef, ArtifactScope
from harborage.cli.conversation import Conversation
from harborage.cli.feed import Fact, Feed, Following, logged
from harborage.cli.keyboard import Job, Keyboard, signals
from harborage.cli.open_session import Aboard, Wishes, aboard, taken_up
from harborage.cli.outcome import Ending, blocked, ending_of, left, without_asking
from harborage.cli.questions import Desk
from harborage.cli.screen import Region, Screen, region
from harborage.cli.status import is_blocked, is_put_off, standing_of
from harborage.cli.text import one_line
from harborage.cli.view import fold, fold_past, header, summary
from harborage.cli.view_state import View, line, new_view
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import Crew
from harborage.errors import HarborageError
from harborage.events import Event
from harborage.runtime.durable import RunBlockedError, RunFailedError, RunPhase
from harborage.runtime.limits import Limits
from harborage.runtime.steering.controls import Scope

if TYPE_CHECKING:
    from harborage.cli.journal_view import Recorded
    from harborage.runtime.host import Run, Runtime

__all__ = ["Session", "Stage", "Wishes"]

_FRAME_S = 0.125
_LOOK_S = 0.25
_LEAVE = 3
_GRACE_S = 2.0
_SETTLES = timedelta(seconds=0.2)


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session plays: how to open its screen, which terminal has the keys (None: nobody can be asked).

    `write` writes to it without waiting for a reader; `tell` gets every event, `leave` ends the process at once.
    """

    open_screen: Callable[[Region], Screen]
    leave: Callable[[], None]
    keys: int | None = None
    is_echoing: bool = False
    write: Callable[[str], object] | None = None
    tell: Callable[[Event], None] | None = None


class _Line(msgspec.Struct, frozen=True):
    text: str
    asked: str


class _Cancel(msgspec.Struct, frozen=True):
    is_hard: bool


class _Leave(msgspec.Struct, frozen=True):
    """The run is left to go on elsewhere or later; `reason` says why, unless a person wants it so."""

    reason: str = ""


class _LookAgain(msgspec.Struct, frozen=True):
    """Events that nobody here heard may have put questions."""


class _Over(msgspec.Struct, frozen=True):
    ending: Ending


_Input: TypeAlias = _Line | _Cancel | _Leave | _LookAgain | _Over


class Session:
    """One run of `agent` on `stage`: from its start, or from where its record stands, to its end."""

    def __init__(self, agent: Agent, wishes: Wishes, stage: Stage, *, clock: Timers = SYSTEM_CLOCK) -> None:
        self.run_id = ""
        self.error: BaseException | None = None
        self._agent = agent
        self._wishes = wishes
        self._stage = stage
        self._clock = clock
        self._inputs: list[_Input] = []
        self._wake = asyncio.Event()
        self._feed = Feed(wishes.who, self._wake.set, clock)
        self._interrupts = 0
        self._has_model = False
        self._fault: BaseException | None = None
        self._refresh: Callable[[], None] = lambda: None

    async def carry(self) -> Ending:
        """Start the run, or go on with it, and stay with it; returns how it ended.

        Raises:
            HarborageError: the agent could not be opened.
        """
        with ExitStack() as listening:
            # What is logged stands among the facts; of a run that never begins the error says it all.
            listening.enter_context(logged(self._feed.logged))
            return await self._carry(listening)

    async def _carry(self, listening: ExitStack) -> Ending:
        began = self._clock.now()
        async with aboard(self._agent, self._wishes, self._feed.recorded) as parts:
            runtime = parts.runtime
            self._has_model = parts.chosen is not None
            # Of a new run the session is its own, so its events are those of the run and of the tasks that it spawns.
            self._feed.subscribe(runtime.bus)
            attached = await attach(runtime.artifacts, self._wishes.who, parts.files)
            run = await self._run(runtime, began, [ref.id for ref in attached])
            self.run_id = run.id
            view = new_view(run.id, began)
            is_old = self._wishes.record is not None
            following = Following(parts.store, run.id, self._wishes.who, may_be_shared=is_old)
            past = await self._feed.follow(following, is_old=is_old)
            with ExitStack() as stack:
                screen, talk = self._enter(stack, runtime, run, view)
                self._open(screen, view, parts, run, attached, past)
                ending = without_asking(await self._stay(runtime, run, view, talk, screen), talk.unasked)
            listening.close()
            given = {ref.id for ref in attached}
            kept = [ref for ref in await runtime.artifacts.list(ArtifactScope.of(run.who)) if ref.id not in given]
            if self._wishes.is_kept:
                await close_own(runtime, parts.store, self._wishes.who)
        seconds = (self._clock.now() - began).total_seconds()
        screen.show(summary(view, ending, seconds, kept, is_kept=self._wishes.is_kept))
        return ending

    async def _run(self, runtime: Runtime, began: datetime, files: Sequence[str]) -> Run:
        wishes = self._wishes
        # Whoever sits at the terminal owns the database as well, so the whole keyboard works, priorities included.
        scope = Scope.ADMIN
        if wishes.record is not None:
            return await taken_up(runtime, wishes.record, scope)
        return await runtime.start(
            wishes.goal,
            who=wishes.who,
            deadline=None if wishes.deadline_s is None else began + timedelta(seconds=wishes.deadline_s),
            input_artifacts=files,
            max_steps=wishes.max_steps,
            limits=None if wishes.max_cost is None else Limits(cost=wishes.max_cost),
            scope=scope,
        )

    def _open(
        self,
        screen: Screen,
        view: View,
        parts: Aboard,
        run: Run,
        attached: Sequence[ArtifactRef],
        past: Sequence[Recorded],
    ) -> None:
        """What stands at the top: the run, and of one that was begun before what it has done."""
        record, now = self._wishes.record, self._clock.now()
        standing = "" if record is None else standing_of(record, now)
        lines = header(self._agent.name, self._wishes.goal, run.who, parts.chosen, attached, standing=standing)
        if record is not None:
            lines += [*fold_past(view, past, now), Text("      ── from here on live ──", style="dim")]
        if self._wishes.approves:
            lines.append(Text("--yes: calls that need approval are made without asking", style="yellow"))
        screen.show(lines)

    def _enter(self, stack: ExitStack, runtime: Runtime, run: Run, view: View) -> tuple[Screen, Conversation]:
        """Take the terminal: keys, screen and signals, given back with `stack`."""
        desk = Desk()
        keyboard = self._keyboard(desk)
        if keyboard is not None:
            stack.enter_context(keyboard.opened())
        editor = None if keyboard is None or keyboard.is_echoing else keyboard.editor
        screen = self._stage.open_screen(lambda width: region(view, desk, editor, self._clock.now(), width))
        stack.callback(screen.close)
        talk = Conversation(
            runtime,
            run,
            view,
            screen=screen,
            desk=desk,
            keyboard=keyboard,
            approves=self._wishes.approves,
            clock=self._clock,
            previews=self._agent.previews,
            has_model=self._has_model,
            leave=partial(self._put, _Leave()) if self._wishes.is_kept else None,
        )
        stack.enter_context(self._heard(talk, screen, keyboard))
        self._refresh = screen.refresh
        return screen, talk

    def _keyboard(self, desk: Desk) -> Keyboard | None:
        if self._stage.keys is None:
            return None
        return Keyboard(
            self._stage.keys,
            on_line=lambda text: self._put(_Line(text, desk.token)),
            on_change=self._changed,
            on_gone=lambda: self._put(self._gone()),
            is_echoing=self._stage.is_echoing,
            write=self._stage.write,
        )

    def _gone(self) -> _Input:
        """What is done when nobody is left to ask: a run that is kept stays as it is, any other would be lost."""
        return _Leave() if self._wishes.is_kept else _Cancel(is_hard=True)

    def _heard(self, talk: Conversation, screen: Screen, keyboard: Keyboard | None) -> AbstractContextManager[None]:
        """Signals: Ctrl-C counts even while a tool blocks the event loop, the others wait for it."""
        loop = asyncio.get_running_loop()

        def interrupt(is_hard: bool) -> None:
            if talk.is_away:
                return  # the keys belong to an editor now
            self._interrupts += 1
            if self._interrupts >= _LEAVE:
                screen.close()
                if keyboard is not None:
                    keyboard.close()
                if self._wishes.is_kept:
                    screen.show([Text(f"left; 'harborage resume {self.run_id}' goes on", style="yellow")])
                self._stage.leave()
            loop.call_soon_threadsafe(self._put, _Cancel(is_hard=is_hard or self._interrupts > 1))

        def end() -> None:
            """Somebody else wants this process to end, which says nothing about the run."""
            loop.call_soon_threadsafe(self._put, self._gone())

        at_once: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGINT: partial(interrupt, False),
            signal.SIGTERM: end,
            signal.SIGHUP: end,
        }
        in_turn = {signal.SIGWINCH: screen.refresh}
        if keyboard is not None:
            job = _job(talk, screen, keyboard)
            in_turn |= {signal.SIGTSTP: job.stop, signal.SIGCONT: job.go_on}
            at_once |= {signal.SIGCONT: job.told}
        return signals(in_turn, at_once)

    async def _stay(self, runtime: Runtime, run: Run, view: View, talk: Conversation, screen: Screen) -> Ending:
        crew = Crew(self._failed)
        try:
            crew.start(self._feed.listen(), "events")
            crew.start(self._await_end(run), "end")
            crew.start(self._animate(screen), "frames")
            crew.start(self._look_around(runtime), "look-out")
            return await self._attend(view, talk, screen)
        finally:
            await crew.aclose()

    async def _await_end(self, run: Run) -> None:
        """The run's end comes last: its last record has brought all that led to it."""
        try:
            ending = ending_of(await run.result())
        except (RunFailedError, RunBlockedError) as error:
            self.error = error
            ending = ending_of(error)
        self._feed.behind(partial(self._put, _Over(ending)))

    async def _look_around(self, runtime: Runtime) -> None:
        """See what other processes do for the run, whether anybody can carry it, and what it waits for."""
        following = self._feed.following
        first_fence = -1 if self._wishes.record is None else self._wishes.record.fence
        looked_at: set[tuple[str, int]] = set()
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._feed.look()
            record = following.record
            if record is not None and is_blocked(record, first_fence):
                self._put(_Over(blocked(record.run_id, record.blocked)))
                return
            if record is not None and self._stage.keys is None and is_put_off(record, self._wishes.entries):
                self._put(_Leave(record.reason))  # nobody is there who would wait with it
                return
            if self._wishes.record is not None or following.is_elsewhere:
                waiting = await self._waiting(runtime, following)
                if waiting - looked_at:
                    looked_at |= waiting
                    self._put(_LookAgain())

    async def _waiting(self, runtime: Runtime, following: Following) -> set[tuple[str, int]]:
        """The runs that wait, and where in their records: what they were sent before has been taken by then."""
        waiting: set[tuple[str, int]] = set()
        for record in following.unfinished:
            try:
                status = await (await runtime.run(record.run_id, who=self._wishes.who)).status()
            except HarborageError as error:
                self._feed.logged(str(error))
                continue
            if status.phase is RunPhase.PARKED:
                waiting.add((record.run_id, record.position))
        return waiting

    async def _animate(self, screen: Screen) -> None:
        while True:
            await asyncio.sleep(_FRAME_S)
            screen.refresh()

    def _changed(self) -> None:
        self._refresh()

    def _put(self, item: _Input) -> None:
        self._inputs.append(item)
        self._wake.set()

    def _failed(self, name: str, error: BaseException) -> None:
        self._fault = error
        self._wake.set()

    async def _attend(self, view: View, talk: Conversation, screen: Screen) -> Ending:
        """Handle what arrives until the run is over."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._fault is not None:
                raise self._fault
            await self._show_all(view, talk, screen)
            inputs, self._inputs = self._inputs, []
            for item in inputs:
                match item:
                    case _Line(text, asked):
                        await talk.hear(text, asked)
                    case _Cancel(is_hard):
                        await talk.cancel(is_hard=is_hard)
                    case _Leave(reason):
                        return self._left(reason)
                    case _LookAgain():
                        await talk.look_again(self._feed.following.strangers)
                    case _Over(ending):
                        await self._feed.look(is_last=True)  # another process may have brought it to its end
                        await self._show_all(view, talk, screen)
                        return ending
                    case _ as unreachable:
                        assert_never(unreachable)
            screen.refresh()

    def _left(self, reason: str) -> Ending:
        """Leave the run as it stands; a call that does not let go of its thread is not waited for very long."""
        asyncio.get_running_loop().call_later(_GRACE_S, self._stage.leave)
        return left(self.run_id, reason)

    async def _show_all(self, view: View, talk: Conversation, screen: Screen) -> None:
        for fact in self._feed.take():
            screen.show(_lines(view, fact))
            if isinstance(fact, Event):
                await self._tell(fact, talk)

    async def _tell(self, event: Event, talk: Conversation) -> None:
        if self._stage.tell is not None:
            self._stage.tell(event)
        await talk.notice(event)


def _job(talk: Conversation, screen: Screen, keyboard: Keyboard) -> Job:
    """What Ctrl-Z and `fg` do to this process and its terminal, unless an editor has that."""

    @contextmanager
    def aside() -> Iterator[None]:
        with keyboard.suspended(), screen.suspended():
            yield

    return Job(aside=aside, renew=keyboard.renew, is_away=lambda: talk.is_away)


def _lines(view: View, happened: Fact) -> list[Text]:
    try:
        if isinstance(happened, str):
            return [line(view.main, "!", "yellow", one_line(happened, 400), wrap=True)]
        return fold(view, happened)
    except Exception as error:  # noqa: BLE001 - told in its place: a run must not end because of how it is shown
        return [Text(f"! something could not be shown: {type(error).__name__}: {one_line(str(error))}", style="red")]
