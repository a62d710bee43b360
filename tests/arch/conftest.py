"""Fixtures of the architecture tests: the repository, and every module of the package, parsed once."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def modules() -> Mapping[Path, ast.Module]:
    """Every module of the package, by its path below `src`; none is imported."""
    source = ROOT / "src"
    files = sorted((source / "harborage").rglob("*.py"))
    with uncollected():
        trees = {file.relative_to(source): ast.parse(file.read_text("utf-8"), str(file)) for file in files}
    return MappingProxyType(trees)


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from what the block makes: the trees are a million objects, which stay to the end, and
    to look through them takes seconds each time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
