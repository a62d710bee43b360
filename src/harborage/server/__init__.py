"""The Harbor Protocol served over HTTP: `api.mount("/agents", harborage.server.app(runtime, keys="keys.json"))`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.server.application import Server as Server
    from harborage.server.application import app as app
    from harborage.server.services import ServerOptions as ServerOptions
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {"harborage.server.application": "Server app", "harborage.server.services": "ServerOptions"},
    )
