"""The Harbor Protocol spoken: `connect("https://…", token=…)` gives a runtime on a server, used as a local one is.

It imports nothing of the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.client.answers import RemoteResult as RemoteResult
    from harborage.client.connection import Patience as Patience
    from harborage.client.errors import RemoteError as RemoteError
    from harborage.client.errors import RemoteUnreachableError as RemoteUnreachableError
    from harborage.client.run import ControlFate as ControlFate
    from harborage.client.run import RemoteRun as RemoteRun
    from harborage.client.runtime import RemoteRuntime as RemoteRuntime
    from harborage.client.runtime import connect as connect
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.client.answers": "RemoteResult",
            "harborage.client.connection": "Patience",
            "harborage.client.errors": "RemoteError RemoteUnreachableError",
            "harborage.client.run": "ControlFate RemoteRun",
            "harborage.client.runtime": "RemoteRuntime connect",
        },
    )
