"""The runs of a server behind plain calls that block; see `harborage.sync.connect`."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from harborage.runtime.durable.engine import RuntimeClosedError
from harborage.runtime.listing import Page, RunFilter
from harborage.runtime.loop.controls import Scope
from harborage.sync import Chat, Pending, Run, _LoopThread

if TYPE_CHECKING:
    from harborage.artifacts.media import Goal
    from harborage.client.runtime import RemoteOptions
    from harborage.client.runtime import RemoteRuntime as AsyncRuntime
    from harborage.identity import Identity
    from harborage.runtime import chat as chats
    from harborage.runtime.durable.engine import RunStatus


class RemoteRuntime:
    """A runtime on a server behind blocking calls: `with harborage.sync.connect(url, token=…) as remote: …`."""

    def __init__(self, remote: AsyncRuntime) -> None:
        self._remote = remote
        self._thread: _LoopThread | None = None

    def __enter__(self) -> Self:
        self._thread = _LoopThread()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; runs go on. Closing twice does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close(self._remote.aclose())

    def start(
        self, agent: Goal, goal: Goal | None = None, /, *, output: Any = str, **options: Unpack[RemoteOptions]
    ) -> Run[Any]:
        """Start a run of the agent with this name, as `harborage.client.RemoteRuntime.start`.

        Raises:
            RuntimeClosedError: outside `with`.
        """
        start: Any = self._remote.start  # its overloads take one form of these arguments each
        words = (agent,) if goal is None else (agent, goal)
        return self._handle(self._open.call(start(*words, output=output, **options)))

    def session(self, agent: str, *, who: Identity, busy: chats.Busy | str = "wait", output: Any = str) -> Chat[Any]:
        """The conversation with an agent, as `harborage.client.RemoteRuntime.session`."""
        return Chat(self._remote.session(agent, who=who, busy=busy, output=output), self._open)

    def run(self, run_id: str, *, who: Identity, scope: Scope = Scope.OWNER_USER, output: Any = str) -> Run[Any]:
        """The handle on a run that was started before; `scope` is what it may do.

        Raises:
            RunNotFoundError: no such run, or another owner's.
        """
        return self._handle(self._open.call(self._remote.run(run_id, who=who, scope=scope, output=output)))

    def get(self, run_id: str, *, who: Identity, scope: Scope = Scope.OWNER_USER, output: Any = str) -> Run[Any]:
        """The same, looked up by its first use."""
        return self._handle(self._remote.get(run_id, who=who, scope=scope, output=output))

    def runs(self, *, who: Identity, status: RunFilter | str = "", limit: int = 50, after: str = "") -> Page[RunStatus]:
        """A page of the runs of `who`, newest first, as `harborage.client.RemoteRuntime.runs`."""
        return self._open.call(self._remote.runs(who=who, status=status, limit=limit, after=after))

    def pending(self, *, who: Identity, limit: int = 50, after: str = "") -> Page[Pending]:
        """A page of what the runs of `who` wait for a person to answer."""
        page = self._open.call(self._remote.pending(who=who, limit=limit, after=after))
        return Page([Pending(one, self._open) for one in page], page.next)

    def _handle(self, run: Any) -> Run[Any]:
        return Run(run, self._open)

    @property
    def _open(self) -> _LoopThread:
        if self._thread is None:
            raise RuntimeClosedError()
        return self._thread
