"""Requests that are made up from the document of the server: none is a failure, and every answer is a declared one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from harborage.events import REDACTOR_DRIVERS
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from harborage.server.auth.gate import TokenGate
from harborage.server.auth.minting import development_mint, sign_development_token, verifier_of
from harborage.server.listening import Address, Listener, bound_address, listen
from tests.kit.planners import DONE, StepPlanner

CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
STREAM = "/v1/events"
SETTINGS = settings(
    max_examples=3, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


class InThread:
    """A server with an event loop of its own, in a thread."""

    def __init__(self) -> None:
        self._socket = listen(Address("127.0.0.1", 0))
        self.base = f"http://{bound_address(self._socket)}"
        self.token = ""
        self._loop = asyncio.new_event_loop()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Return once requests are answered."""
        self._thread.start()
        assert self._is_ready.wait(30)

    def stop(self) -> None:
        """Return once it has ended."""
        self._loop.call_soon_threadsafe(self._listener.stop)
        self._thread.join(30)
        self._loop.close()
        self._socket.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        mint = development_mint()
        self.token = sign_development_token(mint)
        async with Runtime(planner=StepPlanner(DONE), storage="memory:") as runtime:
            redactor = REDACTOR_DRIVERS.factory("patterns")()
            gate = TokenGate(verifier_of(mint), redactor=redactor, bus=runtime.bus)
            self._listener = Listener(Server(runtime, gate=gate, issuer=mint), self._socket, grace=1)
            self._is_ready.set()
            await self._listener.serve()


@pytest.fixture(scope="module")
def served() -> Iterator[InThread]:
    """A server for all requests of this module."""
    server = InThread()
    server.start()
    try:
        yield server
    finally:
        server.stop()


def test_made_up_requests_get_declared_answers(served: InThread) -> None:
    """Of every method: no status that the document does not name, no body of another shape, no failure."""
    schema = schemathesis.openapi.from_url(f"{served.base}/v1/openapi.json")
    headers = {"Authorization": f"Bearer {served.token}"}
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path == STREAM:
            continue  # it does not end

        @SETTINGS
        @given(case=operation.as_strategy())
        def check(case: schemathesis.Case) -> None:
            case.call_and_validate(headers=headers, checks=CHECKS, timeout=30)

        check()
        tried += 1
    assert tried >= 60
