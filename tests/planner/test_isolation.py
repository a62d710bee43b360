"""A planner can be swapped because it knows nothing of the runtime: no module of this room imports it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "src" / "harborage" / "planner", ROOT / "tests" / "planner")
ALLOWED = {
    "artifacts",
    "callables",
    "clock",
    "codec",
    "concurrency",
    "drivers",
    "errors",
    "events",
    "exports",
    "identity",
    "ids",
    "llm",
    "planner",
    "tasks",
    "tools",
}
ALLOWED_IN_TESTS = ALLOWED | {"testing", "state"}


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported anywhere in the file, also in functions and under TYPE_CHECKING."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms(tree: ast.AST) -> set[str]:
    """The rooms of the house that the file imports."""
    names = [name.split(".") for name in imported(tree)]
    return {parts[1] for parts in names if parts[0] == "harborage" and len(parts) > 1}


def test_no_module_imports_the_runtime():
    """Every file of the planner, and every test of it, stays below the runtime."""
    files = {folder: sorted(folder.rglob("*.py")) for folder in FOLDERS}
    for folder, allowed in zip(FOLDERS, (ALLOWED, ALLOWED_IN_TESTS), strict=True):
        # An empty walk would pass whatever the files say.
        assert len(files[folder]) >= 8
        for file in files[folder]:
            strangers = rooms(ast.parse(file.read_text("utf-8"))) - allowed
            assert not strangers, f"{file.relative_to(ROOT)} imports {strangers}"


def test_an_import_is_found_wherever_it_hides():
    """The walk sees imports in functions, under conditions and in either form."""
    source = "def f():\n  if x:\n    import harborage.runtime.host\nfrom harborage import runtime\n"
    assert rooms(ast.parse(source)) == {"runtime"}
