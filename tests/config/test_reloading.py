"""A running server takes new values of some keys when its file changes, and nothing from a file that is wrong."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from harborage.config import load_config
from harborage.config.keys import dotted, leaves
from harborage.config.reloading import ConfigReloader, Reloaded, ReloadRefused
from harborage.config.values import Config
from harborage.testing.clock import FakeClock
from tests.kit.configurations import text_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A valid file."""
    path = tmp_path / "harborage.yaml"
    path.write_bytes(text_of())
    return path


def write(file: Path, changes: dict[str, Any]) -> None:
    """Replace the file, as editors do; two versions never share a time stamp here."""
    new = file.with_suffix(".new")
    new.write_bytes(text_of(changes))
    stamp = file.stat().st_mtime_ns + 1_000_000 if file.exists() else 1
    os.utime(new, ns=(stamp, stamp))
    new.replace(file)


def remove(file: Path) -> None:
    """Take the file away."""
    file.unlink()


def test_the_keys_that_reload_are_these() -> None:
    """Log level, origins, the limit of requests, and how tokens are verified; a new one is a decision."""
    assert [dotted(path) for path, info in leaves(Config) if info.key.reloads] == [
        "server.allowed_origins",
        "identity.jwt_algorithms",
        "identity.issuer",
        "identity.audience",
        "identity.jwks_url",
        "identity.jwks_file",
        "telemetry.log_level",
        "protocol.max_request_bytes",
    ]


async def test_a_changed_file_gives_the_new_values(file: Path) -> None:
    """Keys that reload change at once, the others keep their values and are named."""
    reloader = ConfigReloader(load_config(file, environ={}), environ={})
    assert await reloader.look() is None
    write(file, {"telemetry.log_level": "debug", "server.bind_addr": "127.0.0.1:1", "tools.built_in": ["clock.now"]})
    change = await reloader.look()
    assert isinstance(change, Reloaded)
    assert (change.changed, change.waiting) == (("telemetry.log_level",), ("server.bind_addr", "tools.built_in"))
    assert change.loaded.config.telemetry.log_level == "debug"
    assert change.loaded.config.server.bind_addr == "127.0.0.1:8080"
    assert reloader.current is change.loaded
    assert await reloader.look() is None


async def test_every_key_that_reloads_does(file: Path) -> None:
    """Each is taken from the file, and taken back."""
    reloader = ConfigReloader(load_config(file, environ={}), environ={})
    changes: dict[str, Any] = {
        "server.allowed_origins": ["https://a.test"],
        "identity.jwt_algorithms": ["RS256"],
        "identity.issuer": "other",
        "identity.audience": "other",
        "identity.jwks_url": "https://a.test/keys",
        "identity.jwks_file": "other.json",
        "telemetry.log_level": "error",
        "protocol.max_request_bytes": 5,
    }
    for key, value in changes.items():
        write(file, {key: value})
        change = await reloader.look()
        assert isinstance(change, Reloaded)
        assert key in change.changed
        write(file, {})
        back = await reloader.look()
        assert isinstance(back, Reloaded)
        assert back.changed == (key,)


async def test_a_wrong_file_is_refused_and_changes_nothing(file: Path) -> None:
    """Its findings are told once, and the old values stay until it is right again."""
    reloader = ConfigReloader(before := load_config(file, environ={}), environ={})
    write(file, {"telemetry.log_level": "loud", "project": ""})
    refused = await reloader.look()
    assert isinstance(refused, ReloadRefused)
    assert [one.path for one in refused.findings] == ["telemetry.log_level", "project"]
    assert reloader.current is before
    assert await reloader.look() is None
    remove(file)
    gone = await reloader.look()
    assert isinstance(gone, ReloadRefused)
    assert gone.findings[0].category.is_io
    write(file, {"telemetry.log_level": "warn"})
    right = await reloader.look()
    assert isinstance(right, Reloaded)
    assert right.changed == ("telemetry.log_level",)


async def test_a_file_that_is_only_touched_changes_nothing(file: Path) -> None:
    """Another time stamp or a comment means nothing."""
    reloader = ConfigReloader(load_config(file, environ={}), environ={})
    write(file, {})
    assert await reloader.look() is None


async def test_the_environment_still_wins(file: Path) -> None:
    """A variable counts over a new file, as it did when the server began."""
    environ = {"HARBORAGE_TELEMETRY_LOG_LEVEL": "error"}
    reloader = ConfigReloader(load_config(file, environ=environ), environ=environ)
    write(file, {"telemetry.log_level": "debug"})
    assert await reloader.look() is None
    assert reloader.current.config.telemetry.log_level == "error"


async def test_changes_are_looked_for_again_and_again(file: Path) -> None:
    """The clock says when; each change comes once, until the reader stops."""
    clock = FakeClock()
    reloader = ConfigReloader(load_config(file, environ={}), environ={}, clock=clock, every_s=1)
    changes = reloader.changes()
    for level in ("debug", "warn"):
        next_change = asyncio.ensure_future(anext(changes))
        await clock.run_for(3)
        assert not next_change.done()
        write(file, {"telemetry.log_level": level})
        await clock.run_for(1)
        change = await asyncio.wait_for(next_change, 10)
        assert isinstance(change, Reloaded)
        assert change.loaded.config.telemetry.log_level == level
    await changes.aclose()
