"""Cassettes: exchanges with a real model, recorded once into a file and answered from it ever after, offline.

`record(client, path)` writes one, `replay(path)` answers from it, and the model `cassette:path.json` does either in a
whole chain. The parts that identify a run are left out, so that a second run finds the recordings of the first, and so
are secrets. A request that was not recorded fails loudly and shows the difference.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harborage.events.redaction import secrets_of
from harborage.events.scrubbing import Scrubber
from harborage.llm.cassette.cassette import (
    Cassette,
    CassetteError,
    CassetteInvalidError,
    CassetteMissError,
    CassetteUnusedError,
)
from harborage.llm.cassette.clients import Recording, Replaying, record, replay
from harborage.llm.config import LLM_DRIVERS, ConfigSnapshot, Deps
from harborage.llm.errors import LLMError
from harborage.llm.providers import config_for, parse_model, profile_for

if TYPE_CHECKING:
    from harborage.llm.client import LLMClient


__all__ = [
    "RECORD_VARIABLE",
    "Cassette",
    "CassetteError",
    "CassetteInvalidError",
    "CassetteMissError",
    "CassetteUnusedError",
    "Recording",
    "Replaying",
    "cassette_config",
    "make",
    "record",
    "replay",
]

RECORD_VARIABLE: Final = "HARBORAGE_RECORD"
"""The environment variable that names the model to record, such as `openai:gpt-5-mini`."""

_DRIVER: Final = "cassette"


def cassette_config(path: str | os.PathLike[str], *, environ: Mapping[str, str]) -> ConfigSnapshot:
    """Return the configuration of a chain over the cassette at `path`.

    With `HARBORAGE_RECORD=provider:model` in `environ` it records that model, anew. Otherwise it plays as the model
    that was recorded: the profile shapes the requests, so a replay under another one would send other requests.

    Raises:
        CassetteInvalidError: there is nothing to play.
        LLMConfigError: the model to record cannot be configured; its key is missing, for example.
    """
    wanted = environ.get(RECORD_VARIABLE, "").strip()
    if wanted:
        real = config_for(parse_model(wanted), environ=environ)
        return replace(real, driver=_DRIVER, extra={**real.extra, "cassette": str(path), "record": real.driver})
    provider, _, model = Cassette.load(path).model.partition(":")
    model = model or str(path)
    return ConfigSnapshot(
        driver=_DRIVER,
        provider=provider or _DRIVER,
        model=model,
        profiles={model: profile_for(model, provider)},
        extra={"cassette": str(path)},
    )


def make(cfg: ConfigSnapshot, deps: Deps) -> LLMClient:
    """Return the driver, which plays the cassette at `extra["cassette"]`, else at the model's name.

    With the name of a driver as `extra["record"]` it records that driver under the rest of the configuration.

    Raises:
        CassetteInvalidError: no cassette is named, or there is none to play.
        LLMError: the driver to record cannot be made.
    """
    path = str(cfg.extra.get("cassette") or cfg.model)
    if not path:
        raise CassetteInvalidError("name the cassette's file: cassette:path.json")
    inner = str(cfg.extra.get("record", ""))
    if not inner:
        return Replaying(Cassette.load(path), Scrubber(secrets_of(os.environ)))
    rest = {name: value for name, value in cfg.extra.items() if name not in ("cassette", "record")}
    real = replace(cfg, driver=inner, extra=rest)
    if inner == _DRIVER:
        raise LLMError("a cassette cannot be recorded from a cassette; name a provider's driver")
    client = LLM_DRIVERS.factory(inner)(real, deps)
    secrets = [*secrets_of(os.environ), *([] if cfg.api_key.startswith("env.") else [cfg.api_key])]
    return Recording(client, Cassette(path, model=f"{cfg.provider}:{cfg.model}"), Scrubber(secrets))
