"""The driver for Chat Completions keeps every promise of a provider."""

from __future__ import annotations

import pytest

from harborage.llm import ConfigSnapshot
from harborage.llm.openai_compat import make
from harborage.testing.conformance.llm import SCENARIOS, check
from harborage.testing.conformance.llm_bench import KEY, ProviderBench
from tests.kit.llm_dialects.chat import ChatDialect
from tests.kit.llm_server import LLMServer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_provider_keeps_its_promises(scenario):
    """Each scenario of the suite holds against a server that speaks the protocol over loopback."""

    async def open_bench() -> ProviderBench:
        def config(url: str) -> ConfigSnapshot:
            return ConfigSnapshot(provider="openrouter", model="acme/test-model", api_key=KEY, base_url=url)

        return await ProviderBench.open(make, LLMServer(ChatDialect()), config)

    await check(scenario, open_bench)
