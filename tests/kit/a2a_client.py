"""The client of `a2a-sdk` against a server on a socket: `async with a2a_client(base, "support") as peer`.

The library is known by name alone, so that this module is typed without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from harborage.ids import new_id
from tests.kit.wire import ADA, WITHIN_S, caller_headers

if TYPE_CHECKING:
    from harborage.identity import Identity

VERSIONS = ("1.0", "0.3")


class Peer:
    """Another agent's client, with the few words that tests need."""

    def __init__(self, client: Any, card: Any) -> None:
        self.client = client
        self.card = card
        self.types: Any = import_module("a2a.types.a2a_pb2")

    def message(self, *parts: Any, context: str = "", task: str = "", id: str = "") -> Any:
        """A message of texts, JSON values and parts."""
        helpers: Any = import_module("a2a.helpers")
        made = [
            helpers.new_text_part(one)
            if isinstance(one, str)
            else helpers.new_data_part(one)
            if isinstance(one, dict | list)
            else one
            for one in parts
        ]
        return self.types.Message(
            message_id=id or new_id(), context_id=context, task_id=task, role=self.types.Role.ROLE_USER, parts=made
        )

    async def send(self, *parts: Any, context: str = "", task: str = "", id: str = "", **how: Any) -> list[Any]:
        """Send a message and return all events of the answer."""
        message = self.message(*parts, context=context, task=task, id=id)
        configuration = self.types.SendMessageConfiguration(**how)
        request = self.types.SendMessageRequest(message=message, configuration=configuration)
        async with asyncio.timeout(WITHIN_S):
            return [event async for event in self.client.send_message(request)]

    async def ask(self, *parts: Any, context: str = "", task: str = "", id: str = "") -> Any:
        """Send a message and return the task as it stands at the end of the answer."""
        events = await self.send(*parts, context=context, task=task, id=id)
        return await self.get(events[0].task.id)

    async def get(self, id: str) -> Any:
        """Return a task."""
        async with asyncio.timeout(WITHIN_S):
            return await self.client.get_task(self.types.GetTaskRequest(id=id))

    async def cancel(self, id: str) -> Any:
        """Cancel a task and return it."""
        async with asyncio.timeout(WITHIN_S):
            return await self.client.cancel_task(self.types.CancelTaskRequest(id=id))

    def subscribe(self, id: str) -> Any:
        """The events of a task from now on."""
        return self.client.subscribe(self.types.SubscribeToTaskRequest(id=id))

    def state(self, task: Any) -> str:
        """The state of a task, or of a change of it, in one word."""
        name = str(self.types.TaskState.Name(task.status.state))
        return name.removeprefix("TASK_STATE_").lower()


@asynccontextmanager
async def a2a_client(
    base: str,
    agent: str = "",
    who: Identity | None = ADA,
    *,
    version: str = "1.0",
    streams: bool = True,
    token: str = "",
) -> AsyncIterator[Peer]:
    """Read the card of an agent, the server's first one by default, and connect as a principal or with a token."""
    sdk: Any = import_module("a2a.client")
    headers = {} if who is None else caller_headers(who)
    headers |= {"authorization": f"Bearer {token}"} if token else {}
    http: Any = import_module("httpx").AsyncClient(headers=headers, timeout=WITHIN_S)
    async with http:
        place = f"{base}/v1/a2a/{agent}" if agent else base
        card = await sdk.A2ACardResolver(http, place).get_agent_card()
        kept = [one for one in card.supported_interfaces if one.protocol_version == version]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(kept)
        config = sdk.ClientConfig(httpx_client=http, streaming=streams)
        client = await sdk.create_client(card, config)
        try:
            yield Peer(client, card)
        finally:
            await client.close()
