"""One run in a terminal: facts are shown as they happen, and what a person types is acted upon.

Facts, typed lines and signals go through one queue and are handled in order by one task. What they mean is decided in
pure files: `view`, `questions`, `answers`, `status`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, assert_never, cast

import msgspec
from rich.text import Text

from harborage.app import Agent, attach
from harborage.app.project import close_command_session
from harborage.artifacts import ArtifactRef, ArtifactScope
from harborage.cli.block import Folds
from harborage.cli.conversation import Conversation
from harborage.cli.feed import Fact, Feed, JournalFollower, capture_logs
from harborage.cli.folding import fold, layout
from harborage.cli.journal_view import View, line, new_view
from harborage.cli.keyboard import Job, Keyboard, handle_signals
from harborage.cli.open_session import OpenSession, SessionOptions, open_session, resume_handle
from harborage.cli.questions import QuestionQueue
from harborage.cli.region import render_region
from harborage.cli.screen import Region, Screen
from harborage.cli.status import (
    Ending,
    blocked,
    describe_status,
    detached,
    ending_of,
    is_blocked,
    is_waiting_for_provider,
    left,
    waiting,
    with_refused_calls,
)
from harborage.cli.text import one_line
from harborage.cli.view import render, render_header, render_past, render_short_header, render_summary
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import Crew
from harborage.errors import HarborageError
from harborage.events import Event
from harborage.runtime.chat import Busy, Turns
from harborage.runtime.durable.engine import RunBlockedError, RunFailedError, RunPhase
from harborage.runtime.loop.controls import Scope
from harborage.runtime.loop.limits import Limits

if TYPE_CHECKING:
    from harborage.cli.journal_view import RecordedEntry
    from harborage.cli.keyboard import LineEditor
    from harborage.runtime.host import Runtime
    from harborage.runtime.run import Run
    from harborage.store import Store

_FRAME_S = 0.125
_LOOK_S = 0.25
_INTERRUPTS_TO_LEAVE = 3
_GRACE_S = 2.0
_HEIGHT = 24
_CTRL_O, _CTRL_L, _ESCAPE = "\x0f", "\x0c", "\x1b"


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is shown and steered. `keys` is the descriptor of the keyboard, None when no person can be asked.

    `open_screen` opens the screen for a live region; `write` writes to the terminal without waiting for its reader;
    `on_event` gets every event; `exit_now` ends the process at once. `height` is how many rows it has. `queue` takes a
    message that is to be sent after this answer of a conversation, and `queued` are those that were.
    """

    open_screen: Callable[[Region], Screen]
    exit_now: Callable[[], None]
    keys: int | None = None
    is_echoing: bool = False
    write: Callable[[str], object] | None = None
    on_event: Callable[[Event], None] | None = None
    height: Callable[[], int] = lambda: _HEIGHT
    queue: Callable[[str], None] | None = None
    queued: Sequence[str] = ()


class _Line(msgspec.Struct, frozen=True):
    """A typed line, and the token of the question that was shown then; "" when none was."""

    text: str
    token: str


class _Cancel(msgspec.Struct, frozen=True):
    is_hard: bool


class _Leave(msgspec.Struct, frozen=True):
    """Leave the run, which stays as it is; `reason` says why, "" when a person wants it."""

    reason: str = ""


class _ReloadQuestions(msgspec.Struct, frozen=True):
    """Questions may be open whose events this process has not seen."""


class _Ended(msgspec.Struct, frozen=True):
    ending: Ending


_Input: TypeAlias = _Line | _Cancel | _Leave | _ReloadQuestions | _Ended


class Session:
    """One run of `agent` in `terminal`: from its start, or from its last recorded step, to its end."""

    def __init__(
        self, agent: Agent, options: SessionOptions, terminal: Terminal, *, clock: Timers = SYSTEM_CLOCK
    ) -> None:
        self.run_id = ""
        self.error: BaseException | None = None
        self._agent = agent
        self._options = options
        self._terminal = terminal
        self._clock = clock
        self._inputs: list[_Input] = []
        self._wake = asyncio.Event()
        self._feed = Feed(options.who, self._wake.set, clock)
        self._interrupts = 0
        self._has_model = False
        self._fault: BaseException | None = None
        self._refresh: Callable[[], None] = lambda: None
        self._folds = None if terminal.is_echoing else Folds(user=options.who.user_id)

    async def run(self) -> Ending:
        """Start or resume the run and show it until it ends; returns how it ended.

        Raises:
            HarborageError: the agent could not be opened.
        """
        with ExitStack() as listening:
            # Logs are shown among the facts, unless the run never starts: then its error says enough.
            listening.enter_context(capture_logs(self._feed.add_log))
            return await self._run(listening)

    async def _run(self, listening: ExitStack) -> Ending:
        began = self._clock.now()
        async with open_session(self._agent, self._options, self._feed.add_entries) as parts:
            runtime = parts.runtime
            self._has_model = parts.chosen is not None
            # Other runs of the session have ended, so its events are those of the run and its tasks.
            self._feed.subscribe(runtime.bus)
            is_resumed = self._options.record is not None
            is_shared = is_resumed or self._options.is_message
            before = await runtime.artifacts.list(ArtifactScope.of(self._options.who)) if is_shared else ()
            attached = await attach(runtime.artifacts, self._options.who, parts.files)
            run = await self._start_or_resume(parts, began, [ref.id for ref in attached])
            self.run_id = run.id
            if self._options.detaches:
                return detached(run.id)
            view = new_view(run.id, began, is_folded=self._folds is not None)
            view.cost_limit = self._options.max_cost
            follower = JournalFollower(parts.store, run.id, self._options.who, may_be_shared=is_shared)
            past = await self._feed.follow(follower, is_resumed=is_resumed)
            with ExitStack() as stack:
                screen, conversation = self._open_terminal(stack, runtime, run, view)
                self._show_header(screen, view, parts, run, attached, past)
                ending = await self._follow(runtime, run, view, conversation, screen)
                ending = with_refused_calls(ending, conversation.refused)
            listening.close()
            given = {ref.id for ref in (*attached, *(before if self._options.is_message else ()))}
            made = [ref for ref in await runtime.artifacts.list(ArtifactScope.of(run.who)) if ref.id not in given]
            if self._options.is_kept:
                await close_command_session(runtime, parts.store, self._options.who)
        seconds = (self._clock.now() - began).total_seconds()
        self._show_unread(screen)
        is_folded = self._folds is not None
        is_kept = self._options.is_kept
        screen.show(render_summary(view, ending, seconds, made, is_kept=is_kept, is_folded=is_folded))
        return ending

    async def _start_or_resume(self, parts: OpenSession, began: datetime, files: Sequence[str]) -> Run:
        options, runtime = self._options, parts.runtime
        # The person at the terminal owns the database, too, and so may use every control, priorities included.
        scope = Scope.ADMIN
        if options.record is not None:
            return await resume_handle(runtime, options.record, scope)
        start = partial(
            runtime.start,
            options.goal,
            who=options.who,
            deadline=None if options.deadline_s is None else began + timedelta(seconds=options.deadline_s),
            input_artifacts=files,
            max_steps=options.max_steps,
            limits=Limits(calls=options.max_calls, tokens=options.max_tokens, cost=options.max_cost),
            key=options.key,
            tags=options.tags,
            remembers=True if options.is_message else None,
            scope=scope,
            messages=options.messages,
        )
        if not options.is_message:
            return await start()
        find = partial(runtime.run, who=options.who)
        return await Turns(cast("Store", parts.store), options.who).take(start, find, Busy.WAIT)

    def _show_header(
        self,
        screen: Screen,
        view: View,
        parts: OpenSession,
        run: Run,
        attached: Sequence[ArtifactRef],
        past: Sequence[RecordedEntry],
    ) -> None:
        """Show the run's facts, and the last steps of a resumed run; the answer to a message speaks for itself."""
        if self._options.is_message and self._options.record is None:
            return
        record, now = self._options.record, self._clock.now()
        status = "" if record is None else describe_status(record, now)
        name, chosen = self._agent.name, parts.chosen
        if self._folds is not None:
            limit = self._options.max_cost
            lines = render_short_header(name, run.who, chosen, attached, limit=limit, status=status)
        else:
            lines = render_header(name, self._options.goal, run.who, chosen, attached, status=status)
        if record is not None:
            draw = None if self._folds is None else partial(self._drawn, view, screen)
            lines += [*render_past(view, past, now, draw), Text("── live ──", style="dim")]
        if self._options.approves:
            lines.append(Text("--yes: every call that needs approval is approved", style="yellow"))
        screen.show(lines)

    def _open_terminal(self, stack: ExitStack, runtime: Runtime, run: Run, view: View) -> tuple[Screen, Conversation]:
        """Open keyboard, screen and signal handlers; `stack` gives the terminal back."""
        queue = QuestionQueue()
        keyboard = self._keyboard(queue)
        if keyboard is not None:
            stack.enter_context(keyboard.opened())
        editor = None if keyboard is None or keyboard.is_echoing else keyboard.editor

        def region(width: int) -> Sequence[Text]:
            now, height = self._clock.now(), self._terminal.height()
            return render_region(
                view, queue, editor, now, width, height=height, folds=self._folds, queued=self._terminal.queued
            )

        screen = self._terminal.open_screen(region)
        stack.callback(screen.close)
        if editor is not None:
            editor.on_key = partial(self._press, screen, queue)
        conversation = Conversation(
            runtime,
            run,
            view,
            screen=screen,
            queue=queue,
            keyboard=keyboard,
            approves=self._options.approves,
            rejects=self._options.rejects,
            clock=self._clock,
            previews=self._agent.previews,
            has_model=self._has_model,
            leave=partial(self._put, _Leave()) if self._options.is_kept else None,
            folds=self._folds,
        )
        stack.enter_context(self._signal_handlers(conversation, screen, keyboard))
        self._refresh = screen.refresh
        return screen, conversation

    def _press(self, screen: Screen, queue: QuestionQueue, editor: LineEditor, key: str) -> bool:
        """A key that does not type: unfold, draw anew, scroll a question, send a message after this answer."""
        if key == _CTRL_O and self._folds is not None:
            self._folds.is_unfolded = not self._folds.is_unfolded
            return True
        if key == _CTRL_L:
            screen.redraw()
            return True
        if key == _ESCAPE:
            editor.fill("")
            return True
        if key == "\t" and self._terminal.queue is not None and not queue and editor.text.strip():
            self._terminal.queue(editor.take())
            return True
        return queue.pane is not None and not editor.text and queue.pane.press(key)

    def _show_unread(self, screen: Screen) -> None:
        """Say which messages the run has not read before it ended."""
        for text in [] if self._folds is None else self._folds.sent:
            screen.show([Text.assemble(("› ", "bold"), (one_line(text, 1000), "bold"), ("  not read", "dim"))])

    def _keyboard(self, queue: QuestionQueue) -> Keyboard | None:
        if self._terminal.keys is None:
            return None
        return Keyboard(
            self._terminal.keys,
            on_line=lambda text: self._put(_Line(text, queue.token)),
            on_change=self._redraw,
            on_gone=lambda: self._put(self._terminal_lost()),
            is_echoing=self._terminal.is_echoing,
            write=self._terminal.write,
        )

    def _terminal_lost(self) -> _Input:
        """What happens when the terminal is gone: a kept run is left as it is, any other is cancelled."""
        return _Leave() if self._options.is_kept else _Cancel(is_hard=True)

    def _signal_handlers(
        self, conversation: Conversation, screen: Screen, keyboard: Keyboard | None
    ) -> AbstractContextManager[None]:
        """Handle signals: Ctrl-C works even while a tool blocks the event loop, the others wait for the loop."""
        loop = asyncio.get_running_loop()

        def interrupt(is_hard: bool) -> None:
            if conversation.is_editor_open:
                return  # the editor has the keys
            self._interrupts += 1
            if self._interrupts >= _INTERRUPTS_TO_LEAVE:
                screen.close()
                if keyboard is not None:
                    keyboard.close()
                if self._options.is_kept:
                    screen.show([Text(f"left; continue with: harborage resume {self.run_id}", style="yellow")])
                self._terminal.exit_now()
            loop.call_soon_threadsafe(self._put, _Cancel(is_hard=is_hard or self._interrupts > 1))

        def end() -> None:
            """Another program ends this process; that says nothing about the run."""
            loop.call_soon_threadsafe(self._put, self._terminal_lost())

        at_once: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGINT: partial(interrupt, False),
            signal.SIGTERM: end,
            signal.SIGHUP: end,
        }
        in_turn = {signal.SIGWINCH: screen.refresh}
        if keyboard is not None:
            job = _job(conversation, screen, keyboard)
            in_turn |= {signal.SIGTSTP: job.stop, signal.SIGCONT: job.resume}
            at_once |= {signal.SIGCONT: job.note_resumed}
        return handle_signals(in_turn, at_once)

    async def _follow(
        self, runtime: Runtime, run: Run, view: View, conversation: Conversation, screen: Screen
    ) -> Ending:
        crew = Crew(self._failed)
        try:
            crew.start(self._feed.receive_events(), "events")
            crew.start(self._await_end(run), "end")
            crew.start(self._animate(screen), "frames")
            crew.start(self._watch_store(runtime, conversation), "store")
            return await self._handle_all(view, conversation, screen)
        finally:
            await crew.aclose()

    async def _await_end(self, run: Run) -> None:
        """Queue the run's end behind all facts that led to it."""
        try:
            ending = ending_of(await run.finished())
        except (RunFailedError, RunBlockedError) as error:
            self.error = error
            ending = ending_of(error)
        self._feed.call_after_published(partial(self._put, _Ended(ending)))

    async def _watch_store(self, runtime: Runtime, conversation: Conversation) -> None:
        """Poll what other workers do for the run, whether its code fits, and what it waits for."""
        follower = self._feed.follower
        first_fence = -1 if self._options.record is None else self._options.record.fence
        known: set[tuple[str, int]] = set()
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._feed.poll()
            record = follower.record
            if record is not None and is_blocked(record, first_fence):
                self._put(_Ended(blocked(record.run_id, record.blocked)))
                return
            if (
                record is not None
                and self._terminal.keys is None
                and is_waiting_for_provider(record, self._options.entries)
            ):
                self._put(_Leave(record.reason))  # without a person at the terminal there is no use in waiting
                return
            unasked = conversation.unasked
            if self._options.record is not None or follower.is_elsewhere or unasked:
                parked = await self._waiting_runs(runtime, follower)
                if parked - known:
                    known |= parked
                    self._put(_ReloadQuestions())
                elif unasked and len(parked) == len(follower.unfinished):
                    self._put(_Ended(waiting(unasked[0].subject, unasked[0].command)))
                    return

    async def _waiting_runs(self, runtime: Runtime, follower: JournalFollower) -> set[tuple[str, int]]:
        """The runs that wait, and their positions: by then they have read what was sent to them before."""
        waiting: set[tuple[str, int]] = set()
        for record in follower.unfinished:
            try:
                status = await (await runtime.run(record.run_id, who=self._options.who)).status()
            except HarborageError as error:
                self._feed.add_log(str(error))
                continue
            if status.phase is RunPhase.PARKED:
                waiting.add((record.run_id, record.position))
        return waiting

    async def _animate(self, screen: Screen) -> None:
        while True:
            await asyncio.sleep(_FRAME_S)
            screen.refresh()

    def _redraw(self) -> None:
        self._refresh()

    def _put(self, item: _Input) -> None:
        self._inputs.append(item)
        self._wake.set()

    def _failed(self, name: str, error: BaseException) -> None:
        self._fault = error
        self._wake.set()

    async def _handle_all(self, view: View, conversation: Conversation, screen: Screen) -> Ending:
        """Handle facts, typed lines and signals until the run has ended."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._fault is not None:
                raise self._fault
            await self._show_facts(view, conversation, screen)
            inputs, self._inputs = self._inputs, []
            for item in inputs:
                match item:
                    case _Line(text, token):
                        await conversation.handle_line(text, token)
                    case _Cancel(is_hard):
                        await conversation.cancel(is_hard=is_hard)
                    case _Leave(reason):
                        return self._left(reason)
                    case _ReloadQuestions():
                        await conversation.reload_questions(self._feed.follower.unrelated)
                    case _Ended(ending):
                        await self._feed.poll(is_last=True)  # another worker may have written the last entries
                        await self._show_facts(view, conversation, screen)
                        return ending
                    case _ as unreachable:
                        assert_never(unreachable)
            screen.refresh()

    def _left(self, reason: str) -> Ending:
        """Leave the run as it is; a call that keeps its thread gets two seconds before the process ends."""
        asyncio.get_running_loop().call_later(_GRACE_S, self._terminal.exit_now)
        return left(self.run_id, reason)

    async def _show_facts(self, view: View, conversation: Conversation, screen: Screen) -> None:
        for fact in self._feed.take():
            screen.show(self._drawn(view, screen, fact))
            if isinstance(fact, Event):
                if self._terminal.on_event is not None:
                    self._terminal.on_event(fact)
                await conversation.handle_event(fact)

    def _drawn(self, view: View, screen: Screen, fact: Fact) -> list[Text]:
        """The lines of a fact. A run must not end because of how it is shown."""
        try:
            if isinstance(fact, str):
                return [line(view.main, "!", "yellow", one_line(fact, 400), wrap=True)]
            return render(view, fact) if self._folds is None else layout(fold(self._folds, view, fact), screen.width)
        except Exception as error:  # noqa: BLE001 - it is shown in place of the fact
            why = f"{type(error).__name__}: {one_line(str(error))}"
            return [Text(f"! a fact could not be shown: {why}", style="red")]


def _job(conversation: Conversation, screen: Screen, keyboard: Keyboard) -> Job:
    """What Ctrl-Z and `fg` do to this process and its terminal, unless an editor has the terminal."""

    @contextmanager
    def suspend() -> Iterator[None]:
        with keyboard.suspended(), screen.suspended():
            yield

    return Job(suspend=suspend, renew=keyboard.renew, is_terminal_lent=lambda: conversation.is_editor_open)
