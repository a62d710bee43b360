"""The default model, and the error if there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from harborage.app import Agent, AgentNotReadyError, ChosenModel, choose_model, with_model
from harborage.app.model_choice import ask_ollama, ollama_address
from harborage.planner import PlannerConfig
from harborage.planner.finish import FinishPlanner
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio


async def no_ollama(address: str) -> None:
    """No Ollama answers."""


async def an_ollama(address: str) -> list[str]:
    """An Ollama that has two models."""
    return ["qwen3:4b", "llama3"]


async def choose(environ: dict[str, str], ollama=no_ollama, *, embedded: bool = False, installed: bool = True):
    """The choice on a machine that has what the parameters say."""
    return await choose_model(environ, ollama=ollama, embedded=lambda: embedded, installed=lambda package: installed)


@each_row(
    "variable, provider",
    [
        ("ANTHROPIC_API_KEY", "anthropic"),
        ("OPENAI_API_KEY", "openai"),
        ("GEMINI_API_KEY", "google"),
        ("GOOGLE_API_KEY", "google"),
        ("OPENROUTER_API_KEY", "openrouter"),
        ("MISTRAL_API_KEY", "mistral"),
        ("GROQ_API_KEY", "groq"),
        ("XAI_API_KEY", "xai"),
        ("DEEPSEEK_API_KEY", "deepseek"),
    ],
)
async def test_a_key_chooses_its_provider(variable: str, provider: str) -> None:
    """The provider whose key is set is taken, before anything local, and the reason names the variable."""
    chosen = await choose({variable: "k"}, an_ollama, embedded=True)
    assert chosen.model.partition(":")[0] == provider
    assert chosen.model.partition(":")[2]
    assert variable in chosen.why
    assert "k" not in chosen.why.split()


async def test_every_model_that_a_key_chooses_can_be_configured() -> None:
    """The models of the table are ones that the edge knows how to open."""
    from harborage.app.model_choice import _BY_KEY
    from harborage.llm.providers import config_for, parse_model

    for variable, model, _ in _BY_KEY:
        config = config_for(parse_model(model), environ={variable: "k"})
        assert config.model
        assert config.profiles[config.model].context_window_tokens > 0


async def test_an_empty_key_is_no_key() -> None:
    """A variable that is set to nothing chooses nothing."""
    assert (await choose({"OPENAI_API_KEY": "  "}, an_ollama)).model == "ollama:qwen3:4b"


async def test_a_key_without_its_driver_is_passed_over() -> None:
    """Where the provider's package is not installed, the next one is asked."""
    chosen = await choose({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, installed=False)
    assert chosen.model.startswith("openai:")


async def test_ollama_comes_before_the_embedded_model() -> None:
    """The first model of an Ollama that answers; the reason says where it answers."""
    chosen = await choose({"OLLAMA_HOST": "10.0.0.1"}, an_ollama, embedded=True)
    assert chosen == ChosenModel("ollama:qwen3:4b", "Ollama answers at http://10.0.0.1:11434")


async def test_an_ollama_without_models_is_no_help() -> None:
    """An Ollama that has nothing pulled is passed over."""

    async def bare(address: str) -> list[str]:
        return []

    assert (await choose({}, bare, embedded=True)).model == "local:"


async def test_the_embedded_model_is_the_last_resort() -> None:
    """Without key and Ollama, the embedded model; the reason says so."""
    chosen = await choose({}, embedded=True)
    assert chosen == ChosenModel("local:", "no provider's key is set and no Ollama answers")


async def test_nothing_at_all_is_an_error_with_the_ways_out() -> None:
    """No model is never silently a fake one."""
    with pytest.raises(AgentNotReadyError, match=r"(?s)OPENAI_API_KEY.*ollama pull.*models pull smollm2.*--model"):
        await choose({})


@each_row(
    "host, address",
    [
        ("", "http://127.0.0.1:11434"),
        ("10.0.0.1", "http://10.0.0.1:11434"),
        ("10.0.0.1:99", "http://10.0.0.1:99"),
        ("0.0.0.0:99", "http://127.0.0.1:99"),
        ("https://there.example:443/", "https://there.example:443"),
        (":99", "http://127.0.0.1:99"),
    ],
)
def test_the_address_of_ollama(host: str, address: str) -> None:
    """`OLLAMA_HOST` is read as Ollama reads it."""
    assert ollama_address({"OLLAMA_HOST": host}) == address


@asynccontextmanager
async def a_server(answer: bytes) -> AsyncIterator[str]:
    """A web server that gives this answer to everybody; its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def http(body: bytes, status: str = "200 OK") -> bytes:
    """A whole HTTP answer."""
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status.encode(), len(body), body)


@each_row(
    "answer, models",
    [
        (http(b'{"models":[{"name":"a:1","size":3},{"name":"b"}]}'), ["a:1", "b"]),
        (http(b'{"models":[]}'), []),
        (http(b"<html>something else listens here</html>"), None),
        (http(b"{}", "404 Not Found"), None),
        (b"", None),
    ],
)
async def test_an_ollama_is_asked_for_its_models(answer: bytes, models: list[str] | None) -> None:
    """The names in its list; whatever else listens there is no Ollama."""
    async with a_server(answer) as address:
        assert await ask_ollama(address) == models


async def test_no_server_listens_at_the_address_of_ollama() -> None:
    """A refused connection means that there is none."""
    async with a_server(b"") as address:
        pass
    assert await ask_ollama(address) is None


async def test_a_named_model_is_taken_as_it_is() -> None:
    """`--model` wins over the agent's own; without it the agent's own is kept."""
    agent = Agent(name="a", model="openai:x")
    asked, chosen = await with_model(agent, "ollama:y", {})
    assert (asked.model, chosen) == ("ollama:y", ChosenModel("ollama:y", ""))
    kept, chosen = await with_model(agent, "", {})
    assert (kept, chosen) == (agent, ChosenModel("openai:x", ""))


async def test_an_agent_without_a_model_gets_one() -> None:
    """Whatever is found, with the planner's configuration kept."""
    config = PlannerConfig(max_steps=3)
    agent, chosen = await with_model(Agent(name="a", planner=config), "", {"OPENAI_API_KEY": "k"})
    assert chosen is not None
    assert (agent.model, agent.planner) == (chosen.model, config)


async def test_an_agent_with_its_own_planner_takes_no_model() -> None:
    """Without `--model` it is left alone; with it the error names the agent."""
    agent = Agent(name="mine", planner=FinishPlanner())
    assert await with_model(agent, "", {"OPENAI_API_KEY": "k"}) == (agent, None)
    with pytest.raises(AgentNotReadyError, match="mine brings its own planner"):
        await with_model(agent, "openai:x", {})
