"""Tests against a recorded model: `async with cassette("tests/cassettes/weather.json", real=open_it) as model: …`.

The recording is played, offline; with `HARBORAGE_RECORD` set it is made anew with the real client. A test that asks for
something else than what was recorded fails with the difference, and so does one that leaves recordings unused.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harborage.llm.cassette import RECORD_VARIABLE, CassetteError, Recording, Replaying, record, replay

if TYPE_CHECKING:
    from harborage.llm import LLMClient

__all__ = ["cassette"]


@asynccontextmanager
async def cassette(
    path: str | Path,
    *,
    real: Callable[[], Awaitable[LLMClient]] | None = None,
    all_used: bool = True,
    environ: Mapping[str, str] = os.environ,
) -> AsyncIterator[Recording | Replaying]:
    """A client over the cassette at `path`; its `cassette` says what was asked for.

    `real` opens the client to record. Unless `all_used` is off, a block that ends well must have asked for everything.

    Raises:
        CassetteError: there is nothing to play, or it is to be recorded and `real` is missing.
        CassetteUnusedError: at the end, for recordings that were not asked for.
    """
    wanted = environ.get(RECORD_VARIABLE, "").strip()
    if wanted and real is None:
        raise CassetteError(f"{RECORD_VARIABLE} is set, but there is no real client to record into {path}")
    client = record(await real(), path, model=wanted, environ=environ) if wanted and real else replay(path)
    try:
        yield client
    finally:
        await client.close()
    if all_used:
        client.cassette.assert_all_used()
