"""A model on this machine, without a key and without a network: its weights, its server and its driver.

`local:` is the small model that `harborage models pull smollm2` fetches, `local:/path/to/model.gguf` any other one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.llm.local.weights import LocalServerError, PullFailedError, UnknownWeightsError, WeightsMissingError

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot, Deps
    from harborage.llm.local.driver import LocalDriver

__all__ = ["LocalServerError", "PullFailedError", "UnknownWeightsError", "WeightsMissingError", "make"]


def make(cfg: ConfigSnapshot, deps: Deps) -> LocalDriver:
    """Return a driver for the configured model; its server starts with the first call.

    Raises:
        MissingExtraError: the server is not installed.
        UnknownWeightsError: the model is neither a known name nor a file.
        WeightsMissingError: the weights are not on this machine; the text says how to fetch them.
    """
    # Listing and fetching weights needs no driver.
    from harborage.llm.local.driver import LocalDriver, check_installed
    from harborage.llm.local.weights import find_file

    check_installed()
    return LocalDriver(find_file(cfg.model), cfg, deps)
