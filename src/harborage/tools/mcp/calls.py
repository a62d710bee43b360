"""Calls of what a server offers: a request on a connection of its pool, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
import msgspec
from pydantic import TypeAdapter

from harborage.concurrency import CancelScope
from harborage.identity import IdentityMissingError
from harborage.tools.errors import ToolChangedError, ToolInvalidArgsError, ToolUnansweredError
from harborage.tools.mcp.asking import declined_text, needed_of, question_of, response_of
from harborage.tools.mcp.drift import difference
from harborage.tools.mcp.errors import MCPError, MCPRequestError, MCPToolError, MCPUnreachableError
from harborage.tools.mcp.failures import LostSession, failure_of, is_of_connection
from harborage.tools.mcp.http import EXCHANGE, Exchange
from harborage.tools.mcp.results import contents_of, masked, prompt_text, result_of
from harborage.tools.mcp.values import KEY_META
from harborage.tools.model import ToolResult
from harborage.tools.schema import schema_validator

if TYPE_CHECKING:
    from harborage.secrets import SecretReader
    from harborage.tools.inputs import InputAnswer, InputGiven
    from harborage.tools.mcp.connection import Connection
    from harborage.tools.mcp.descriptors import Described
    from harborage.tools.mcp.options import MCP
    from harborage.tools.mcp.pool import Pool
    from harborage.tools.mcp.status import ServerStatus
    from harborage.tools.mcp.values import RemoteTool
    from harborage.tools.model import CallContext
    from harborage.tools.sources import SourceServices

CONNECT_S: Final = 25.0
"""Seconds that a call waits for a connection at most."""

_ENDED_S: Final = 1.0
_IDENTITY: Final = ("tenant", "user", "session")
_RESULT: Final[TypeAdapter[Any]] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
_TOO_LATE: Final = "it did not take the answer, which may have come too late for it; the call was not made anew"


class _Asked:
    """A call that has its connection alone, and what the server has asked it there."""

    def __init__(self, call: CallContext[Any], tool: str) -> None:
        self.call = call
        self.tool = tool
        self.count = 0
        self.answers: tuple[InputAnswer, ...] = ()


class Calls:
    """Makes the calls of one server, and answers what it asks meanwhile."""

    def __init__(
        self,
        server: MCP,
        services: SourceServices,
        pool: Pool,
        status: ServerStatus,
        secrets: SecretReader,
        current: Callable[..., Awaitable[RemoteTool | None]],
    ) -> None:
        self._server = server
        self._services = services
        self._pool = pool
        self._status = status
        self._secrets = secrets
        self._current = current
        self._allow_hosts = (*server.allow_hosts, *services.allow_hosts)
        self._tokens = 0

    async def call_tool(self, tool: Described, args: bytes, call: CallContext[Any]) -> ToolResult:
        """Call a tool, or go on with a call whose server has asked a person."""
        arguments = msgspec.json.decode(args) if args.strip() else {}
        given, name = call.given, tool.remote.name
        if given is None:
            await self._check_drift(tool, arguments, call)
        answers: Any = None if given is None else {one.key: response_of(one) for one in given.answers}
        state = None if given is None else given.state or None

        def send(connection: Connection, meta: Any) -> Awaitable[Any]:
            # Not `call_tool`: it may list all tools behind a call that has acted, and fail that call for it.
            params = types.CallToolRequestParams(
                name=name, arguments=arguments, input_responses=answers, request_state=state, _meta=meta
            )
            # A call that may be asked waits for a person longer than for the server.
            limit = None if connection.call is not None else tool.timeout_s
            return connection.session.send_request(
                types.CallToolRequest(params=params), _RESULT, request_read_timeout_seconds=limit
            )

        result, asked = await self._made(name, send, call, alone=tool.is_guarded, timeout_s=tool.timeout_s)
        if isinstance(result, types.InputRequiredResult):
            times = 1 if given is None else given.round + 1
            limits, hosts = self._services.limits, self._allow_hosts
            needed = needed_of(result, self._server.name, name, round=times, limits=limits, allow_hosts=hosts)
            return ToolResult(needed)
        self._refuse_declined(result, name, given, asked)
        value = await result_of(masked(result, self._secrets), self._server.name, name, call)
        if tool.check_result is not None:
            _check_result(tool, result.structured_content)
        return value

    async def _check_drift(self, tool: Described, arguments: Any, call: CallContext[Any]) -> None:
        """Accept a call whose tool is still what was approved; without an approval, one whose arguments still fit.

        Raises:
            ToolChangedError: the tool has changed since, or is gone; the call was not made.
            ToolInvalidArgsError: the arguments do not fit what it takes now.
        """
        now = await self._current(tool.remote.name, is_approved=bool(call.approved))
        if now is tool.remote or (now is not None and now.digest == (call.approved or tool.remote.digest)):
            return
        if now is None:
            raise ToolChangedError(f"MCP server {self._server.name!r} does not list {tool.remote.name} any more")
        if call.approved:
            raise ToolChangedError(difference(self._server.name, tool.remote, now))
        if now.args_schema != tool.remote.args_schema:
            schema_validator(now.args_schema, f"{tool.name} args_schema")(arguments)

    def _refuse_declined(self, result: Any, tool: str, given: InputGiven | None, asked: _Asked | None) -> None:
        """Let the planner see why a question was put to no person.

        Raises:
            MCPToolError: one was not.
        """
        answers = (*(() if given is None else given.answers), *(() if asked is None else asked.answers))
        if why := declined_text(answers):
            text = "\n".join(one.text for one in result.content if one.type == "text")
            raise MCPToolError(
                self._server.name, f"{tool}: its question was declined, for {why}; it said: {text[:500]}"
            )

    async def read_resource(self, uri: str, args: bytes, call: CallContext[Any]) -> ToolResult:
        """Read a resource."""

        def send(connection: Connection, meta: Any) -> Awaitable[Any]:
            return connection.session.read_resource(uri, meta=meta)

        result, _ = await self._made(uri, send, call)
        return await contents_of(result, self._server.name, uri, call)

    async def get_prompt(self, name: str, args: bytes, call: CallContext[Any]) -> ToolResult:
        """Return a prompt with these arguments."""
        arguments = msgspec.json.decode(args) if args.strip() else {}

        def send(connection: Connection, meta: Any) -> Awaitable[Any]:
            return connection.session.get_prompt(name, arguments, meta=meta)

        result, _ = await self._made(name, send, call)
        return ToolResult(self._secrets.mask(prompt_text(result)))

    async def answer(self, connection: Connection, request: Any) -> Any:
        """Answer what the server asks on a connection; with no call that has it alone, the answer is no."""
        asked: _Asked | None = connection.call
        limits = self._services.limits
        declined = types.ElicitResult(action="decline")
        if asked is None or asked.call.services is None or asked.count >= limits.elicitation_rounds:
            return declined
        asked.count += 1
        question = question_of(self._server.name, str(asked.count), request, self._allow_hosts)
        if question is None:
            return declined
        put = asked.call.services.put
        found = await put(question, self._server.name, asked.tool, self._server.elicitation_timeout)
        asked.answers = (*asked.answers, found)
        return response_of(found)

    async def _made(
        self,
        what: str,
        send: Callable[[Connection, Any], Awaitable[Any]],
        call: CallContext[Any],
        *,
        alone: bool = False,
        timeout_s: float | None = None,
    ) -> tuple[Any, _Asked | None]:
        """Send a request on a connection; one that a lost session refused is sent once more on a new one.

        Raises:
            IdentityMissingError: the call has no identity; nothing was sent.
            ToolError: it failed.
        """
        if not (call.who.tenant_id and call.who.user_id and call.who.session_id):
            raise IdentityMissingError(f"MCP server {self._server.name!r}: a call without an identity is not sent")
        for _ in range(2):
            found = await self._sent(what, send, call, alone, timeout_s)
            if not isinstance(found, LostSession):
                return found
        raise MCPRequestError(self._server.name, f"{what}: it loses its session with every request")

    async def _sent(
        self,
        what: str,
        send: Callable[[Connection, Any], Awaitable[Any]],
        call: CallContext[Any],
        alone: bool,
        timeout_s: float | None,
    ) -> tuple[Any, _Asked | None] | LostSession:
        within_s = CONNECT_S if timeout_s is None else min(CONNECT_S, 0.9 * timeout_s)
        connection = await self._pool.acquire(alone=alone, within_s=within_s)
        self._tokens += 1
        token, exchange, clock = f"p{self._tokens}", Exchange(), self._services.clock
        asked = _Asked(call, what) if self._pool.asks_on_connection else None
        connection.call = asked
        if call.services is not None:
            connection.watch.progress[token] = partial(self._progressed, call)
        noted = EXCHANGE.set(exchange)
        began, has_failed = clock.monotonic(), True
        try:
            result = await send(connection, self._meta(call, token))
            has_failed = False
            return result, asked
        except Exception as error:
            found = await self.failure(error, connection, exchange, what)
            if isinstance(found, LostSession):
                self._pool.drop(connection)
                return found
            has_failed = isinstance(found, ToolUnansweredError | MCPUnreachableError)
            if call.given is not None and isinstance(found, MCPRequestError):
                found = MCPRequestError(self._server.name, f"{what}: {_TOO_LATE} ({found.reason})", found.error_class)
            raise found from error
        finally:
            EXCHANGE.reset(noted)
            connection.call = None
            connection.watch.progress.pop(token, None)
            self._status.called(clock.monotonic() - began, has_failed=has_failed)
            self._pool.release(connection)

    def _progressed(self, call: CallContext[Any], done: float, total: float | None, text: str) -> None:
        call.progress(self._secrets.mask(text), done=done, total=total)

    def _meta(self, call: CallContext[Any], token: str) -> dict[str, Any]:
        meta: dict[str, Any] = {}
        if call.services is not None:
            meta["progressToken"] = token
        if call.idempotency_key:
            meta[KEY_META] = call.idempotency_key
        if self._server.share_identity:
            who = (call.who.tenant_id, call.who.user_id, call.who.session_id)
            meta |= {f"dev.harborage/{name}": value for name, value in zip(_IDENTITY, who, strict=True)}
        return meta

    async def failure(
        self, error: Exception, connection: Connection, exchange: Exchange, what: str
    ) -> Exception | LostSession:
        """Return what the error of a request means, once a connection that breaks has said what it broke of."""
        if isinstance(error, MCPError):
            return error
        if not connection.is_open or is_of_connection(error):
            with CancelScope(self._services.clock, _ENDED_S):
                await asyncio.shield(connection.ended)
        return failure_of(
            error, server=self._server.name, tool=what, connection=connection, exchange=exchange,
            mask=self._secrets.mask,
        )  # fmt: skip


def _check_result(tool: Described, structured: Any) -> None:
    """Accept structured content that fits the schema that the server lists for it.

    Raises:
        ToolInvalidArgsError: it does not, or is missing.
    """
    assert tool.check_result is not None
    if structured is None:
        raise ToolInvalidArgsError("output: the server lists a schema of the result, and sent none that has one")
    try:
        tool.check_result(structured)
    except ToolInvalidArgsError as error:
        raise ToolInvalidArgsError(f"output: {error.reason}", error.path) from error
