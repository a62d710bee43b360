"""The driver for every server that speaks OpenAI's Chat Completions, hosted or on one's own machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.llm.keys import resolve_key
from harborage.llm.openai_compat.connections import Server
from harborage.llm.openai_compat.driver import OpenAICompatDriver
from harborage.llm.providers import PROVIDERS

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot, Deps

__all__ = ["OpenAICompatDriver", "Server", "make"]


def make(cfg: ConfigSnapshot, deps: Deps) -> OpenAICompatDriver:
    """A driver for the configured provider; one that nobody knows needs only its `base_url`.

    Raises:
        MissingAPIKeyError: the provider takes no call without a key, and there is none; it names the variable.
        InvalidConfigError: the address is missing or is none, or what should be a key cannot be one.
    """
    known = PROVIDERS.get(cfg.provider)
    variables = () if known is None else known.key_variables
    named = cfg.api_key.strip()
    key = resolve_key(cfg, variables) if named or variables else ""
    variable = named.removeprefix("env.") if named.startswith("env.") else "" if named else "".join(variables[:1])
    server = Server(
        provider=cfg.provider or "openai_compat",
        base_url=cfg.base_url or ("" if known is None else known.base_url),
        key=key,
        key_variable=variable,
        headers=cfg.headers,
    )
    return OpenAICompatDriver(server, cfg, deps)
