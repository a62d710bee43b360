"""The public surface of `harborage` is a list; every name on it exists, is documented and shows no private name."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

import harborage
from tests.kit.tables import each_row

PUBLIC = (Path(__file__).resolve().parents[1] / "data" / "public_api.txt").read_text("utf-8").split()
# A union has no docstring of its own.
ALIASES = frozenset({"Decision", "Verdict"})
PRIVATE = re.compile(r"(?<![\w'\"])_[A-Za-z]\w*")


def public_callables(value: object) -> Iterator[tuple[str, Callable[..., object]]]:
    """The callables a caller reaches through one public name: the function, or the class and its public methods."""
    if inspect.isfunction(value):
        yield value.__name__, value
    elif inspect.isclass(value):
        for name, member in inspect.getmembers(value, inspect.isfunction):
            is_ours = member.__module__.startswith("harborage")
            if is_ours and (name == "__init__" or not name.startswith("_")):
                yield f"{value.__name__}.{name}", member


def private_names(function: Callable[..., object]) -> list[str]:
    """The private names in a signature."""
    signature = inspect.signature(function)
    notes = [parameter.annotation for parameter in signature.parameters.values()] + [signature.return_annotation]
    present = [note for note in notes if note is not inspect.Signature.empty]
    texts = [note if isinstance(note, str) else inspect.formatannotation(note) for note in present]
    return [found for text in texts for found in PRIVATE.findall(text)]


def own_docstring(value: object) -> str:
    """The docstring that a class or function declares itself; what it merely inherits does not count."""
    if inspect.isclass(value):
        inherited = {base.__doc__ for base in value.__mro__[1:]}
        return "" if value.__doc__ in inherited else value.__doc__ or ""
    return value.__doc__ or ""


def test_the_public_surface_is_the_list() -> None:
    """`harborage.__all__` is exactly the list in tests/data/public_api.txt, sorted and without duplicates."""
    assert sorted(set(PUBLIC)) == PUBLIC
    assert list(harborage.__all__) == PUBLIC


class Exports(NamedTuple):
    """What one face exports: name → module, as type checkers see it and as `lazy_exports` loads it."""

    package: str
    checked: dict[str, str]
    loaded: dict[str, str]


def exports_of(modules: Mapping[Path, ast.Module]) -> Iterator[Exports]:
    """Every package, and every module, of the library that imports its names on first use."""
    for path, tree in modules.items():
        for node in tree.body:
            match node:
                case ast.If(test=ast.Name("TYPE_CHECKING"), orelse=[ast.Assign(value=ast.Call() as call)]):
                    imports = [one for one in node.body if isinstance(one, ast.ImportFrom)]
                    checked = {str(alias.asname): str(one.module) for one in imports for alias in one.names}
                    table: dict[str, str] = ast.literal_eval(call.args[1])
                    loaded = {name: module for module, names in table.items() for name in names.split()}
                    parts = path.parent.parts if path.stem == "__init__" else path.with_suffix("").parts
                    yield Exports(".".join(parts), checked, loaded)
                case _:
                    pass


def test_type_checkers_see_the_same_surface(modules: Mapping[Path, ast.Module]) -> None:
    """The imports for type checkers and the table of lazy names say the same, name for name and module for module."""
    found = list(exports_of(modules))
    assert {"harborage", "harborage.events", "harborage.runtime.steering"} <= {one.package for one in found}
    assert not [one.package for one in found if one.checked != one.loaded]


def test_every_exported_name_exists(modules: Mapping[Path, ast.Module]) -> None:
    """Each name that a package exports is the object of its module, also when a module of the same name is loaded."""
    for exports in exports_of(modules):
        package = import_module(exports.package)
        for name, module in exports.loaded.items():
            assert getattr(package, name) is getattr(import_module(module), name), f"{exports.package}.{name}"
        is_package = hasattr(package, "__path__")
        hidden = {name for name in exports.loaded if is_package and find_spec(f"{exports.package}.{name}")}
        assert not hidden, f"{exports.package}: {sorted(hidden)} are also modules, which would replace the names"


@each_row("name", PUBLIC)
def test_a_public_name_can_be_imported(name: str) -> None:
    """The name exists, is the same object every time, and is listed by dir()."""
    value = getattr(harborage, name)
    assert getattr(harborage, name) is value
    assert name in dir(harborage)


@each_row("name", [name for name in PUBLIC if name not in ALIASES])
def test_a_public_name_has_a_docstring(name: str) -> None:
    """Its docstring is its own and opens with a sentence."""
    lines = own_docstring(getattr(harborage, name)).strip().splitlines()
    assert lines
    assert " " in lines[0]


@each_row("name", PUBLIC)
def test_a_public_signature_shows_no_private_name(name: str) -> None:
    """A caller needs no private module or class to call it or to annotate what it returns."""
    shown = {where: private_names(function) for where, function in public_callables(getattr(harborage, name))}
    assert not {where: names for where, names in shown.items() if names}


def test_a_private_name_in_a_signature_is_found() -> None:
    """Private classes and modules are found in parameters and in return types; ordinary names are not reported."""

    def planted(first: _Hidden | None, second: harborage._inner.Thing) -> list[_Hidden]: ...  # noqa: F821

    def plain(first_one: str | None, second: Literal["_word"]) -> dict[str, object]: ...

    assert private_names(planted) == ["_Hidden", "_inner", "_Hidden"]
    assert private_names(plain) == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A misspelt name fails as it would on any module, and names itself."""
    with pytest.raises(AttributeError, match="no attribute 'Runtimes'"):
        _ = harborage.Runtimes


def test_the_version_is_a_version() -> None:
    """`harborage.__version__` is the one place the version is written: three numbers and perhaps a suffix."""
    assert re.fullmatch(r"\d+\.\d+\.\d+(?:[ab.]\w+)?", harborage.__version__)
