"""The provider that pages and programs of the documentation ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.kit.docs_models import answers_for
from tests.kit.llm_server import LLMServer


@pytest.fixture
def provider(page: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLMServer]:
    """The provider whose models a page asks: a server in a thread of its own, since a block may do anything."""
    loop, server = asyncio.new_event_loop(), LLMServer()
    loop.run_until_complete(server.start())
    server.script(*answers_for(page))
    for name in ("OPENAI", "VLLM"):
        monkeypatch.setenv(f"{name}_BASE_URL", server.base_url())
        monkeypatch.setenv(f"{name}_API_KEY", "sk-docs")
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield server
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(server.aclose())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
