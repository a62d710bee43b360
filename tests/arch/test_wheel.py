"""The wheel holds the product alone: the tests, their kit and their programs stay in the repository."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder

REPOSITORY_ONLY = frozenset({"benchmarks", "hypothesis", "pytest", "tests", "tests_adapters", "tests_console"})


def packages_of(tree: ast.Module) -> Iterator[str]:
    """The top-level packages that a module imports, at any depth."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]


def test_no_module_of_the_product_imports_a_test_or_a_test_tool(modules: Mapping[Path, ast.Module]) -> None:
    """What a module imports is installed with the wheel, also for those in `harborage.testing`; only pytest itself
    loads its plugin."""
    found = {path.as_posix(): sorted(REPOSITORY_ONLY & {*packages_of(tree)}) for path, tree in modules.items()}
    assert found.pop("harborage/testing/plugin.py") == ["pytest"]
    assert len(found) > 100
    assert not {path: names for path, names in found.items() if names}


@pytest.mark.parametrize("source", ["import tests.kit", "def late():\n    from tests.kit import postgres"])
def test_an_import_of_a_test_is_found(source: str) -> None:
    """An import of the module or of a name, at the top or in a function."""
    assert "tests" in packages_of(ast.parse(source))


def test_the_wheel_holds_the_package_and_nothing_else(root: Path, tmp_path: Path) -> None:
    """Every file lies in `harborage` or in the wheel's own folder, and every module of the package is there."""
    (wheel,) = WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"])
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"harborage"}
    source = root / "src"
    assert {str(file.relative_to(source)) for file in (source / "harborage").rglob("*.py")} <= {*names}
