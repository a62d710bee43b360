"""The floors of the runtime: the loop, how runs are kept, what steps do, their history, and the host above them.

A floor imports those below it alone, so the rules of the loop know of no store, and a host can be replaced.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

FLOORS = ("loop", "durable", "effects", "history")
HOST = len(FLOORS)
RUNTIME = "harborage.runtime."
PURE = ("asyncio", "harborage.clock", "harborage.concurrency", "random", "socket", "threading", "time")
"""What no rule of the loop may import."""

Graph = dict[str, frozenset[str]]


def name_of(path: Path) -> str:
    """The dotted name of a module within the runtime."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts).removeprefix(RUNTIME)


def floor_of(module: str) -> int:
    """The floor of a module, from the lowest; what lies in no floor's folder belongs to the host."""
    first = module.partition(".")[0]
    return FLOORS.index(first) if first in FLOORS else HOST


def imported(tree: ast.Module) -> list[str]:
    """Every module, and name in a module, that a module imports, in functions and for types alone, too."""
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                found += [module, *(f"{module}.{alias.name}" for alias in names)]
            case ast.Import(names=names):
                found += [alias.name for alias in names]
            case _:
                pass
    return found


def graph_of(trees: Mapping[str, ast.Module]) -> Graph:
    """Which modules of the runtime each of them imports."""
    return {
        module: frozenset(one.removeprefix(RUNTIME) for one in imported(tree)) & trees.keys() - {module}
        for module, tree in trees.items()
    }


def upward(graph: Graph) -> list[str]:
    """The imports from a floor to a higher one."""
    return [
        f"{module} imports {other}"
        for module, others in graph.items()
        for other in sorted(others)
        if floor_of(other) > floor_of(module)
    ]


def in_cycles(graph: Graph) -> list[str]:
    """The modules that import each other in a circle, and those that lie between two circles."""
    left = {module: set(others) for module, others in graph.items()}
    while free := [module for module, others in left.items() if not others & left.keys()]:
        for module in free:
            del left[module]
    while unused := [module for module in left if not any(module in others for others in left.values())]:
        for module in unused:
            del left[module]
    return sorted(left)


@pytest.fixture(scope="module")
def runtime(modules: Mapping[Path, ast.Module]) -> dict[str, ast.Module]:
    """The modules of the runtime, by name."""
    return {name_of(path): tree for path, tree in modules.items() if ".".join(path.parts).startswith(RUNTIME)}


def test_every_floor_has_modules(runtime: Mapping[str, ast.Module]) -> None:
    """The walk finds each floor, and the host."""
    assert {floor_of(module) for module in runtime} == set(range(HOST + 1))
    assert {"loop.loop", "durable.recorder", "effects.table", "history.replaying", "host"} <= runtime.keys()


def test_no_floor_imports_a_higher_one(runtime: Mapping[str, ast.Module]) -> None:
    """Imports in the runtime go down its floors, those for types alone included."""
    assert not upward(graph_of(runtime))


def test_no_modules_of_the_runtime_import_each_other_in_a_circle(runtime: Mapping[str, ast.Module]) -> None:
    """Each module can be read after those that it imports."""
    assert not in_cycles(graph_of(runtime))


def test_the_loop_is_made_of_rules(runtime: Mapping[str, ast.Module]) -> None:
    """No module of the lowest floor reads a clock, starts a task or does I/O."""
    rules = {module: imported(tree) for module, tree in runtime.items() if floor_of(module) == 0}
    assert not {module: found for module, names in rules.items() if (found := [one for one in names if one in PURE])}


def test_an_upward_import_and_a_circle_are_found() -> None:
    """A rule that imports its host, and two modules that import each other, are named."""
    planted = {
        "loop.gate": ast.parse("def late():\n    from harborage.runtime.durable import stored"),
        "durable.stored": ast.parse("from harborage.runtime.durable.lease import Lease"),
        "durable.lease": ast.parse("import harborage.runtime.durable.stored"),
        "host": ast.parse("from harborage.runtime.loop import gate"),
    }
    graph = graph_of(planted)
    assert upward(graph) == ["loop.gate imports durable.stored"]
    assert in_cycles(graph) == ["durable.lease", "durable.stored"]
