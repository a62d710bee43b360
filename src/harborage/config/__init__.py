"""The configuration of a deployment: `harborage.yaml` with the environment over it, checked as a whole, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.config.findings import Category as Category
    from harborage.config.findings import ConfigError as ConfigError
    from harborage.config.findings import ConfigNotFoundError as ConfigNotFoundError
    from harborage.config.findings import Finding as Finding
    from harborage.config.findings import InvalidConfigurationError as InvalidConfigurationError
    from harborage.config.findings import Notice as Notice
    from harborage.config.loader import FILE_NAME as FILE_NAME
    from harborage.config.loader import Loaded as Loaded
    from harborage.config.loader import default_file as default_file
    from harborage.config.loader import load_config as load_config
    from harborage.config.loader import read_config as read_config
    from harborage.config.loader import with_overrides as with_overrides
    from harborage.config.reloading import ConfigReloader as ConfigReloader
    from harborage.config.reloading import Reloaded as Reloaded
    from harborage.config.reloading import ReloadRefused as ReloadRefused
    from harborage.config.rendering import json_schema as json_schema
    from harborage.config.rendering import masked as masked
    from harborage.config.values import Config as Config
    from harborage.secrets import Secret as Secret
    from harborage.secrets import SecretMissingError as SecretMissingError
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.config.findings": (
                "Category ConfigError ConfigNotFoundError Finding InvalidConfigurationError Notice"
            ),
            "harborage.config.loader": "FILE_NAME Loaded default_file load_config read_config with_overrides",
            "harborage.config.reloading": "ConfigReloader ReloadRefused Reloaded",
            "harborage.config.rendering": "json_schema masked",
            "harborage.secrets": "Secret SecretMissingError",
            "harborage.config.values": "Config",
        },
    )
