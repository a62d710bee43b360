"""The program that a server serves: read from its file at the start, and again at each reload."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from harborage.app.attachments import readable
from harborage.app.model_choice import choose_model
from harborage.app.standard_assistant import assistant
from harborage.app.target import Service, TargetError, forget_modules, importable, load_service
from harborage.runtime.effects.model import is_own_planner
from harborage.runtime.host import Runtime

if TYPE_CHECKING:
    from harborage.app.agent import Agent

MOCK: Final = "mock:mock"
PROBE_S: Final = 20.0
"""How many seconds code that has changed may take to be loaded."""

FAILED: Final = 3
"""The exit code of a probe whose program failed with an error."""

_DEFAULT_FILE: Final = "agent.py"
PROBE: Final = "import sys; from harborage.app.served import try_load; try_load(*sys.argv[1:])"


class Program:
    """A program to serve. `target` is a file or a module, with `:attribute` where it has several; "" is the standard
    assistant in `folder`. Agents that name no model use `model`; with `is_mock` all of them use the mock. Agents
    `besides` are served behind its own. With `reads_attachments` its agents get a tool that reads attached files.
    """

    def __init__(
        self,
        target: str,
        folder: Path,
        *,
        model: str = "",
        is_mock: bool = False,
        besides: Sequence[Agent[Any, Any]] = (),
        reads_attachments: bool = False,
    ) -> None:
        self._target = target
        self._folder = folder
        self._model = MOCK if is_mock else model
        self._is_mock = is_mock
        self._besides = tuple(besides)
        self._reads_attachments = reads_attachments
        self._unread: Service | None = None

    @property
    def root(self) -> Path:
        """The folder in which the program's own files lie."""
        place = self._target.partition(":")[0]
        return Path(place).resolve().parent if place.endswith(".py") else self._folder

    async def open(self, environ: Mapping[str, str]) -> None:
        """Read the program for the first time, and choose a model for the agents that name none.

        Raises:
            TargetError: it cannot be read, or holds no agent.
            AgentNotReadyError: an agent needs a model, and this machine has none.
        """
        self._unread = self.read()
        agents = self._unread.agents
        if not self._model and any(one.model is None and not is_own_planner(one.planner) for one in agents):
            self._model = (await choose_model(environ)).model

    def load(self) -> Runtime:
        """Return the runtime of the program, not entered: at first as it was opened, then as it is on disk now.

        Raises:
            TargetError: it cannot be read, or holds no agent.
            AgentNotReadyError: an agent cannot work on this machine.
        """
        service, self._unread = self._unread or self.read(), None
        if service.runtime is not None and self._besides:
            text = "fixtures need agents of their own, and the file makes its own Runtime([…]); name an agent of it"
            raise TargetError(self._target, text)
        if service.runtime is not None:
            return service.runtime
        for agent in service.agents:
            if agent.check is not None:
                agent.check()
        agents = [self._with_model(agent) for agent in service.agents]
        if self._reads_attachments:
            agents = [readable(agent) for agent in agents]
        return Runtime([*agents, *self._besides])

    async def probe(self, within_s: float = PROBE_S) -> None:
        """Load the program in a process of its own, and return once that has loaded it, or has failed with an error.

        So code that hangs, or ends its process, as it is loaded does so where nobody waits for it. What fails with an
        error does so again in `load`, which tells it best.

        Raises:
            TargetError: it does neither within `within_s` seconds, or it ended the process.
        """
        if not self._target:
            return
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROBE,
            self._target,
            str(self._folder),
            str(math.ceil(within_s) + 1),
            cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(within_s):
                code = await process.wait()
        except TimeoutError as error:
            text = (
                f"it was not loaded within {within_s:g} s; what waits or serves as the file is loaded belongs below "
                "`if __name__ == '__main__':`"
            )
            raise TargetError(self._target, text) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code not in (0, FAILED):
            text = f"it ends the process as it is loaded (exit code {code}); the server would end with it"
            raise TargetError(self._target, text)

    def read(self) -> Service:
        """Return what the program is on disk now.

        Raises:
            TargetError: it cannot be read, or holds no agent.
        """
        if not self._target:
            return Service((assistant(self._folder),), None)
        forget_modules(self.root)
        with importable(self.root):
            return load_service(self._target)

    def _with_model(self, agent: Agent[Any, Any]) -> Agent[Any, Any]:
        if not self._model or is_own_planner(agent.planner):
            return agent
        return agent.replace(model=self._model) if agent.model is None or self._is_mock else agent


def default_target(folder: Path) -> str:
    """The program that is served where none is named: `agent.py` in the folder, else the standard assistant."""
    return _DEFAULT_FILE if (folder / _DEFAULT_FILE).is_file() else ""


def try_load(target: str, folder: str, within_s: str) -> NoReturn:
    """Load a program and end the process: with 0, or with `FAILED` where that failed. Never: runs its exit handlers.

    The process ends after `within_s` seconds in any case, also where the server that started it was killed.
    """
    if sys.platform != "win32":
        signal.alarm(int(within_s))
    try:
        Program(target, Path(folder)).read()
    except Exception:  # noqa: BLE001 - the process that asked loads it again, and tells of the error
        os._exit(FAILED)
    os._exit(0)
