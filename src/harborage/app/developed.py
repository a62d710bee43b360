"""The program of a development server whose configuration is in a file: both are read again at each reload."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harborage.app.configured import lacks_model
from harborage.app.configured_site import ConfiguredProgram
from harborage.config import ConfigError, read_config
from harborage.config.loader import read_file
from harborage.errors import HarborageError

if TYPE_CHECKING:
    from harborage.app.configured import Deployment
    from harborage.app.target import Service
    from harborage.config.findings import Finding
    from harborage.config.loader import Loaded
    from harborage.runtime.host import Runtime

_DRIVER_VARIABLE: Final = "HARBORAGE_LLM_DRIVER"
_OF_THE_MODEL: Final = frozenset(f"llm.{key}" for key in ("driver", "provider", "model", "api_key"))
_HINT: Final = "set llm.provider, llm.model and llm.api_key, or HARBOR_DEV_ALLOW_MOCK=1 for made-up answers"


class LLMRequiredError(HarborageError):
    """An agent needs a model, and the configuration names none that can be asked. `hint` is the way out."""

    def __init__(self, reason: str = "") -> None:
        self.hint = _HINT
        super().__init__(f"a model is needed: {reason}")


class DevelopedProgram(ConfiguredProgram):
    """A program whose agents get their models and limits from the configuration in `file`.

    With `is_mock` the mock answers in place of the model that the file names.

    Raises:
        ConfigError, LLMRequiredError: the configuration cannot be used.
    """

    def __init__(
        self, target: str, folder: Path, file: str, *, is_mock: bool, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.target = target
        self.file = Path(file).resolve()
        self._config = file
        self._is_mock_wanted = is_mock
        self._read_from = {**environ, **({_DRIVER_VARIABLE: "mock"} if is_mock else {})}
        super().__init__(target, folder, self._configuration(), environ=environ)

    def deployment(self) -> Deployment:
        """Return what a server of the program is made of, as its file is now.

        Raises:
            LLMRequiredError: an agent has no model that can be asked.
            Exception: as of `ConfiguredProgram.deployment`.
        """
        try:
            return super().deployment()
        except ConfigError as error:
            raise _told(error) from error

    def check(self, service: Service) -> None:
        """Accept agents that bring a model, and a configuration that names one for the others.

        Raises:
            LLMRequiredError: it names none, or the mock, which only the switch may choose.
        """
        driver = self.loaded.config.llm.driver
        if not self._is_mock_wanted and driver != "bifrost" and any(map(lacks_model, service.agents)):
            raise LLMRequiredError(f"llm.driver is {driver or 'blank'}")

    def load(self) -> Runtime:
        """Return the runtime of the program as its file and its configuration are now, not entered.

        Raises:
            Exception: as of `deployment`.
        """
        self.loaded = self._configuration()
        return super().load()

    def _configuration(self) -> Loaded:
        try:
            return read_config(read_file(self._config), file=self._config, environ=self._read_from)
        except ConfigError as error:
            raise _told(error) from error


def _told(error: ConfigError) -> ConfigError | LLMRequiredError:
    """Return the error itself, or that a model is needed where nothing else is wrong."""
    if error.findings and all(map(_is_of_the_model, error.findings)):
        return LLMRequiredError("; ".join(one.message for one in error.findings))
    return error


def _is_of_the_model(finding: Finding) -> bool:
    return finding.path in _OF_THE_MODEL
