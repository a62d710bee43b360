"""The surroundings of a replay: the model answers from the record, and the network is refused.

Code that opens a connection gets an error that names it: the code in the block alone (this task, and the tasks and
threads that it starts), or with `everywhere` the whole process, which is right for one that does nothing else.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from harborage import codec
from harborage.errors import HarborageError
from harborage.llm import AnswerBuilder, CompleteRequest, CompleteResponse
from harborage.runtime.durable.model_records import Exchange, Prompt, error_of, prompt_of, response_of, slim
from harborage.runtime.effects.model import ReasonerConfig
from harborage.runtime.history.differences import Difference, DifferenceKind, prompt_diff
from harborage.runtime.loop.limits import Limits

if TYPE_CHECKING:
    from datetime import datetime

    from harborage.artifacts import ArtifactStore
    from harborage.clock import Timer, Timers
    from harborage.runtime.effects.agent_setup import AgentSetup
    from harborage.runtime.effects.assembly import Setup

_INSIDE: ContextVar[Attempts | None] = ContextVar("harborage_offline", default=None)
_METHODS: Final = ("__init__", "connect", "connect_ex", "sendto", "sendmsg")
_RESOLVERS: Final = ("getaddrinfo", "gethostbyname", "gethostbyname_ex")
_PLUMBING: Final = ("socket.py", "selectors.py", "ssl.py", "threading.py", "queue.py", "contextlib.py", "runners.py")


class OfflineError(HarborageError):
    """Code tried to use the network inside `offline`. `culprit` is that code: `file:line function`."""

    def __init__(self, culprit: str = "", what: str = "") -> None:
        self.culprit = culprit
        self.what = what
        super().__init__(f"{culprit} tried to use the network ({what}), which is forbidden here" if culprit else "")


class Attempts:
    """The refused attempts to use the network, in order."""

    def __init__(self) -> None:
        self.refused: list[OfflineError] = []
        self.is_over = False  # a task that is started in the block may outlive it


class _Guard:
    """Replaces the parts of `socket` that use the network, while at least one block is entered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._process: list[Attempts] = []
        self._originals: list[tuple[Any, str, Any]] = []

    def enter(self, attempts: Attempts, everywhere: bool) -> None:
        with self._lock:
            self._blocks += 1
            if everywhere:
                self._process.append(attempts)
            if self._blocks == 1:
                self._install()

    def leave(self, attempts: Attempts, everywhere: bool) -> None:
        with self._lock:
            self._blocks -= 1
            if everywhere:
                self._process.remove(attempts)
            if not self._blocks:
                for owner, name, original in self._originals:
                    if original is None:
                        delattr(owner, name)
                    else:
                        setattr(owner, name, original)
                self._originals.clear()

    def _install(self) -> None:
        for name in _METHODS:
            self._replace(socket.socket, name)
        for name in _RESOLVERS:
            self._replace(socket, name)
        # It resolves names in a thread without the caller's context, so the request itself is refused.
        self._replace(asyncio.BaseEventLoop, "getaddrinfo")

    def _replace(self, owner: Any, name: str) -> None:
        inner = getattr(owner, name)
        # An inherited attribute is restored by deleting our own.
        self._originals.append((owner, name, vars(owner).get(name)))

        def guarded(*args: Any, **options: Any) -> Any:
            self._check(name, args, options)
            return inner(*args, **options)

        setattr(owner, name, guarded)

    def _check(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        attempts = _INSIDE.get()
        if attempts is None or attempts.is_over:
            attempts = self._process[-1] if self._process else None
        if attempts is None or (name == "__init__" and not _is_new_to_the_network(*args[1:], **options)):
            return
        what = "a socket" if name == "__init__" else f"{name} {_address(args)}".strip()
        error = OfflineError(_culprit(), what)
        attempts.refused.append(error)
        raise error


def _is_new_to_the_network(family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> bool:
    """Return whether a socket with these arguments can reach another machine; the pairs of event loops cannot."""
    return fileno is None and family in _NETWORK


_NETWORK: Final = (-1, socket.AF_INET, socket.AF_INET6)
_GUARD: Final = _Guard()


@contextmanager
def offline(*, everywhere: bool = False) -> Iterator[Attempts]:
    """Refuse the network inside the block; the value of the block lists the attempts.

    Connections that are open already stay open. Blocks may nest and overlap.
    """
    attempts = Attempts()
    _GUARD.enter(attempts, everywhere)
    token = _INSIDE.set(attempts)
    try:
        yield attempts
    finally:
        attempts.is_over = True
        _INSIDE.reset(token)
        _GUARD.leave(attempts, everywhere)


def _culprit() -> str:
    """Return the code that used the network: the innermost frame outside of libraries, and its caller."""
    frames: list[traceback.FrameSummary] = []
    for frame in traceback.extract_stack(sys._getframe(2)):
        if frame.name == "_run" and Path(frame.filename).parts[-2:] == ("asyncio", "events.py"):
            frames.clear()  # the frames below run the event loop, and did not use the network
        elif not _is_plumbing(frame.filename):
            frames.append(frame)
    if not frames:
        return "something"
    near = frames[-1]
    own = next((one for one in reversed(frames) if "site-packages" not in one.filename), near)
    place = f"{_short(near.filename)}:{near.lineno} {near.name}"
    return place if own is near else f"{place} (called from {_short(own.filename)}:{own.lineno} {own.name})"


def _is_plumbing(file: str) -> bool:
    path = Path(file)
    return path == _THIS or path.name in _PLUMBING or "asyncio" in path.parts or file.startswith("<")


_THIS: Final = Path(__file__)


def _short(file: str) -> str:
    path = Path(file)
    for root in ("site-packages", "src"):
        if root in path.parts:
            return str(Path(*path.parts[path.parts.index(root) + 1 :]))
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _address(args: tuple[Any, ...]) -> str:
    """Return the host and port of the attempt, and no data."""
    places = [one for one in args if isinstance(one, tuple) and len(one) >= 2]
    if places:
        return f"{places[0][0]}:{places[0][1]}"
    return next((str(one) for one in args if isinstance(one, str)), "")


_OFF: Final = "the record holds no answers of a model: it was made with records_model=False, or before there was any"


class NotRecordedError(HarborageError):
    """The planner makes a model call that was not recorded."""


class RecordedCall(NamedTuple):
    """One recorded call of the model, with its prompt whole."""

    prompt: Prompt
    exchange: Exchange


class ReplayClient:
    """The client of one replay. `difference` is the first request without a recorded answer.

    It answers for whatever model the run was given.
    """

    answers_for_any = True

    def __init__(self, *, is_any_recorded: bool, clean: Callable[[Any], Any] | None = None) -> None:
        self._is_any_recorded = is_any_recorded
        self._clean = clean
        self._step = 0
        self._calls: list[RecordedCall] = []
        self.difference: Difference | None = None

    def begin(self, step: int, calls: Sequence[RecordedCall]) -> None:
        """Answer the calls of this step from now on."""
        self._step = step
        self._calls = list(calls)

    @property
    def unasked(self) -> list[RecordedCall]:
        """The recorded calls that the step has not made yet."""
        return list(self._calls)

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Return the recorded answer to this request.

        Raises:
            NotRecordedError: the request was not recorded.
            LLMError: the recorded error of the call.
        """
        asked = slim(prompt_of(request))
        found = self._find(asked)
        if found is None and self._clean is not None:
            asked = self._clean(asked)
            found = self._find(asked)
        if found is None:
            raise self._differs(asked)
        self._calls.remove(found)
        exchange = found.exchange
        if exchange.failure is not None:
            raise error_of(exchange.failure)
        if exchange.answer is None:
            raise self._miss(DifferenceKind.MODEL, "the model's answer could not be recorded when the run was made")
        with AnswerBuilder(request, provider="replay") as building:
            building.reasoning(exchange.answer.reasoning)
            building.content(exchange.answer.content)
        return response_of(exchange.answer)

    def _find(self, asked: Prompt) -> RecordedCall | None:
        return next((one for one in self._calls if _are_same(one.prompt, asked)), None)

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _differs(self, asked: Prompt) -> NotRecordedError:
        if self._calls:
            diff = prompt_diff(self._calls[0].prompt, asked)
            return self._miss(DifferenceKind.PROMPT, "the model is asked something else than was recorded", diff)
        what = "the model is called once more than was recorded" if self._is_any_recorded else _OFF
        return self._miss(DifferenceKind.MODEL, what)

    def _miss(self, kind: DifferenceKind, what: str, diff: str = "") -> NotRecordedError:
        if self.difference is None:
            self.difference = Difference(kind=kind, step=self._step, what=what, diff=diff)
        return NotRecordedError(what)


def _are_same(recorded: Prompt, asked: Prompt) -> bool:
    # A schema made of tuples is recorded with lists; in JSON they are equal.
    return recorded == asked or codec.encode(recorded) == codec.encode(asked)


class RecordedClock:
    """The clock of a replay: it shows the time of the recorded step, and fires no timer."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def set(self, at: datetime) -> None:
        """Show this time from now on."""
        self._at = at

    def now(self) -> datetime:
        """Return the time of the recorded step."""
        return self._at

    def monotonic(self) -> float:
        """Return 0: no time passes."""
        return 0.0

    def call_later(self, delay_s: float, wake: Callable[[], None]) -> Timer:
        """Return a timer that never fires."""
        return _NO_TIMER


class _NoTimer:
    def cancel(self) -> None:
        pass


_NO_TIMER: Final = _NoTimer()


def replay_setup(setup: Setup, served: ReplayClient, clock: Timers, artifacts: ArtifactStore | None) -> Setup:
    """The same parts over a served model, with nothing that reaches out or lasts."""
    return replace(
        setup,
        agents=tuple(_replayed_agent(one, served) for one in setup.agents),
        bus=None,
        artifacts=setup.artifacts if artifacts is None else artifacts,
        storage=None,
        clock=clock,
    )


def _replayed_agent(agent: AgentSetup, served: ReplayClient) -> AgentSetup:
    reasoner = agent.reasoner
    return replace(
        agent,
        agents=tuple(replace(one, setup=_replayed_agent(one.setup, served)) for one in agent.agents),
        deps=NoneType,
        asks_model_hooks=False,
        reasoner=replace(reasoner, model=served) if isinstance(reasoner, ReasonerConfig) else reasoner,
        options=replace(agent.options, records_model=False, limits=Limits(), provider_patience=timedelta()),
    )
