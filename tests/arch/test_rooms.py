"""Imports only go down the house, sideways only through named doors, and only the workshop names a driver.

The tables below are the plan of the house. Imports are read from the syntax tree wherever they stand: at the top, in
a function, under TYPE_CHECKING, or as the text of a lazy target (`"harborage.room.module:attribute"`).
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

HOUSE: dict[str, frozenset[str]] = {
    "words": frozenset(
        {"callables", "identity", "errors", "exports", "ids", "clock", "concurrency", "crashes", "codec", "drivers"}
    ),
    "record": frozenset({"events", "state", "store", "artifacts"}),
    "hands": frozenset({"llm", "tools", "tasks", "memory", "skills", "sessions", "governance", "telemetry"}),
    "mind": frozenset({"planner"}),
    "heart": frozenset({"runtime"}),
    "desk": frozenset({"protocol", "server", "client"}),
    "workshop": frozenset({"app", "config", "sync"}),
    "front": frozenset({"cli", "console", "testing"}),
    "": frozenset({"", "__main__"}),  # the package itself: names everything, imported by nobody inside
}
LAYER = {room: level for level, rooms in enumerate(HOUSE.values()) for room in rooms}
WORKSHOP = LAYER["app"]

# Rooms of one layer that may import each other: (importer, imported). Hands have no such door yet; a new line here is
# a decision about the house, not a way past the test.
DOORS = frozenset(
    {
        ("callables", "errors"),
        ("codec", "errors"),
        ("events", "store"),  # a bus keeps its events in the store of record, which knows them as bytes
        ("state", "artifacts"),  # and artifacts, where it is no file beside which they could lie
        ("store", "state"),  # what a database refuses, and how its tables are brought to this version
        ("state", "store"),  # a storage has a store of record, over the same file or pool as its other stores
        ("concurrency", "clock"),
        ("concurrency", "crashes"),
        ("crashes", "errors"),
        ("drivers", "errors"),
        ("identity", "errors"),
        ("server", "protocol"),
        ("client", "protocol"),
        ("app", "config"),
    }
)

# What implements a port, by module. Outside their own room only the workshop and the front may import these names, or
# import such a module whole; everybody else is handed an object. Configuration reaches them as text, through the driver
# table of their room.
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

# Where a room puts drivers together with those of a neighbour behind a door: (who does so, whose driver).
_OVER_A_POOL = ("asking", "audit", "claiming", "lane", "reading", "store", "telling", "workers", "writing")
PUT_TOGETHER = frozenset(
    {
        # A storage puts the store of record beside the others, and its file and threads serve those, too.
        *((f"harborage.state.{one}", f"harborage.store.{one}") for one in ("postgres", "sqlite")),
        ("harborage.state.memory_storage", "harborage.store.memory"),
        # A loop that is embedded without a storage keeps its pauses and its tasks in memory.
        ("harborage.runtime.pauses.coordinator", "harborage.store.memory"),
        ("harborage.runtime.assembly", "harborage.store.memory"),
        ("harborage.tasks.registry", "harborage.store.memory"),
        *(
            ("harborage.state.sqlite.records", f"harborage.store.sqlite.{part}")
            for part in ("connection", "database", "transactions")
        ),
        # And so do the pool of connections, and what it knows of the driver.
        *(
            (f"harborage.store.postgres.{one}", f"harborage.state.postgres.{part}")
            for one in (*_OVER_A_POOL, "documents")
            for part in ("database", "driver", "faults", "notices", "rows")
        ),
        ("harborage.state.memory_storage", "harborage.artifacts.memory"),
    }
)

# Well under the 177 that stood here when this was written, far above what a walk of the wrong folder finds.
FEWEST_MODULES = 150

LAZY_TARGET = re.compile(r"(harborage(?:\.\w+)+):(\w+)")


class Import(NamedTuple):
    """One import: who asks, for which module, and for which name of it ('' for the module itself)."""

    importer: str
    module: str
    name: str
    line: int

    def __str__(self) -> str:
        wanted = f"{self.name} from {self.module}" if self.name else self.module
        return f"{self.importer}:{self.line} imports {wanted}"


def module_name(path: Path) -> str:
    """The dotted name of the module in the file `path`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """The room a module of the package lives in; '' for the package itself."""
    return module.removeprefix("harborage").removeprefix(".").partition(".")[0]


def imports_of(path: Path, tree: ast.Module) -> Iterator[Import]:
    """Every import of the package by itself in one module, at any depth, lazy targets included."""
    importer = module_name(path)
    for node in ast.walk(tree):
        for module, name in wanted_by(node, path):
            if module == "harborage" and name == "__version__":
                continue  # a constant, known before any room is
            if module == "harborage" and name in LAYER:
                module, name = f"harborage.{name}", ""
            if module.partition(".")[0] == "harborage":
                yield Import(importer, module, name, getattr(node, "lineno", 0))


def wanted_by(node: ast.AST, path: Path) -> Iterator[tuple[str, str]]:
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
    """Every import of the package by itself."""
    return tuple(found for path, tree in modules.items() for found in imports_of(path, tree))


def climbs(found: Import) -> bool:
    """Whether an import goes up, or sideways where there is no door."""
    here, there = room_of(found.importer), room_of(found.module)
    if here == there or here == "":
        return False
    return LAYER[there] > LAYER[here] or (LAYER[there] == LAYER[here] and (here, there) not in DOORS)


def parsed(path: str, source: str) -> list[Import]:
    """The imports of a module that a test writes down itself."""
    return list(imports_of(Path(path), ast.parse(source)))


def test_the_walk_sees_the_house(modules: Modules) -> None:
    """The tests below read the whole package, not an empty or a moved folder."""
    assert len(modules) >= FEWEST_MODULES
    assert Path("harborage/identity.py") in modules


def test_every_room_stands_in_the_plan(modules: Modules) -> None:
    """A new top-level file or folder of the package is given a layer before it is used."""
    rooms = {room_of(module_name(path)) for path in modules}
    assert rooms <= LAYER.keys(), f"give these a layer in LAYERS: {sorted(rooms - LAYER.keys())}"


def test_every_import_finds_a_room(imports: Sequence[Import]) -> None:
    """Nothing imports a room that the plan does not know."""
    strange = [str(found) for found in imports if room_of(found.module) not in LAYER]
    assert not strange


def test_imports_only_go_down(imports: Sequence[Import]) -> None:
    """A module imports its own room, rooms of lower layers, and rooms behind a named door."""
    known = [found for found in imports if room_of(found.module) in LAYER]
    climbing = [str(found) for found in known if climbs(found)]
    assert not climbing, "\n".join(climbing)


def test_every_door_is_used(modules: Modules, imports: Sequence[Import]) -> None:
    """A door between two rooms that both exist is used by the room it was cut for; a useless one is closed."""
    rooms = {room_of(module_name(path)) for path in modules}
    used = {(room_of(found.importer), room_of(found.module)) for found in imports}
    assert {door for door in DOORS if set(door) <= rooms} <= used


@pytest.mark.parametrize("folder", ["src/harborage/planner", "tests/planner"])
def test_the_mind_never_knows_the_heart(root: Path, folder: str) -> None:
    """No planner and no test of one imports the runtime, so every built-in planner can be written by a third party."""
    files = sorted((root / folder).rglob("*.py"))
    assert files, f"{folder} is empty: the walk is broken"
    found = [one for file in files for one in imports_of(file, ast.parse(file.read_text("utf-8")))]
    assert not [str(one) for one in found if room_of(one.module) in {"runtime", "", "app", "cli"}]


def names_a_driver(found: Import) -> bool:
    """Whether a module below the workshop imports another room's driver, from its module or through the room's door."""
    here, there = room_of(found.importer), room_of(found.module)
    if here == there or LAYER[here] >= WORKSHOP or (found.importer, found.module) in PUT_TOGETHER:
        return False
    return any(reaches(found, module, names) for module, names in DRIVERS.items() if room_of(module) == there)


def reaches(found: Import, module: str, names: frozenset[str]) -> bool:
    """Whether an import gets hold of the driver `module`, which defines `names`."""
    if found.module == module:
        return found.name in names or not found.name
    through_the_door = found.module == f"harborage.{room_of(module)}" and found.name in names
    return through_the_door or f"{found.module}.{found.name}" == module or found.module.startswith(f"{module}.")


def test_only_the_workshop_names_a_driver(imports: Sequence[Import]) -> None:
    """Runtime, planners and hands are handed stores and buses; which ones is decided at assembly."""
    named = [str(found) for found in imports if names_a_driver(found)]
    assert not named, "\n".join(named)


def test_every_driver_is_listed(modules: Modules) -> None:
    """Whatever a room's driver table can name, as the text of a lazy target, stands in the table above."""
    sources = {path: tree for path, tree in modules.items() if LAYER[room_of(module_name(path))] < WORKSHOP}
    targets = {
        (target[1], target[2])
        for tree in sources.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and (target := LAZY_TARGET.fullmatch(str(node.value)))
    }
    assert targets
    assert not [target for target in sorted(targets) if target[1] not in DRIVERS.get(target[0], ())]


def test_every_listed_driver_exists(modules: Modules) -> None:
    """The table of drivers names no module that is gone."""
    assert DRIVERS.keys() <= {module_name(path) for path in modules}


def test_every_folder_is_a_package(modules: Modules) -> None:
    """Each folder of the package has an `__init__.py` that says what the folder is for."""
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
def test_an_import_that_climbs_is_found(path: str, source: str) -> None:
    """Every way of writing an import is seen: absolute, relative, in a function, for types only, as a lazy target."""
    assert [found for found in parsed(path, source) if climbs(found)]


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
def test_an_import_that_goes_down_is_free(path: str, source: str) -> None:
    """Own room, lower layers, named doors and the package's version may be imported."""
    assert not [found for found in parsed(path, source) if climbs(found)]


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
    """A driver is seen behind its module, behind its room's door and behind a lazy target; the workshop may name it."""
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
def test_a_port_is_free(source: str) -> None:
    """A protocol may be imported, even from the module that also holds its driver."""
    found = parsed("harborage/runtime/host.py", source)
    assert found
    assert not [one for one in found if names_a_driver(one)]


def test_contributors_are_told_of_the_layers_that_are_there(root: Path) -> None:
    """In their order, and of none whose rooms are still to be built."""
    package = root / "src" / "harborage"
    built = [
        name
        for name, rooms in HOUSE.items()
        if name and any((package / room).is_dir() or (package / f"{room}.py").is_file() for room in rooms)
    ]
    told = re.search(r"holds the plan of the house: ([^.]*)\.", (root / "CONTRIBUTING.md").read_text("utf-8"))
    assert told is not None
    assert [one.strip() for one in told[1].split(",")] == built
