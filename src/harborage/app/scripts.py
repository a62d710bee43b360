"""The runtime of programs that have none of their own: one for each event loop, opened by the first run of an agent.

Runs are kept in the folder `.harborage` of the current directory, so that `harborage resume` and `harborage approve`
find them after the process; under pytest they are kept in memory.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack
from urllib.parse import quote
from weakref import WeakKeyDictionary

from harborage.app.agent import RecordedAs
from harborage.app.model_choice import with_model
from harborage.app.project import (
    DATA_FOLDER,
    LOADING,
    Origin,
    RunWhileLoadingError,
    artifact_folder,
    make_data_folder,
    remember_started,
)
from harborage.artifacts.media import split_goal
from harborage.concurrency import Crew
from harborage.errors import error_reason
from harborage.events import PauseRequestedPayload, ToolApprovalRequestedPayload
from harborage.identity import Identity
from harborage.ids import new_id
from harborage.llm.model import Model
from harborage.runtime.chat import Busy, Chat
from harborage.runtime.effects.options import RuntimeOptions, check_key
from harborage.runtime.host import Runtime
from harborage.runtime.loop.controls import Scope
from harborage.tools import ToolDescriptor

if TYPE_CHECKING:
    from harborage.app.agent import Agent, RunChoices
    from harborage.artifacts.media import Goal
    from harborage.runtime.result import Result
    from harborage.runtime.run import Run

T = TypeVar("T")

_LOGGER: Final = logging.getLogger("harborage")
_VARIABLE: Final = "HARBORAGE_STORAGE"
_DEFAULT: Final = f"sqlite:{DATA_FOLDER}/harborage.db"
_MEMORY: Final = "memory:"
_KEYED: Final = "keyed"
_OF_THE_AGENT: Final = ("model", "tools")
"""The choices for a run that make another agent of its agent."""


class _Script:
    """The runtime of one event loop. Its task closes it when the loop ends its tasks."""

    def __init__(self) -> None:
        self._started: WeakKeyDictionary[Agent[Any, Any], dict[tuple[Any, ...], RecordedAs[Any]]] = WeakKeyDictionary()
        self._marks: list[str] = []
        self._runtime: asyncio.Future[Runtime] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._crew = Crew(lambda name, error: _LOGGER.error("%s: %s", name, error_reason(error)))

    async def started(self, agent: Agent[Any, Any], session: str, changes: Mapping[str, Any]) -> RecordedAs[Any]:
        """The agent with these changes, and with a model if it names none, under the origin of the program.

        So a command line that looks for a run finds its agent, and no other program claims its runs; those of a
        conversation, or that were started with a key, are claimed by the next program that goes on with them, too.
        """
        known = self._started.setdefault(agent, {})
        variant = (session, *((name, _identity_of(value)) for name, value in sorted(changes.items())))
        if variant not in known:
            changed = agent.replace(**changes) if changes else agent
            ready, chosen = await with_model(changed, "", os.environ)
            if changed.model is None and chosen is not None:
                _say(f"{agent.name}: model {chosen.model} ({chosen.why})")
            origin = self._origin(agent, session, changes)
            if _storage(os.environ) is not None:
                remember_started(origin.target, Path.cwd())  # so that a command may execute it again
            known.setdefault(variant, RecordedAs(ready, origin.text))
        return known[variant]

    def _origin(self, agent: Agent[Any, Any], session: str, changes: Mapping[str, Any]) -> Origin:
        """Where a command line finds the agent, and a mark that later programs know it by where they go on with it."""
        mark = "-".join((session, *map(_said_of, changes.values()))) if session else new_id()
        others = [one for one in self._marks if one == mark or one.rpartition("+")[0] == mark]
        self._marks.append(mark := f"{mark}+{len(others)}" if others else mark)
        model = changes.get("model", "")
        is_by_name = set(changes) <= {"model"} and isinstance(model, str)
        target = target_of(agent if is_by_name else agent.replace(**changes))
        return Origin(
            target=target, mark=quote(mark, safe=""), folder=str(Path.cwd()), model=model if is_by_name else ""
        )

    async def runtime(self, first: RecordedAs[Any]) -> Runtime:
        """The open runtime; the first agent opens it."""
        if self._runtime is None or (self._runtime.done() and self._keeper is not None and self._keeper.done()):
            self._runtime = asyncio.get_running_loop().create_future()
            # Not in the caller's context: the runtime outlives the call that opened it.
            self._keeper = Context().run(self._crew.start, self._keep(first, self._runtime), "the runtime of a script")
        return await asyncio.shield(self._runtime)

    async def _keep(self, first: RecordedAs[Any], opened: asyncio.Future[Runtime]) -> None:
        try:
            async with Runtime([first], storage=_storage(os.environ), options=_options(os.environ)) as runtime:
                opened.set_result(runtime)
                await asyncio.Event().wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)
        finally:
            if not opened.done():
                opened.cancel()


_SCRIPTS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Script]] = WeakKeyDictionary()


async def _opened(
    agent: Agent[Any, T], session: str = "", changes: Mapping[str, Any] = {}
) -> tuple[RecordedAs[T], Runtime]:
    """The agent as the runtime of this event loop knows it, and that runtime.

    Raises:
        RunWhileLoadingError: a command line is loading the file of the program, to carry on a run or to start one.
    """
    if LOADING.get():
        raise RunWhileLoadingError()
    script = _SCRIPTS.setdefault(asyncio.get_running_loop(), _Script())
    started = await script.started(agent, session, changes)
    return started, await script.runtime(started)


async def start_run(agent: Agent[Any, T], goal: Goal, *, deps: Any = None, **choices: Unpack[RunChoices]) -> Run[T]:
    """Start a run of the agent in the runtime of this event loop.

    Without `who` it is one of the local user, in a new session; one with a key, in the session of that key.

    Raises:
        AgentNotReadyError: the agent names no model, and this machine has none.
        Exception: as of `Runtime.start`.
    """
    given: dict[str, Any] = {**choices}
    changes: dict[str, Any] = {name: given.pop(name) for name in _OF_THE_AGENT if name in given}
    key = choices.get("key", "")
    check_key(key)
    _, media = split_goal(goal)
    started, runtime = await _opened(agent, _KEYED if key else "", changes)
    if media:
        from harborage.app.attachments import check_media  # loaded with the first picture

        check_media(media, started.agent, os.environ)
    name = f"key-{quote(key, safe='')}" if key else f"run-{new_id()}"
    given.setdefault("who", Identity("local", _user(), name))
    return await runtime.start(started, goal, deps=deps, scope=Scope.ADMIN, **given)  # the machine of its caller alone


def _identity_of(value: Any) -> Any:
    """What distinguishes one choice of an agent's option from another: the value itself, or which object it is."""
    if isinstance(value, str | Model):
        return value
    return tuple(map(_identity_of, value)) if isinstance(value, list | tuple) else id(value)


def _said_of(value: Any) -> str:
    """What is said of such a choice in the same words by every program that makes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(_said_of, value))
    if isinstance(value, ToolDescriptor):
        return value.tool.name
    return str(value) if isinstance(value, str | Model) else type(value).__name__


def chat(agent: Agent[Any, T], session: str, busy: Busy | str, deps: Any = None) -> Chat[T]:
    """The conversation of the local user with an agent, in the runtime of the event loop that sends its messages.

    Raises:
        InvalidOptionError: the session is no text, or `busy` no choice.
    """

    async def start(text: Goal, busy: Busy) -> Run[T]:
        started, runtime = await _opened(agent, f"session-{session}")
        who = Identity("local", _user(), session)
        return await runtime.session(started, who=who, busy=busy, deps=deps).start(text)

    return Chat(session, start, busy=busy)


async def run_to_result(run: Run[T]) -> Result[T]:
    """Wait for a run's result; a question to a person is said once on stderr, with the command that answers it."""
    crew = Crew(lambda name, error: _LOGGER.warning("%s: %s", name, error_reason(error)))
    crew.start(_tell_questions(run), f"the questions of run {run.id}")
    try:
        return await run.result()
    finally:
        await crew.aclose()


async def _tell_questions(run: Run[Any]) -> None:
    """Say what the run waits for."""
    is_kept = _storage(os.environ) is not None
    async for event in run.events():
        match event.payload:
            case ToolApprovalRequestedPayload() as asked:
                what, token = asked.tool, asked.pause_token
            case PauseRequestedPayload() as asked:
                what, token = str(asked.reason), asked.token
            case _:
                continue
        how = f"harborage approve {token} (or reject, answer)" if is_kept else "run.approve(), run.reject(…)"
        _say(f"run {run.id} waits for a person, {what}: {how}")
        return


def run_blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run async work from code that is not; where an event loop runs already, in a thread with a loop of its own.

    Raises:
        Exception: what the work raised.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(1, "harborage run_sync") as threads:
        return threads.submit(copy_context().run, lambda: asyncio.run(work())).result()


def target_of(agent: Agent[Any, Any]) -> str:
    """How a command line names the agent: the file of the program, or a module, and the name that it has there.

    An agent that no module holds under a name is named by its own; it is found again where a file is named for it.
    """
    for module, values in list(sys.modules.items()):
        name = next((key for key, value in list(getattr(values, "__dict__", {}).items()) if value is agent), "")
        if name and module != "__main__":
            return f"{module}:{name}"
        if name and (file := getattr(values, "__file__", None)):
            path = Path(file).resolve()
            shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            return f"{shown}:{name}"
    return agent.name


def _storage(environ: Mapping[str, str]) -> str | None:
    """Where runs are kept; None for memory."""
    url = environ.get(_VARIABLE, "").strip()
    if url == _MEMORY or (not url and "PYTEST_CURRENT_TEST" in environ):
        return None
    if not url:
        make_data_folder(Path(DATA_FOLDER))
    return url or _DEFAULT


def _options(environ: Mapping[str, str]) -> RuntimeOptions:
    """The options of the runtime: artifacts of kept runs lie where a command line looks for them."""
    if _storage(environ) != _DEFAULT:
        return RuntimeOptions()
    return RuntimeOptions(artifact_driver="fs", artifact_root=str(artifact_folder(None, Path.cwd())))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "user"  # one that the system has no name for


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
