"""Where a provider's key comes from: the setting, the variable that the setting names, or the provider's usual one.

A key is handed to its driver and to nobody else: no error, log line or repr made here shows one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from harborage.llm.errors import InvalidConfigError, MissingAPIKeyError

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot

__all__ = ["key_variable", "resolve_key"]

_BY_VARIABLE: Final = "env."


def resolve_key(
    cfg: ConfigSnapshot, variable: str | Sequence[str] = "", environ: Mapping[str, str] | None = None
) -> str:
    """The key: `cfg.api_key`, or what the variable holds that it names as `env.NAME`; unset, the provider's `variable`.

    Of several variables the first that holds something counts. White space around a key is dropped. Without `environ`
    the process's own is read.

    Raises:
        MissingAPIKeyError: there is none; it names the variable to set.
        InvalidConfigError: what is there cannot be a key; it names the place, never the value.
    """
    values = os.environ if environ is None else environ
    names = _variables(cfg, variable)
    if not names:
        return _checked(cfg.api_key.strip(), "llm.api_key")
    found = key_variable(names, values)
    if not found:
        raise MissingAPIKeyError(cfg.provider or cfg.driver, names[0])
    return _checked(values[found].strip(), f"the environment variable {found}")


def key_variable(variables: Sequence[str], environ: Mapping[str, str]) -> str:
    """The first of `variables` that holds something; empty when none does."""
    return next((name for name in variables if environ.get(name, "").strip()), "")


def _variables(cfg: ConfigSnapshot, variable: str | Sequence[str]) -> list[str]:
    """The variables to look at; none when the setting holds the key itself."""
    configured = cfg.api_key.strip()
    if configured.startswith(_BY_VARIABLE):
        name = configured.removeprefix(_BY_VARIABLE)
        if not name:
            raise InvalidConfigError("llm.api_key is 'env.' and names no variable; write env.NAME")
        return [name]
    if configured:
        return []
    names = [name for name in ([variable] if isinstance(variable, str) else variable) if name]
    if not names:
        raise MissingAPIKeyError(cfg.provider or cfg.driver)
    return names


def _checked(key: str, where: str) -> str:
    # A header cannot carry anything else, and the error of whoever tried would quote the key.
    if not all("!" <= char <= "~" for char in key):
        raise InvalidConfigError(f"{where} holds characters that no key has (spaces, line breaks, quotes of a text?)")
    return key
