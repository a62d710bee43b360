"""A driver table maps names to factories, lazily, and says what it has when it is asked for something else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harborage.drivers import (
    DriverDuplicateError,
    DriverEmptyNameError,
    DriverError,
    DriverFrozenError,
    DriverNilFactoryError,
    DriverTable,
    DriverUnknownError,
)
from harborage.errors import HarborageError

Table = DriverTable[Callable[[], str]]


def lamp() -> str:
    """A factory."""
    return "lamp"


def test_a_registered_factory_is_found_by_its_name() -> None:
    """Whether it was given at once or registered later."""
    table = Table("lights", {"a": lamp})
    table.register("b", lamp)
    assert table.factory("a") is lamp
    assert table.factory("b")() == "lamp"


def test_names_are_listed_in_order() -> None:
    """Sorted, whatever the order of registration."""
    table = Table("lights", {"b": lamp, "c": lamp})
    table.register("a", lamp)
    assert table.names() == ["a", "b", "c"]
    assert Table("lights").names() == []


@pytest.mark.parametrize("name", ["candle", ""])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    """The error says which seam, what was asked for and what there is, in text and as attributes."""
    with pytest.raises(DriverUnknownError) as caught:
        Table("lights", {"b": lamp, "a": lamp}).factory(name)
    assert str(caught.value) == f"lights: unknown driver {name or '<empty>'} (registered: a,b)"
    assert (caught.value.name, caught.value.known) == (name, ("a", "b"))


def test_an_empty_table_says_none() -> None:
    """There is something to read even when nothing is registered."""
    with pytest.raises(DriverUnknownError, match="registered: <none>"):
        Table("lights").factory("candle")


def test_a_name_is_needed() -> None:
    """A driver without a name is refused, before anything else is looked at."""
    with pytest.raises(DriverEmptyNameError, match="lights"):
        Table("lights").register("", None)
    with pytest.raises(DriverEmptyNameError):
        Table("lights", {"": lamp})


def test_a_factory_is_needed() -> None:
    """A name without a factory is refused, even one that is taken."""
    with pytest.raises(DriverNilFactoryError, match="'a'"):
        Table("lights", {"a": lamp}).register("a", None)


def test_a_name_is_registered_once() -> None:
    """A second registration is refused and the first stays, in a frozen table too."""
    table = Table("lights", {"a": lamp})
    table.freeze()
    with pytest.raises(DriverDuplicateError, match="'a'"):
        table.register("a", str)
    assert table.factory("a") is lamp


def test_a_frozen_table_takes_no_more() -> None:
    """It still answers."""
    table = Table("lights", {"a": lamp})
    table.freeze()
    with pytest.raises(DriverFrozenError, match="before the application is built"):
        table.register("b", lamp)
    assert table.names() == ["a"]
    assert table.factory("a") is lamp


def test_the_errors_have_one_root() -> None:
    """Each is a DriverError and a HarborageError."""
    for kind in (
        DriverEmptyNameError,
        DriverNilFactoryError,
        DriverDuplicateError,
        DriverFrozenError,
        DriverUnknownError,
    ):
        assert issubclass(kind, DriverError)
    assert issubclass(DriverError, HarborageError)


def test_a_written_target_is_imported_on_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registering and listing import nothing; the first use does, and later ones get the same factory."""
    (tmp_path / "lazy_lamp.py").write_text("def make(): return 'lazy'\n")
    monkeypatch.syspath_prepend(tmp_path)
    table = Table("lights", {"lazy": "lazy_lamp:make"})
    table.freeze()
    assert table.names() == ["lazy"]
    assert "lazy_lamp" not in sys.modules
    factory = table.factory("lazy")
    assert factory() == "lazy"
    assert table.factory("lazy") is factory
    monkeypatch.delitem(sys.modules, "lazy_lamp")


def test_a_target_that_is_not_there_fails_when_it_is_used() -> None:
    """A missing module or attribute is Python's own error, and the table is as it was."""
    table = Table("lights", {"no module": "harborage_nowhere:make", "no name": "harborage.drivers:nowhere"})
    with pytest.raises(ModuleNotFoundError, match="harborage_nowhere"):
        table.factory("no module")
    with pytest.raises(AttributeError, match="nowhere"):
        table.factory("no name")
    assert table.names() == ["no module", "no name"]


def test_tables_do_not_share_entries() -> None:
    """A table copies what it is given."""
    targets: dict[str, Callable[[], str] | str] = {"a": lamp}
    one, other = Table("one", targets), Table("other", targets)
    one.register("b", lamp)
    targets["c"] = lamp
    assert (one.names(), other.names()) == (["a", "b"], ["a"])


def test_threads_may_register_and_read_at_once() -> None:
    """Of many threads that register the same name one wins; no registration is lost."""
    table = Table("lights")

    def register(number: int) -> int:
        won = 0
        for name in (f"own {number}", "shared"):
            try:
                table.register(name, lamp)
                won += 1
            except DriverDuplicateError:
                assert name == "shared"
            table.factory(name)
        return won

    with ThreadPoolExecutor(16) as threads:
        wins = list(threads.map(register, range(200)))
    assert sum(wins) == 201
    assert len(table.names()) == 201
