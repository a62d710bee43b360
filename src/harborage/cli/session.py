"""One run from a person's chair: what happens is shown as it happens, what is typed is acted upon.

Everything that arrives (events, records, lines, signals) goes through one queue and is handled in order by one task.
What it means is decided by pure files: `view`, `questions`, `answers`, `outcome`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeAlias, assert_never

import msgspec
from rich.text import Text

from harborage.app import (
    Agent,
    attach,
    check_attachments,
    open_runtime,
    read_attachment,
    readable,
    with_model,
)
from harborage.app.replays import open_kept
from harborage.artifacts import ArtifactScope
from harborage.cli.conversation import Conversation
from harborage.cli.keyboard import Keyboard, signals
from harborage.cli.live import Region, Screen
from harborage.cli.logs import logged
from harborage.cli.outcome import Ending, ending_of
from harborage.cli.questions import Desk
from harborage.cli.recording import WatchedJournal, watched
from harborage.cli.records import Recorded
from harborage.cli.region import region
from harborage.cli.seen import View, line, new_view
from harborage.cli.text import one_line
from harborage.cli.view import fold, header, summary
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import Crew
from harborage.events import Event, Filter, Subscription
from harborage.identity import Identity
from harborage.runtime.durable import RunFailedError
from harborage.runtime.host import Run, Runtime
from harborage.runtime.journal import MemoryJournal, decode_entry
from harborage.state.storage import open_storage

__all__ = ["Session", "Stage", "Wishes"]

_FRAME_S = 0.125
_LEAVE = 3
_IN_MEMORY = "inmem"


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is wanted for. `deadline_s` is in seconds from its start; an empty `model` leaves it to the agent.

    `storage` is where the run is kept, empty for nowhere, `agent_name` is kept so that its agent is found again;
    `attached` are files that the run gets along with its goal.
    """

    goal: str
    who: Identity
    storage: str = ""
    agent_name: str = ""
    model: str = ""
    attached: tuple[Path, ...] = ()
    approves: bool = False
    max_steps: int = 0
    deadline_s: float | None = None


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session plays: how to open its screen, which terminal has the keys (None: nobody can be asked).

    `tell` gets every event, `leave` ends the process at once.
    """

    open_screen: Callable[[Region], Screen]
    leave: Callable[[], None]
    keys: int | None = None
    is_echoing: bool = False
    tell: Callable[[Event], None] | None = None


class _Line(msgspec.Struct, frozen=True):
    text: str
    asked: str


class _Cancel(msgspec.Struct, frozen=True):
    is_hard: bool


class _Over(msgspec.Struct, frozen=True):
    ending: Ending


_Input: TypeAlias = _Line | _Cancel | _Over
_Fact: TypeAlias = Event | tuple[str, bytes] | str
"""An event, an entry of a run's record, or what was logged."""


class Session:
    """One run of `agent` on `stage`, from its start to its end."""

    def __init__(self, agent: Agent, wishes: Wishes, stage: Stage, *, clock: Timers = SYSTEM_CLOCK) -> None:
        self.run_id = ""
        self.error: BaseException | None = None
        self._agent = agent
        self._wishes = wishes
        self._stage = stage
        self._clock = clock
        self._happened: list[_Fact] = []
        self._inputs: list[_Input] = []
        self._wake = asyncio.Event()
        self._interrupts = 0
        self._has_model = False
        self._events: Subscription | None = None
        self._fault: BaseException | None = None
        self._refresh: Callable[[], None] = lambda: None

    async def carry(self) -> Ending:
        """Start the run and stay with it; returns how it ended.

        Raises:
            HarborageError: the agent could not be opened.
        """
        began = self._clock.now()
        files = [read_attachment(path) for path in self._wishes.attached]
        agent, chosen = await with_model(self._agent, self._wishes.model, os.environ)
        self._has_model = chosen is not None
        if files:
            check_attachments(files, agent, os.environ)
            agent = readable(agent)
        async with self._opened(agent) as runtime:
            # The session is this run's alone, so its events are those of the run and of the tasks that it spawns.
            self._events = runtime.bus.subscribe(Filter.of(self._wishes.who))
            attached = await attach(runtime.artifacts, self._wishes.who, files)
            run = await self._start(runtime, began, [ref.id for ref in attached])
            self.run_id = run.id
            view = new_view(run.id, began)
            with ExitStack() as stack:
                screen, talk = self._enter(stack, runtime, run, view)
                screen.show(header(self._agent.name, self._wishes.goal, run.who, chosen, attached))
                if self._wishes.approves:
                    screen.show([Text("--yes: calls that need approval are made without asking", style="yellow")])
                ending = await self._stay(run, view, talk, screen)
            given = {ref.id for ref in attached}
            kept = [ref for ref in await runtime.artifacts.list(ArtifactScope.of(run.who)) if ref.id not in given]
        seconds = (self._clock.now() - began).total_seconds()
        screen.show(summary(view, ending, seconds, kept, is_kept=self._agent.options.artifact_driver != _IN_MEMORY))
        return ending

    @asynccontextmanager
    async def _opened(self, agent: Agent) -> AsyncIterator[Runtime]:
        """The agent's runtime: over the storage that is wished for, else in memory."""
        if not self._wishes.storage:
            journal = WatchedJournal(MemoryJournal(), self._recorded)
            async with open_runtime(agent, journal=journal) as runtime:
                yield runtime
            return
        storage = watched(await open_storage(self._wishes.storage), self._recorded)
        async with storage, open_kept(agent, storage, self._wishes.agent_name) as runtime:
            yield runtime

    async def _start(self, runtime: Runtime, began: datetime, artifacts: Sequence[str]) -> Run:
        wishes = self._wishes
        deadline = None if wishes.deadline_s is None else began + timedelta(seconds=wishes.deadline_s)
        return await runtime.start(
            wishes.goal, who=wishes.who, deadline=deadline, input_artifacts=artifacts, max_steps=wishes.max_steps
        )

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
        )
        stack.enter_context(logged(self._logged))
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
            on_gone=lambda: self._put(_Cancel(is_hard=True)),
            is_echoing=self._stage.is_echoing,
        )

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
                self._stage.leave()
            loop.call_soon_threadsafe(self._put, _Cancel(is_hard=is_hard or self._interrupts > 1))

        def stop() -> None:
            """Ctrl-Z: the shell gets its terminal back as it was, and this process stops in the middle of it."""
            if keyboard is not None and not talk.is_away:
                with screen.suspended(), keyboard.suspended():
                    os.kill(os.getpid(), signal.SIGSTOP)

        handlers: dict[signal.Signals, Callable[[], None]] = {signal.SIGWINCH: screen.refresh}
        if keyboard is not None:
            handlers[signal.SIGTSTP] = stop
        soft, hard = partial(interrupt, False), partial(interrupt, True)
        return signals(handlers, {signal.SIGINT: soft, signal.SIGTERM: hard, signal.SIGHUP: hard})

    async def _stay(self, run: Run, view: View, talk: Conversation, screen: Screen) -> Ending:
        crew = Crew(self._failed)
        try:
            crew.start(self._listen(), "events")
            crew.start(self._await_end(run), "end")
            crew.start(self._animate(screen), "frames")
            return await self._attend(view, talk, screen)
        finally:
            await crew.aclose()

    async def _listen(self) -> None:
        assert self._events is not None
        async for event in self._events:
            self._happened.append(event)
            self._wake.set()

    def _recorded(self, run_id: str, entries: Sequence[bytes]) -> None:
        # What was published before this was recorded is taken first, so that facts stand in the order of their making.
        if self._events is not None:
            self._happened.extend(self._events.drain())
        self._happened.extend((run_id, data) for data in entries)
        self._wake.set()

    def _logged(self, text: str) -> None:
        self._happened.append(text)
        self._wake.set()

    async def _await_end(self, run: Run) -> None:
        """The run's end comes last: its last record has brought all that led to it."""
        try:
            ending = ending_of(await run.result())
        except RunFailedError as error:
            self.error = error
            ending = ending_of(error)
        self._put(_Over(ending))

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
            happened, self._happened = self._happened, []
            for one in happened:
                screen.show(_lines(view, one))
                if isinstance(one, Event):
                    await self._tell(one, talk)
            inputs, self._inputs = self._inputs, []
            for item in inputs:
                match item:
                    case _Line(text, asked):
                        await talk.hear(text, asked)
                    case _Cancel(is_hard):
                        await talk.cancel(is_hard=is_hard)
                    case _Over(ending):
                        return ending
                    case _ as unreachable:
                        assert_never(unreachable)
            screen.refresh()

    async def _tell(self, event: Event, talk: Conversation) -> None:
        if self._stage.tell is not None:
            self._stage.tell(event)
        await talk.notice(event)


def _lines(view: View, happened: _Fact) -> list[Text]:
    try:
        if isinstance(happened, str):
            return [line(view.main, "!", "yellow", one_line(happened, 400), wrap=True)]
        if isinstance(happened, Event):
            return fold(view, happened)
        run_id, data = happened
        return fold(view, Recorded(run_id, decode_entry(data, run_id, 0)))
    except Exception as error:  # noqa: BLE001 - told in its place: a run must not end because of how it is shown
        return [Text(f"! something could not be shown: {type(error).__name__}: {one_line(str(error))}", style="red")]
