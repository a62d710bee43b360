"""Cassettes: exchanges with a real model, recorded once into a file and answered from it ever after, offline.

`record(client, path)` writes one, `replay(path)` answers from it, and `cassette:path.json` as a model does either in a
whole chain. What identifies a run is left out, so that a second run finds what the first one recorded; secrets are left
out, too. A request that was not recorded fails loudly and shows what differs.
"""

from __future__ import annotations

from harborage.llm.cassette.clients import Recording, Replaying, record, replay
from harborage.llm.cassette.driver import RECORD_VARIABLE, cassette_config, make
from harborage.llm.cassette.errors import (
    CassetteError,
    CassetteInvalidError,
    CassetteMissError,
    CassetteUnusedError,
)
from harborage.llm.cassette.tape import Cassette

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
