"""The public surface of `harborage` is a list; every name on it is there, documented and free of private names."""

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
# Unions have no place for a docstring of their own.
ALIASES = frozenset({"Decision"})
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
    """The private names that a caller would have to know to read the signature."""
    signature = inspect.signature(function)
    notes = [parameter.annotation for parameter in signature.parameters.values()] + [signature.return_annotation]
    given = [note for note in notes if note is not inspect.Signature.empty]
    texts = [note if isinstance(note, str) else inspect.formatannotation(note) for note in given]
    return [found for text in texts for found in PRIVATE.findall(text)]


def own_docstring(value: object) -> str:
    """The docstring that a class or function declares itself; what it merely inherits does not count."""
    if inspect.isclass(value):
        inherited = {base.__doc__ for base in value.__mro__[1:]}
        return "" if value.__doc__ in inherited else value.__doc__ or ""
    return value.__doc__ or ""


def test_the_list_is_the_surface() -> None:
    """`harborage.__all__` is exactly the list in tests/data/public_api.txt, sorted and without doubles."""
    assert sorted(set(PUBLIC)) == PUBLIC
    assert list(harborage.__all__) == PUBLIC


class Face(NamedTuple):
    """What one `__init__.py` offers: name → module, once as type checkers see it and once as `lazy_exports` gets it."""

    package: str
    checked: dict[str, str]
    loaded: dict[str, str]


def faces(modules: Mapping[Path, ast.Module]) -> Iterator[Face]:
    """Every package of the library that imports its names on first use."""
    for path, tree in modules.items():
        for node in tree.body:
            match node:
                case ast.If(test=ast.Name("TYPE_CHECKING"), orelse=[ast.Assign(value=ast.Call() as call)]):
                    imports = [one for one in node.body if isinstance(one, ast.ImportFrom)]
                    checked = {str(alias.asname): str(one.module) for one in imports for alias in one.names}
                    table: dict[str, str] = ast.literal_eval(call.args[1])
                    loaded = {name: module for module, names in table.items() for name in names.split()}
                    yield Face(".".join(path.parent.parts), checked, loaded)
                case _:
                    pass


def test_type_checkers_see_the_same_surface(modules: Mapping[Path, ast.Module]) -> None:
    """The imports for type checkers and the table of lazy names say the same, name for name and module for module."""
    found = list(faces(modules))
    assert {"harborage", "harborage.events", "harborage.runtime.steering"} <= {face.package for face in found}
    assert not [face.package for face in found if face.checked != face.loaded]


def test_every_name_of_a_package_is_there(modules: Mapping[Path, ast.Module]) -> None:
    """Each name that a package offers is what its module defines, also when a module of the same name is loaded."""
    for face in faces(modules):
        package = import_module(face.package)
        for name, module in face.loaded.items():
            assert getattr(package, name) is getattr(import_module(module), name), f"{face.package}.{name}"
        hidden = {name for name in face.loaded if find_spec(f"{face.package}.{name}")}
        assert not hidden, f"{face.package}: {sorted(hidden)} are modules too, which take the place of the name"


@each_row("name", PUBLIC)
def test_a_public_name_can_be_imported(name: str) -> None:
    """The name is there, is the same object every time, and is listed by dir()."""
    value = getattr(harborage, name)
    assert getattr(harborage, name) is value
    assert name in dir(harborage)


@each_row("name", [name for name in PUBLIC if name not in ALIASES])
def test_a_public_name_says_what_it_is(name: str) -> None:
    """Its docstring is its own and opens with a sentence."""
    lines = own_docstring(getattr(harborage, name)).strip().splitlines()
    assert lines
    assert " " in lines[0]


@each_row("name", PUBLIC)
def test_a_public_signature_shows_no_private_name(name: str) -> None:
    """Nobody has to import a private module or class to call it or to annotate what it gives back."""
    shown = {where: private_names(function) for where, function in public_callables(getattr(harborage, name))}
    assert not {where: names for where, names in shown.items() if names}


def test_a_private_name_in_a_signature_is_found() -> None:
    """Private classes and private modules are seen in parameters and in what is returned; ordinary names are not."""

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
