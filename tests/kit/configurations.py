"""Configurations that tests change: the smallest valid one, and how one key of it is set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]

from harborage.config import Finding, InvalidConfigurationError, Loaded, read_config

VALID: Mapping[str, Any] = {
    "identity": {"jwt_algorithms": ["ES256"], "issuer": "shop", "audience": "harbor", "jwks_file": "keys.json"},
    "llm": {"driver": "mock"},
}


def text_of(changes: Mapping[str, Any] = {}, *, without: str = "") -> bytes:
    """The smallest valid file with other values, by dotted keys; `without` names a key that is left out."""
    made: dict[str, Any] = {name: dict(block) for name, block in VALID.items()}
    for key, value in changes.items():
        *blocks, name = key.split(".")
        at = made
        for block in blocks:
            at = at.setdefault(block, {})
        at[name] = value
    if without:
        block, name = without.split(".")
        del made[block][name]
    text: str = yaml.safe_dump(made, sort_keys=False)
    return text.encode()


def read(changes: Mapping[str, Any] = {}, *, environ: Mapping[str, str] = {}) -> Loaded:
    """The valid configuration with these values."""
    return read_config(text_of(changes), environ=environ)


def found(changes: Mapping[str, Any] = {}, *, without: str = "", environ: Mapping[str, str] = {}) -> list[Finding]:
    """Everything that is wrong with the configuration with these values."""
    return findings(text_of(changes, without=without), environ=environ)


def findings(text: bytes, *, environ: Mapping[str, str] = {}) -> list[Finding]:
    """Everything that is wrong with a text; nothing if nothing is."""
    try:
        read_config(text, environ=environ)
    except InvalidConfigurationError as error:
        return [*error.findings]
    return []


def paths(changes: Mapping[str, Any] = {}, *, without: str = "", environ: Mapping[str, str] = {}) -> list[str]:
    """The keys that something is wrong with."""
    return [one.path or one.reason for one in found(changes, without=without, environ=environ)]
