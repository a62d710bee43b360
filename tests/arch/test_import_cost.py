"""What an import must not load, read from the list of loaded modules and never from a stopwatch.

Each case runs in a fresh interpreter, because this one has loaded the test tools already.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

import msgspec

from tests.kit.tables import each_row

# Structs that hold live objects and are never decoded: the types of some of their fields are in layers above.
NEVER_DECODED = frozenset(
    {
        "AgentParts",
        "AgentSetup",
        "Call",
        "CallContext",
        "OpenSession",
        "RunContext",
        "Services",
        "Setup",
        "Shared",
        "SourceServices",
    }
)

# Network, database, provider, server, terminal: each belongs to one driver or one command and loads when that is used.
HEAVY = frozenset(
    {
        "anthropic",
        "apsw",
        "asyncpg",
        "cyclopts",
        "google",
        "httpx",
        "httpx2",
        "mcp",
        "openai",
        "opentelemetry.sdk",
        "pydantic",
        "rich",
        "sqlite3",
        "starlette",
        "temporalio",
        "uvicorn",
    }
)
# Even these load only when a name of the package is used.
LAZY = frozenset({"asyncio", "harborage.runtime", "jsonschema_rs", "msgspec", "socket", "ssl"})
# What a runtime in memory loads on first use: each costs a millisecond of CPU, or there are many.
ON_FIRST_USE = frozenset(
    {
        "dataclasses",
        "harborage.events.payloads.by_type",
        "harborage.memory.store",
        "harborage.runtime.effects.approval.gate",
        "harborage.runtime.run_events",
        "harborage.runtime.durable.orphans",
        "harborage.state.storage",
        "ipaddress",
        "pathlib",
        "random",
        "urllib.parse",
    }
)
A_RUNTIME = """
import asyncio
from harborage import Runtime, tool

@tool
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

async def main():
    async with Runtime(model="script:", tools=[add]):
        pass

asyncio.run(main())
"""


def loaded_by(statement: str) -> frozenset[str]:
    """The modules that running `statement` in a fresh interpreter loads, besides those that are always there."""
    code = f"import json, sys; before = set(sys.modules); {statement}; print(json.dumps([*set(sys.modules) - before]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return frozenset(json.loads(done.stdout))


def test_the_probe_sees_what_is_loaded() -> None:
    """A module that is imported deep inside another one is reported."""
    assert "sqlite3.dbapi2" in loaded_by("import sqlite3")
    assert loaded_by("pass") == frozenset()


def test_importing_harborage_loads_no_other_module() -> None:
    """`import harborage` loads none of its packages, no event loop and no dependency."""
    loaded = loaded_by("import harborage")
    assert "harborage" in loaded
    assert not loaded & (HEAVY | LAZY)
    assert {name for name in loaded if name.startswith("harborage.")} == {"harborage.exports"}


def test_the_public_names_load_no_heavy_library() -> None:
    """Using every name of `harborage` opens no network stack of a provider, no database and no terminal."""
    loaded = loaded_by("import harborage; [getattr(harborage, name) for name in harborage.__all__]")
    assert "harborage.runtime.host" in loaded
    assert not loaded & HEAVY


def test_an_agent_is_described_without_what_executes_it() -> None:
    """`from harborage import Agent` loads no host, no effects of a step and no history: the first run does."""
    loaded = loaded_by("from harborage import Agent")
    unwanted = {"harborage.app.target", "harborage.runtime.effects.assembly", "harborage.runtime.history"}
    assert not loaded & (unwanted | {"harborage.runtime.durable.stored", "harborage.runtime.host"})


def test_a_runtime_in_memory_loads_no_more_than_a_first_run_needs() -> None:
    """Building a runtime over a model loads nothing of storages, memory, approvals and streams of events, and none of
    the standard library's modules that only rare paths use."""
    loaded = loaded_by(f"exec({A_RUNTIME!r})")
    assert "harborage.planner.react.planner" in loaded
    assert not loaded & (ON_FIRST_USE | HEAVY)


@each_row(
    "package, above",
    [
        ("harborage.identity", {"harborage.events", "harborage.tools", "harborage.planner", "harborage.runtime"}),
        ("harborage.events", {"harborage.tools", "harborage.planner", "harborage.runtime"}),
        ("harborage.tools", {"harborage.planner", "harborage.runtime"}),
        ("harborage.planner", {"harborage.runtime"}),
    ],
)
def test_a_package_loads_nothing_above_it(package: str, above: set[str]) -> None:
    """Importing a package loads nothing of the layers above it, whatever its modules do."""
    loaded = loaded_by(f"import {package}")
    assert package in loaded
    assert not loaded & (above | HEAVY)


def importable(modules: Mapping[Path, object]) -> Iterator[ModuleType]:
    """Every module of the package whose third-party library is installed."""
    for path in modules:
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        if path.name == "__main__.py":
            continue
        try:
            yield import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("harborage"):
                raise


def test_the_field_types_of_a_struct_are_imported_at_runtime(modules: Mapping[Path, object]) -> None:
    """A struct can be decoded: the types of its fields are imported where it is defined, not under TYPE_CHECKING."""
    missing = []
    for module in importable(modules):
        for name, value in vars(module).items():
            is_own = getattr(value, "__module__", "") == module.__name__ and name not in NEVER_DECODED
            if is_own and isinstance(value, type) and issubclass(value, msgspec.Struct):
                try:
                    msgspec.structs.fields(value)
                except NameError as error:
                    missing.append(f"{module.__name__}.{name}: {error}")
    assert not missing, "\n".join(missing)
