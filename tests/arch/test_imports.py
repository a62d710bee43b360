"""Imports only go down the layers, within a layer only where an exception is listed, and only `app` names a driver.

The tables below say which package belongs to which layer and list the exceptions. A package is a folder or a module
directly below `harborage`. Imports are read from the syntax tree wherever they are written: at the top, in a function,
under TYPE_CHECKING, or as the text of a lazy target (`"harborage.package.module:attribute"`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.tables import each_row

Modules = Mapping[Path, ast.Module]

LAYERS: dict[str, frozenset[str]] = {
    "base": frozenset(
        {
            "callables",
            "identity",
            "errors",
            "exports",
            "ids",
            "clock",
            "concurrency",
            "crashes",
            "codec",
            "drivers",
            "secrets",
        }
    ),
    "record": frozenset({"events", "state", "store", "artifacts"}),
    "capabilities": frozenset({"llm", "tools", "tasks", "memory", "skills", "sessions", "governance", "telemetry"}),
    "planner": frozenset({"planner"}),
    "runtime": frozenset({"runtime"}),
    "edge": frozenset({"protocol", "server", "client"}),
    "app": frozenset({"app", "config", "sync"}),
    "front": frozenset({"cli", "console", "testing"}),
    "": frozenset({"", "__main__"}),  # `harborage` itself: may import every package, and no package imports it
}
LEVEL = {package: level for level, packages in enumerate(LAYERS.values()) for package in packages}
APP = LEVEL["app"]

# The allowed imports between packages of one layer: (importer, imported). Capabilities have none; a new line here is a
# decision about the design, not a way around the test.
SAME_LAYER = frozenset(
    {
        ("callables", "errors"),
        ("codec", "errors"),
        ("events", "store"),  # a bus keeps its events in the store of record, which knows them as bytes
        ("state", "artifacts"),  # and artifacts, where the storage is no file beside which they could lie
        ("store", "state"),  # what a database refuses, and how its tables are brought to this version
        ("state", "store"),  # a storage has a store of record, over the same file or pool as its other stores
        ("concurrency", "clock"),
        ("concurrency", "crashes"),
        ("crashes", "errors"),
        ("drivers", "errors"),
        ("identity", "errors"),
        ("secrets", "clock"),
        ("secrets", "errors"),
        ("server", "protocol"),
        ("client", "protocol"),
        ("app", "config"),
    }
)

# What implements a port, by module. Outside their own package only `app` and the layers above it may import these names
# or the whole module; other code receives an object. Configuration names them as text, in the driver table of their
# package.
DRIVERS: Mapping[str, frozenset[str]] = {
    "harborage.artifacts.files": frozenset({"FileArtifactStore", "make"}),
    "harborage.artifacts.memory": frozenset({"MemoryArtifactStore", "make"}),
    "harborage.events.memory_bus": frozenset({"MemoryEventBus"}),
    "harborage.events.redaction": frozenset({"PatternRedactor", "default_redactor"}),
    "harborage.llm.anthropic": frozenset({"AnthropicDriver", "make"}),
    "harborage.llm.pydantic_ai": frozenset({"PydanticAIDriver", "make"}),
    "harborage.llm.cassette": frozenset({"make"}),
    "harborage.llm.google": frozenset({"GoogleDriver", "make"}),
    "harborage.llm.local": frozenset({"make"}),
    "harborage.llm.mock": frozenset({"MockLLM", "make"}),
    "harborage.llm.openai_compat": frozenset({"OpenAICompatDriver", "make"}),
    "harborage.llm.openai_responses": frozenset({"OpenAIResponsesDriver", "make"}),
    "harborage.llm.scripted": frozenset({"make"}),
    "harborage.planner.deterministic": frozenset({"DeterministicPlanner"}),
    "harborage.planner.finish": frozenset({"FinishPlanner", "make"}),
    "harborage.planner.react": frozenset({"ReActPlanner", "make"}),
    "harborage.events.durable_bus": frozenset({"DurableEventBus", "make"}),
    "harborage.state.memory_storage": frozenset({"open_memory"}),
    "harborage.state.postgres": frozenset(
        {
            "Database",
            "PostgresArtifacts",
            "PostgresStateStore",
            "make",
            "open_postgres",
        }
    ),
    "harborage.state.sqlite": frozenset({"SQLiteStateStore", "make", "open_sqlite", "storage_of"}),
    "harborage.state.memory": frozenset({"MemoryStateStore", "make"}),
    "harborage.store.memory": frozenset({"MemoryStore"}),
    "harborage.store.postgres": frozenset({"PostgresStore"}),
    "harborage.store.sqlite": frozenset({"Database", "SQLiteStore"}),
}

# Which packages and modules may import the drivers of another package all the same: (importer, module of the driver).
DRIVER_IMPORTS = frozenset(
    {
        # A storage opens the store of record with its other stores, which share its file and threads …
        ("harborage.state.memory_storage", "harborage.artifacts.memory"),
        ("harborage.state.memory_storage", "harborage.store.memory"),
        ("harborage.state.postgres", "harborage.store.postgres"),
        ("harborage.state.sqlite", "harborage.store.sqlite"),
        *(
            ("harborage.state.sqlite.records", f"harborage.store.sqlite.{module}")
            for module in ("connection", "database", "transactions")
        ),
        # … or, on Postgres, its pool of connections and the helpers for the driver.
        *(
            ("harborage.store.postgres", f"harborage.state.postgres.{module}")
            for module in ("database", "driver", "records")
        ),
        # A loop that is embedded without a storage keeps its pauses and its tasks in memory.
        ("harborage.runtime.effects.assembly", "harborage.store.memory"),
        ("harborage.runtime.durable.pauses.coordinator", "harborage.store.memory"),
        ("harborage.tasks.registry", "harborage.store.memory"),
    }
)

# Far below the number of modules there are, far above what a walk of the wrong folder finds.
MIN_MODULES = 150

LAZY_TARGET = re.compile(r"(harborage(?:\.\w+)+):(\w+)")


class Import(NamedTuple):
    """One import: the importing module, the imported module, and the name taken from it ('' for the module itself)."""

    importer: str
    module: str
    name: str
    line: int

    def __str__(self) -> str:
        imported = f"{self.name} from {self.module}" if self.name else self.module
        return f"{self.importer}:{self.line} imports {imported}"


def module_name(path: Path) -> str:
    """The dotted name of the module in the file `path`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    """The package below `harborage` that a module belongs to; '' for `harborage` itself."""
    return module.removeprefix("harborage").removeprefix(".").partition(".")[0]


def imports_of(path: Path, tree: ast.Module) -> Iterator[Import]:
    """Every import of `harborage` in one of its modules, at any depth, lazy targets included."""
    importer = module_name(path)
    for node in ast.walk(tree):
        for module, name in imported_by(node, path):
            if module == "harborage" and name == "__version__":
                continue  # a constant that is defined before any package is imported
            if module == "harborage" and name in LEVEL:
                module, name = f"harborage.{name}", ""
            if module.partition(".")[0] == "harborage":
                yield Import(importer, module, name, getattr(node, "lineno", 0))


def imported_by(node: ast.AST, path: Path) -> Iterator[tuple[str, str]]:
    """The (module, name) pairs that one node of a module's syntax tree imports."""
    match node:
        case ast.Import(names=names):
            yield from ((alias.name, "") for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            package = path.parent.parts[: len(path.parent.parts) + 1 - level] if level else ()
            source = ".".join((*package, *([module] if module else [])))
            yield from ((source, alias.name) for alias in names)
        case ast.Constant(value=str(text)) if target := LAZY_TARGET.fullmatch(text):
            yield target[1], target[2]
        case ast.Call(func=ast.Name("import_module") | ast.Attribute(attr="import_module"), args=[ast.Constant(name)]):
            yield str(name), ""


@pytest.fixture(scope="module")
def imports(modules: Modules) -> tuple[Import, ...]:
    """Every import of `harborage` in its own modules."""
    return tuple(found for path, tree in modules.items() for found in imports_of(path, tree))


def is_forbidden(found: Import) -> bool:
    """Whether an import goes up, or stays within a layer without being listed in `SAME_LAYER`."""
    here, there = package_of(found.importer), package_of(found.module)
    if here == there or here == "":
        return False
    return LEVEL[there] > LEVEL[here] or (LEVEL[there] == LEVEL[here] and (here, there) not in SAME_LAYER)


def parsed(path: str, source: str) -> list[Import]:
    """The imports of a module whose source a test gives."""
    return list(imports_of(Path(path), ast.parse(source)))


def test_the_walk_finds_the_whole_package(modules: Modules) -> None:
    """The tests below read every module, not an empty or a moved folder."""
    assert len(modules) >= MIN_MODULES
    assert Path("harborage/identity.py") in modules


def test_every_package_has_a_layer(modules: Modules) -> None:
    """A new top-level file or folder is given a layer before it is used."""
    packages = {package_of(module_name(path)) for path in modules}
    assert packages <= LEVEL.keys(), f"give these a layer in LAYERS: {sorted(packages - LEVEL.keys())}"


def test_every_imported_package_has_a_layer(imports: Sequence[Import]) -> None:
    """No module imports a package that `LAYERS` does not name."""
    unknown = [str(found) for found in imports if package_of(found.module) not in LEVEL]
    assert not unknown


def test_imports_only_go_down(imports: Sequence[Import]) -> None:
    """A module imports its own package, packages of lower layers, and those that `SAME_LAYER` allows it."""
    known = [found for found in imports if package_of(found.module) in LEVEL]
    forbidden = [str(found) for found in known if is_forbidden(found)]
    assert not forbidden, "\n".join(forbidden)


def test_every_allowed_import_within_a_layer_is_used(modules: Modules, imports: Sequence[Import]) -> None:
    """An exception between two packages that both exist is used by its importer; one that is not is removed."""
    packages = {package_of(module_name(path)) for path in modules}
    used = {(package_of(found.importer), package_of(found.module)) for found in imports}
    assert {pair for pair in SAME_LAYER if set(pair) <= packages} <= used


@pytest.mark.parametrize("folder", ["src/harborage/planner", "tests/planner"])
def test_no_planner_imports_the_runtime(root: Path, folder: str) -> None:
    """Neither `planner` nor its tests import the runtime, so a third party can write every built-in planner."""
    files = sorted((root / folder).rglob("*.py"))
    assert files, f"{folder} is empty: the walk is broken"
    found = [one for file in files for one in imports_of(file, ast.parse(file.read_text("utf-8")))]
    assert not [str(one) for one in found if package_of(one.module) in {"runtime", "", "app", "cli"}]


def names_a_driver(found: Import) -> bool:
    """Whether a module below `app` imports another package's driver, from its module or from the package."""
    here, there = package_of(found.importer), package_of(found.module)
    if here == there or LEVEL[here] >= APP or any(is_excepted(found, *allowed) for allowed in DRIVER_IMPORTS):
        return False
    return any(loads_driver(found, module, names) for module, names in DRIVERS.items() if package_of(module) == there)


def is_excepted(found: Import, importer: str, module: str) -> bool:
    """Whether an import is of the driver `module`, by `importer` or a module in it."""
    return found.module == module and f"{found.importer}.".startswith(f"{importer}.")


def loads_driver(found: Import, module: str, names: frozenset[str]) -> bool:
    """Whether an import loads the driver `module`, which defines `names`."""
    if found.module == module:
        return found.name in names or not found.name
    from_package = found.module == f"harborage.{package_of(module)}" and found.name in names
    return from_package or f"{found.module}.{found.name}" == module or found.module.startswith(f"{module}.")


def test_only_app_and_above_name_a_driver(imports: Sequence[Import]) -> None:
    """Capabilities, planners and the runtime receive their stores, buses and clients; `app` decides which ones."""
    named = [str(found) for found in imports if names_a_driver(found)]
    assert not named, "\n".join(named)


def test_every_allowed_import_of_a_driver_is_used(imports: Sequence[Import]) -> None:
    """An exception that no module needs any more is removed."""
    unused = [allowed for allowed in DRIVER_IMPORTS if not any(is_excepted(found, *allowed) for found in imports)]
    assert not unused, f"remove from DRIVER_IMPORTS: {unused}"


def test_every_driver_is_listed(modules: Modules) -> None:
    """Each lazy target of a package's driver table is listed in `DRIVERS`."""
    sources = {path: tree for path, tree in modules.items() if LEVEL[package_of(module_name(path))] < APP}
    targets = {
        (target[1], target[2])
        for tree in sources.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and (target := LAZY_TARGET.fullmatch(str(node.value)))
    }
    assert targets
    assert not [target for target in sorted(targets) if target[1] not in DRIVERS.get(target[0], ())]


def test_every_listed_driver_exists(modules: Modules) -> None:
    """`DRIVERS` names no module that was removed."""
    assert DRIVERS.keys() <= {module_name(path) for path in modules}


def test_every_folder_is_a_package(modules: Modules) -> None:
    """Each folder below `harborage` has an `__init__.py` that says what the folder is for."""
    bare = {path.parent for path in modules} - {path.parent for path in modules if path.name == "__init__.py"}
    assert not bare
    assert not [path for path, tree in modules.items() if tree.body and not ast.get_docstring(tree)]


@each_row(
    "path, source",
    [
        ("harborage/planner/x.py", "from harborage.runtime.host import Runtime"),
        ("harborage/planner/x.py", "from harborage import runtime"),
        ("harborage/planner/x.py", "from harborage import Runtime"),
        ("harborage/planner/react/x.py", "from ...runtime.host import Runtime"),
        ("harborage/tools/x.py", "def late():\n    import harborage.planner.decisions"),
        ("harborage/tools/x.py", "if TYPE_CHECKING:\n    from harborage.tasks import Task"),
        ("harborage/events/x.py", "TARGETS = {'react': 'harborage.planner.react:make'}"),
        ("harborage/state/x.py", "importlib.import_module('harborage.llm.client')"),
        ("harborage/clock.py", "import harborage.concurrency"),
    ],
)
def test_an_import_that_goes_up_is_found(path: str, source: str) -> None:
    """Every way of writing an import is seen: absolute, relative, in a function, for types only, as a lazy target."""
    assert [found for found in parsed(path, source) if is_forbidden(found)]


@each_row(
    "path, source",
    [
        ("harborage/planner/react/x.py", "from ..decisions import Finish"),
        ("harborage/planner/__init__.py", "from .decisions import Finish"),
        ("harborage/runtime/host.py", "from harborage.planner import Planner"),
        ("harborage/server/x.py", "from harborage.protocol import codes"),
        ("harborage/cli/main.py", "from harborage import __version__"),
        ("harborage/tools/x.py", "log = getLogger('harborage.runtime.host')"),
        ("harborage/__init__.py", "from harborage.runtime.host import Runtime"),
    ],
)
def test_an_import_that_goes_down_is_allowed(path: str, source: str) -> None:
    """A module may import its own package, lower layers, listed exceptions and the version of `harborage`."""
    assert not [found for found in parsed(path, source) if is_forbidden(found)]


@each_row(
    "source",
    [
        "from harborage.artifacts.files import FileArtifactStore",
        "from harborage.artifacts import files",
        "from harborage.artifacts import FileArtifactStore",
        "import harborage.artifacts.files",
        "STORE = 'harborage.artifacts.files:FileArtifactStore'",
        "from harborage.events.memory_bus import MemoryEventBus",
        "from harborage.planner.deterministic.steps import CallToolStep",
    ],
)
def test_a_driver_that_is_named_is_found(source: str) -> None:
    """A driver is found in an import of its module, of its package and in a lazy target; `app` may name it."""
    (found,) = parsed("harborage/runtime/host.py", source)
    assert names_a_driver(found)
    (found,) = parsed("harborage/app/build.py", source)
    assert not names_a_driver(found)


@each_row(
    "source",
    [
        "from harborage.events.bus import EventBus",
        "from harborage.events import EventBus, Event",
        "import harborage.state",
    ],
)
def test_a_port_may_be_imported(source: str) -> None:
    """A protocol is no driver, also where it is imported from the package that offers its driver."""
    found = parsed("harborage/runtime/host.py", source)
    assert found
    assert not [one for one in found if names_a_driver(one)]


def test_the_contributors_guide_lists_the_layers_that_exist(root: Path) -> None:
    """In their order, and without those whose packages are still to be built."""
    source = root / "src" / "harborage"
    built = [
        layer
        for layer, packages in LAYERS.items()
        if layer and any((source / one).is_dir() or (source / f"{one}.py").is_file() for one in packages)
    ]
    listed = re.search(r"holds the table of layers: ([^.]*)\.", (root / "CONTRIBUTING.md").read_text("utf-8"))
    assert listed is not None
    assert [one.strip() for one in listed[1].split(",")] == built
