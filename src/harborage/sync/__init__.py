"""Harborage for scripts and notebooks: the same runtime behind plain calls that block.

One thread runs the event loop, the caller waits for it. It adds nothing and changes nothing; a program that has an
event loop of its own uses `harborage.Runtime` itself.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, overload

from typing_extensions import TypeVar

from harborage.errors import HarborageError, error_reason
from harborage.runtime import host
from harborage.runtime import run as runs
from harborage.runtime.durable.engine import RuntimeClosedError
from harborage.runtime.listing import Page, RunFilter
from harborage.runtime.loop.controls import Scope
from harborage.runtime.pending import Question

if TYPE_CHECKING:
    from harborage.artifacts.media import Goal
    from harborage.client.connection import Token
    from harborage.events import Event
    from harborage.identity import Identity
    from harborage.planner import Finish
    from harborage.runtime import chat as chats
    from harborage.runtime import pending as pendings
    from harborage.runtime.durable.engine import RunStatus
    from harborage.runtime.effects.agent_setup import AgentLike
    from harborage.runtime.pauses import Pause
    from harborage.runtime.result import Result
    from harborage.runtime.starting import RunOptions
    from harborage.sync.remote import RemoteRuntime

T = TypeVar("T")
OutT = TypeVar("OutT", default=Any)

_log = logging.getLogger(__name__)
_CLOSE_S = 30.0
"""Seconds that the runtime gets to close before its event loop is ended all the same."""
_GRACE_S = 1.0
"""Seconds that what is left on the loop, and then its threads, get to end before they are abandoned."""


class BlockingCallError(HarborageError):
    """A call that blocks was made on the event loop's own thread, where it would wait for itself for ever."""

    def __init__(self) -> None:
        super().__init__(
            "harborage.sync was called on the thread of its own event loop, as from an async tool or a planner, and "
            "would wait for itself for ever; make the tool a plain `def`, which has a thread, or use harborage.Runtime"
        )


class _LoopThread:
    """An event loop on a thread of its own, for as long as the runtime is open."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_closed = False
        self._door = threading.Lock()
        self._waiting: set[Future[Any]] = set()
        self._threads = ThreadPoolExecutor(thread_name_prefix="harborage-tools")
        self._loop.set_default_executor(self._threads)
        self._thread = threading.Thread(target=self._serve, name="harborage", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Run the loop until it is stopped, then end what is left on it.

        All on this thread: a caller's own may have a running loop, as in a notebook, and then cannot run another.
        """
        try:
            self._loop.run_forever()
        except BaseException as error:  # noqa: BLE001 - logged, and raised to the caller that waits for the loop
            _log.critical("the event loop of harborage.sync was ended: %s", error_reason(error))
        finally:
            with self._door:
                self._is_closed = True
            try:
                self._loop.run_until_complete(_let_go(self._loop))
                self._end_threads()
            finally:
                self._loop.close()
                for future in list(self._waiting):
                    future.cancel()  # its task ignored its cancellation; its caller gets the cancellation

    def _end_threads(self) -> None:
        """Wait a little for calls that run in threads; one that is blocked is abandoned."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        ending = threading.Thread(target=self._threads.shutdown, name="harborage-end", daemon=True)
        ending.start()
        ending.join(_GRACE_S)
        if ending.is_alive():
            _log.warning("harborage.sync: calls in threads go on after %g s and are abandoned", _GRACE_S)

    def _check_thread(self, work: Coroutine[Any, Any, Any] | None) -> None:
        if threading.current_thread() is self._thread:
            if work is not None:
                work.close()
            raise BlockingCallError()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for its result; interrupting the wait cancels the work.

        Raises:
            BlockingCallError: this is the thread of the loop.
            RuntimeClosedError: the loop has ended, before or meanwhile.
        """
        self._check_thread(work)
        with self._door:
            if self._is_closed:
                work.close()
                raise RuntimeClosedError()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._waiting.add(future)
            future.add_done_callback(self._waiting.discard)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeClosedError() from None
        except BaseException:
            future.cancel()
            raise

    def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the end of something; when the loop has ended already, so has that."""
        with suppress(RuntimeClosedError):
            self.call(work)

    def close(self, last: Coroutine[Any, Any, None] | None = None) -> None:
        """Refuse further calls, run `last`, and end the loop; what ignores that is abandoned, and the log names it.

        Raises:
            BlockingCallError: this is the thread of the loop.
        """
        self._check_thread(last)
        # No call comes in any more, and one that is in has begun before `last` does: a call meets an open runtime or is
        # refused, never one that is half closed.
        with self._door:
            is_over, self._is_closed = self._is_closed, True
            future = None if last is None or is_over else asyncio.run_coroutine_threadsafe(last, self._loop)
            if future is None and last is not None:
                last.close()
        try:
            if future is not None:
                future.result(_CLOSE_S)
        except TimeoutError:
            _log.warning("harborage.sync: the runtime did not close within %g s; its event loop is ended", _CLOSE_S)
        except CancelledError:
            _log.warning("harborage.sync: the event loop ended before the runtime had closed")
        finally:
            self._end()

    def _end(self) -> None:
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            _log.warning("harborage.sync: the event loop is blocked and is abandoned after %g s", _CLOSE_S)


class Run(Generic[OutT]):
    """One run behind blocking calls; see `harborage.Run`, whose methods these are."""

    def __init__(self, run: runs.Run[OutT], thread: _LoopThread) -> None:
        self._run = run
        self._thread = thread

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run.id

    def finished(self) -> Finish:
        """How the run finished, once it has.

        Raises:
            RunFailedError: it ended with an error.
            RunBlockedError: it needs the code that it was started with, or a repair.
        """
        return self._thread.call(self._run.finished())

    def status(self) -> RunStatus:
        """The status of the run now."""
        return self._thread.call(self._run.status())

    def waiting(self) -> list[Pause]:
        """The open pauses of this run."""
        return self._thread.call(self._run.waiting())

    def result(self) -> Result[OutT]:
        """What the run gave, once it has reached its goal.

        Raises:
            RunFailedError: it ended with an error, or without reaching its goal.
            RunBlockedError: as of `finished`.
        """
        return self._thread.call(self._run.result())

    def pending(self) -> list[Pending]:
        """The open questions of this run and of those below it, newest first."""
        return [Pending(one, self._thread) for one in self._thread.call(self._run.pending())]

    def wait_pending(self) -> Pending:
        """Wait until the run asks a person something; the oldest open question.

        Raises:
            NoOutstandingPauseError: it ended without asking.
        """
        return Pending(self._thread.call(self._run.wait_pending()), self._thread)

    def history(self) -> list[bytes]:
        """The run's recorded entries, in order."""
        return self._thread.call(self._run.history())

    def text(self) -> Iterator[str]:
        """What the model writes, piece by piece as it comes."""
        return self._each(self._run.text())

    def events(self, *, children: bool = True, after: int = 0) -> Iterator[Event]:
        """The run's events from beginning to end, as they come, from behind the number `after` on."""
        return self._each(self._run.events(children=children, after=after))

    def _each(self, stream: AsyncIterator[T]) -> Iterator[T]:
        try:
            while found := self._thread.call(_next(stream)):
                yield found[0]
        finally:
            self._thread.finish(_close(stream))

    def cancel(self, *, hard: bool = False) -> bool:
        """End the run, softly or at once."""
        return self._thread.call(self._run.cancel(hard=hard))

    def pause(self) -> bool:
        """Park the run at its next step boundary."""
        return self._thread.call(self._run.pause())

    def resume(self, payload: dict[str, Any] | None = None) -> bool:
        """Let the parked run go on."""
        return self._thread.call(self._run.resume(payload))

    def redirect(self, goal: str) -> bool:
        """Give the run another goal."""
        return self._thread.call(self._run.redirect(goal))

    def inject(self, context: dict[str, Any]) -> bool:
        """Give the planner context."""
        return self._thread.call(self._run.inject(context))

    def message(self, text: str) -> bool:
        """Say something to the planner as the user."""
        return self._thread.call(self._run.message(text))

    def approve(
        self, token: str = "", *, reason: str = "", args: dict[str, Any] | None = None, remember: str = ""
    ) -> bool:
        """Say yes to what waits; `remember` it for the "run", or "always" for the same arguments."""
        return self._thread.call(self._run.approve(token, reason=reason, args=args, remember=remember))

    def reject(self, reason: str = "", *, token: str = "") -> bool:
        """Say no to what waits."""
        return self._thread.call(self._run.reject(reason, token=token))

    def answer(self, value: Any) -> bool:
        """Answer the only open question with a value."""
        return self._thread.call(self._run.answer(value))

    def prioritize(self, priority: int) -> bool:
        """Change the priority of the run's task."""
        return self._thread.call(self._run.prioritize(priority))


class Pending(Question):
    """One open question of a run, with the methods that answer it and block."""

    def __init__(self, pending: pendings.Pending, thread: _LoopThread) -> None:
        super().__init__(pending.pause)
        self._pending = pending
        self._thread = thread

    def approve(self, *, args: dict[str, Any] | None = None, reason: str = "", remember: str = "") -> bool:
        """Approve it; `args` replace the arguments of the call, and `remember` is "run" or "always"."""
        return self._thread.call(self._pending.approve(args=args, reason=reason, remember=remember))

    def reject(self, reason: str = "") -> bool:
        """Reject it; the planner sees the reason."""
        return self._thread.call(self._pending.reject(reason))

    def answer(self, value: Any) -> bool:
        """Answer it with a value, which the planner sees."""
        return self._thread.call(self._pending.answer(value))


class Chat(Generic[OutT]):
    """A conversation behind blocking calls; see `harborage.runtime.chat.Chat`."""

    def __init__(self, chat: chats.Chat[OutT], thread: _LoopThread) -> None:
        self._chat = chat
        self._thread = thread

    @property
    def id(self) -> str:
        """The session."""
        return self._chat.id

    def send(self, text: Goal) -> Result[OutT]:
        """Send a message; what the agent answers.

        Raises:
            SessionBusyError: the message before is still being answered, and `busy` is "refuse".
            RunFailedError: the run that answers ended without reaching its goal.
        """
        return self._thread.call(self._chat.send(text))

    def start(self, text: Goal) -> Run[OutT]:
        """Send a message; the handle of the run that answers it.

        Raises:
            SessionBusyError: as of `send`.
        """
        return Run(self._thread.call(self._chat.start(text)), self._thread)


class Runtime:
    """A runtime behind blocking calls: `with Runtime([agent]) as rt: run = rt.start(agent, "goal", who=…)`.

    The parameters are those of `harborage.Runtime`.
    """

    def __init__(self, agents: Iterable[AgentLike[Any]] | None = None, **parts: Any) -> None:
        self._runtime = host.Runtime(agents, **parts)
        self._thread: _LoopThread | None = None

    def __enter__(self) -> Self:
        thread = _LoopThread()
        try:
            thread.call(self._runtime.__aenter__())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop. Closing twice does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close(self._runtime.aclose())

    @overload
    def start(self, goal: Goal, /, **options: Unpack[RunOptions]) -> Run[Any]: ...

    @overload
    def start(self, agent: str, goal: Goal, /, **options: Unpack[RunOptions]) -> Run[Any]: ...

    @overload
    def start(self, agent: AgentLike[T], goal: Goal, /, **options: Unpack[RunOptions]) -> Run[T]: ...

    def start(self, agent: AgentLike[T] | Goal, goal: Goal | None = None, /, **options: Unpack[RunOptions]) -> Run[Any]:
        """Start a run: `start(agent, "goal", who=…)`; returns at once with its handle. As `harborage.Runtime.start`.

        Raises:
            RuntimeClosedError: outside `with`.
        """
        start: Any = self._runtime.start  # its overloads take one form of these arguments each
        return Run(self._open.call(start(agent, goal, **options)), self._open)

    @overload
    def session(self, agent: str, *, who: Identity, busy: chats.Busy | str = "wait", deps: Any = None) -> Chat[Any]: ...

    @overload
    def session(
        self, agent: AgentLike[T], *, who: Identity, busy: chats.Busy | str = "wait", deps: Any = None
    ) -> Chat[T]: ...

    def session(
        self, agent: AgentLike[T] | str, *, who: Identity, busy: chats.Busy | str = "wait", deps: Any = None
    ) -> Chat[Any]:
        """The conversation with an agent, as `harborage.Runtime.session`."""
        return Chat(self._runtime.session(agent, who=who, busy=busy, deps=deps), self._open)

    def run(self, run_id: str, *, who: Identity, scope: Scope = Scope.OWNER_USER) -> Run[Any]:
        """The handle on a run that was started before; `scope` is what it may do.

        Raises:
            RunNotFoundError: no such run, or another owner's.
        """
        return Run(self._open.call(self._runtime.run(run_id, who=who, scope=scope)), self._open)

    def get(self, run_id: str, *, who: Identity, scope: Scope = Scope.OWNER_USER) -> Run[Any]:
        """The same, looked up by its first use."""
        return Run(self._runtime.get(run_id, who=who, scope=scope), self._open)

    def runs(
        self,
        *,
        who: Identity,
        status: RunFilter | str = "",
        tags: Mapping[str, str] = {},
        limit: int = 50,
        after: str = "",
    ) -> Page[RunStatus]:
        """A page of the runs of `who`, newest first, as `harborage.Runtime.runs`."""
        return self._open.call(self._runtime.runs(who=who, status=status, tags=tags, limit=limit, after=after))

    def pending(self, *, who: Identity, limit: int = 50, after: str = "") -> Page[Pending]:
        """A page of what the runs of `who` wait for a person to answer, as `harborage.Runtime.pending`."""
        page = self._open.call(self._runtime.pending(who=who, limit=limit, after=after))
        return Page([Pending(one, self._open) for one in page], page.next)

    @property
    def _open(self) -> _LoopThread:
        if self._thread is None:
            raise RuntimeClosedError()
        return self._thread


def connect(
    url: str | Sequence[str], *, token: Token = "", headers: Mapping[str, str] = {}, **options: Any
) -> RemoteRuntime:
    """Return the runtime of a server: `with connect("https://…", token=…) as remote: remote.start("agent", "goal")`.

    The parameters are those of `harborage.client.connect`.

    Raises:
        InvalidOptionError: a url is no http or https url.
    """
    from harborage import client
    from harborage.sync.remote import RemoteRuntime  # loaded by the first program that speaks to a server

    return RemoteRuntime(client.connect(url, token=token, headers=headers, **options))


async def _let_go(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what is left, so that callers in other threads do not wait for ever."""
    await asyncio.sleep(0)  # what was handed over just now becomes a task
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    left = (await asyncio.wait(tasks, timeout=_GRACE_S))[1] if tasks else set()
    if left:
        names = ", ".join(sorted(task.get_name() for task in left))
        _log.warning("harborage.sync: abandoned, ignoring their cancellation for %g s: %s", _GRACE_S, names)
    with suppress(TimeoutError):
        await asyncio.wait_for(loop.shutdown_asyncgens(), _GRACE_S)


async def _next(stream: AsyncIterator[T]) -> tuple[T] | None:
    async for one in stream:
        return (one,)
    return None


async def _close(stream: AsyncIterator[Any]) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()
