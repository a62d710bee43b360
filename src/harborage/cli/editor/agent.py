"""The agent's side of the protocol: sessions, prompts and cancels of an editor, each prompt a run of a served agent."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from harborage import __version__
from harborage.cli.editor.content import PromptError, read_prompt
from harborage.cli.editor.past import read_past
from harborage.cli.editor.turn import Place, Turn
from harborage.cli.status import ending_of
from harborage.errors import HarborageError
from harborage.identity import Identity
from harborage.ids import new_id
from harborage.runtime.durable.engine import RunFailedError
from harborage.sessions import SessionNotFoundError

if TYPE_CHECKING:
    from harborage.runtime.host import Runtime
    from harborage.tools import SideEffect

T = TypeVar("T")

_TENANT: Final = "local"
_log = logging.getLogger("harborage.acp")


class _Session:
    """An open session: where its prompts take place, and the one that is being answered."""

    def __init__(self, place: Place, after: int) -> None:
        self.place = place
        self.after = after
        self.turn: Turn | None = None


class EditorAgent:
    """Answers the methods of the protocol; each session is one of `user`. `library` is the protocol's."""

    def __init__(self, runtime: Runtime, library: Any, *, user: str) -> None:
        self._runtime = runtime
        self._library = library
        self._user = user
        self._client: Any = None
        self._open: dict[str, _Session] = {}

    def on_connect(self, conn: Any) -> None:
        """Take the connection to the editor, for updates and questions."""
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> Any:
        """Say what is offered here."""
        schema = self._library.schema
        return schema.InitializeResponse(
            protocol_version=self._library.PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=False, sse=False),
            ),
            auth_methods=[],
            agent_info=schema.Implementation(name="harborage", title="Harborage", version=__version__),
        )

    async def new_session(self, cwd: str, mcp_servers: Any = None, additional_directories: Any = None, **_: Any) -> Any:
        """Open a session."""
        _warn_of_servers(mcp_servers)
        who = self._who(f"acp-{new_id().lower()}")
        await self._checked(self._runtime.sessions.visit(who))
        self._enter(who, [cwd, *(additional_directories or ())])
        return self._library.schema.NewSessionResponse(session_id=who.session_id, modes=self._modes(who.session_id))

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Any = None, additional_directories: Any = None, **_: Any
    ) -> Any:
        """Open a session that was opened before, and show in the editor what happened in it."""
        _warn_of_servers(mcp_servers)
        known = self._open.get(session_id)
        if known is not None and known.turn is not None:
            raise self._library.RequestError.invalid_request({"details": _BUSY})
        who = self._who(session_id)
        try:
            await self._runtime.sessions.get(session_id, who=who)
        except SessionNotFoundError as error:
            raise self._library.RequestError.resource_not_found(session_id) from error
        self._enter(who, [cwd, *(additional_directories or ())])
        await self._checked(self._tell(who))
        return self._library.schema.LoadSessionResponse(modes=self._modes(session_id))

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> Any:
        """Give the next prompts of a session to another of the served agents."""
        session = self._session(session_id)
        if mode_id not in self._agents():
            raise self._library.RequestError.invalid_params({"details": f"there is no agent {mode_id!r} here"})
        session.place = Place(who=session.place.who, agent=mode_id, folders=session.place.folders)
        return self._library.schema.SetSessionModeResponse()

    async def prompt(self, prompt: Any, session_id: str, **_: Any) -> Any:
        """Answer a prompt with a run."""
        session = self._session(session_id)
        if session.turn is not None:
            raise self._library.RequestError.invalid_request({"details": _BUSY})
        turn = session.turn = Turn(self._runtime, self._client, self._library, session.place, after=session.after)
        try:
            stop = await self._checked(turn.take(read_prompt(prompt)))
        except PromptError as error:
            raise self._library.RequestError.invalid_params({"details": str(error)}) from error
        except self._library.RequestError:
            if not turn.is_cancelled:
                raise
            stop = "cancelled"
        finally:
            session.turn, session.after = None, turn.after
        stop = "cancelled" if turn.is_cancelled else stop
        return self._library.schema.PromptResponse(stop_reason=stop, usage=self._usage(turn))

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Cancel the run that answers the prompt of a session."""
        session = self._open.get(session_id)
        if session is not None and session.turn is not None:
            await session.turn.cancel()

    async def _tell(self, who: Identity) -> None:
        async for update in read_past(self._runtime, self._library.schema, who, self._effects):
            await self._client.session_update(session_id=who.session_id, update=update)

    async def _checked(self, work: Awaitable[T]) -> T:
        """Do what an editor asks for; a failure is one of its request.

        Raises:
            PromptError: as the work does.
            RequestError: it failed.
        """
        try:
            return await work
        except PromptError:
            raise
        except RunFailedError as error:
            details = {"details": ending_of(error).why, "run": error.run_id}
            raise self._library.RequestError.internal_error(details) from error
        except HarborageError as error:
            raise self._library.RequestError.internal_error({"details": str(error)}) from error

    def _enter(self, who: Identity, folders: list[str]) -> None:
        after = self._runtime.bus.last_sequence(who)
        agent = self._agents()[0]
        known = self._open.get(who.session_id)
        if known is not None:
            agent = known.place.agent
        self._open[who.session_id] = _Session(Place(who=who, agent=agent, folders=tuple(folders)), after)

    def _session(self, session_id: str) -> _Session:
        session = self._open.get(session_id)
        if session is None:
            raise self._library.RequestError.resource_not_found(session_id)
        return session

    def _who(self, session_id: str) -> Identity:
        return Identity(_TENANT, self._user, session_id)

    def _agents(self) -> list[str]:
        return [one.name for one in self._runtime.parts.agents.roots]

    def _modes(self, session_id: str) -> Any:
        """The agents to choose from; None for a single one."""
        schema, names = self._library.schema, self._agents()
        if len(names) == 1:
            return None
        return schema.SessionModeState(
            current_mode_id=self._open[session_id].place.agent,
            available_modes=[schema.SessionMode(id=name, name=name) for name in names],
        )

    def _effects(self, tool: str) -> SideEffect | None:
        for agent in self._runtime.parts.agents.roots:
            if (found := agent.catalog.resolve(tool)) is not None:
                return found.tool.side_effects
        return None

    def _usage(self, turn: Turn) -> Any:
        used = turn.used
        if not used.prompt_tokens + used.completion_tokens:
            return None
        return self._library.schema.Usage(
            total_tokens=used.prompt_tokens + used.completion_tokens,
            input_tokens=used.prompt_tokens,
            output_tokens=used.completion_tokens,
            thought_tokens=used.reasoning_tokens or None,
            cached_read_tokens=used.cached_tokens or None,
        )


_BUSY: Final = "the prompt before is still being answered; wait for its end, or cancel it"


def _warn_of_servers(servers: Any) -> None:
    if servers:
        names = ", ".join(str(one.name) for one in servers)
        _log.warning("the MCP servers of the editor are not used, give their tools to the agent instead: %s", names)
