"""From the text by which a person names a model to the whole configuration of its client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harborage.llm.providers import config_for, parse_model

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot

__all__ = ["configure"]


def configure(model: str, *, environ: Mapping[str, str]) -> ConfigSnapshot:
    """The configuration of the model that `provider:model` names; keys are found by `environ`.

    Raises:
        InvalidConfigError: the text names no model, or its provider's key is missing; it says what to do.
    """
    ref = parse_model(model)
    if ref.provider == "cassette":
        from harborage.llm.cassette import cassette_config  # whoever plays none need not load what does

        return cassette_config(ref.model, environ=environ)
    return config_for(ref, environ=environ)
