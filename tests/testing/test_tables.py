"""A table of rows in one test: nothing of it is left out, and a failure names what is wrong."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from tests.kit.tables import each_row


def failure(test: object) -> str:
    """How the test fails."""
    with pytest.raises(AssertionError) as caught:
        test()
    return str(caught.value)


def test_every_wrong_row_is_named_and_every_row_is_tried() -> None:
    """A failure counts and names all rows that are wrong, those that raise or do not raise among them."""
    tried = []

    @each_row("given, expected", [(1, 1), (2, 3), pytest.param(4, 5, id="four"), ("x", 0), (0, 1)])
    def test(given: object, expected: int) -> None:
        tried.append(given)
        if given == "x":
            raise ValueError("no number")
        if given == 0:
            with pytest.raises(LookupError):
                tried.append("nothing is raised")
        assert given == expected, "not equal"

    published = failure(test)
    assert tried == [1, 2, 4, "x", 0, "nothing is raised"]
    assert published.startswith("4 of 5 rows failed:")
    assert "- given=2, expected=3\n    line " in published
    assert "- four: given=4, expected=5\n    line " in published
    assert "ValueError: no number" in published
    assert "- given=0, expected=1" in published
    assert "DID NOT RAISE" in published
    assert "given=1," not in published


def test_tables_multiply() -> None:
    """Two tables are every pair of their rows."""
    tried = []

    @each_row("left", "ab", ids=["first", "second"])
    @each_row("right", [1, 2], ids=lambda number: f"<{number}>")
    def test(left: str, right: int) -> None:
        tried.append((left, right))
        assert (left, right) != ("b", 2)

    published = failure(test)
    assert tried == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert "- second: left='b'" in published
    assert "- right=<2>" in published
    assert "first" not in published


def test_a_row_that_cannot_be_shown_is_a_row() -> None:
    """What is nested too deep for a text is tried and named by its type."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]

    @each_row("value", [deep, []])
    def test(value: list[object]) -> None:
        assert len(value) == 0, "not empty"

    published = failure(test)
    assert published.startswith("1 of 2 rows failed:")
    assert "value=<list, nested too deep to be shown>" in published


def test_a_coroutine_is_awaited_for_every_row() -> None:
    """A test that is a coroutine stays one, and a row fails as in any other test."""

    @each_row("number", [1, 2])
    async def test(number: int) -> None:
        await asyncio.sleep(0)
        assert number < 2

    assert inspect.iscoroutinefunction(test)
    assert failure(lambda: asyncio.run(test())).startswith("1 of 2 rows failed:\n- number=2")


def test_fixtures_stay_parameters() -> None:
    """Whatever the table does not give is asked of pytest, and given to every row."""

    @each_row("number", [1, 2])
    def test(fixture: list[int], number: int) -> None:
        fixture.append(number)

    assert list(inspect.signature(test).parameters) == ["fixture"]
    numbers: list[int] = []
    test(fixture=numbers)
    assert numbers == [1, 2]


def test_a_skipped_row_fails() -> None:
    """A row that skips would hide that nothing was checked."""

    @each_row("number", [1])
    def test(number: int) -> None:
        pytest.skip("no reason")

    assert "Skipped: no reason" in failure(test)


def test_a_table_that_checks_nothing_is_refused() -> None:
    """A table without rows, with rows of another width, with marks or with unknown columns is refused at once."""
    with pytest.raises(ValueError, match="is empty"):
        each_row("one", [])
    with pytest.raises(ValueError, match="does not fit"):
        each_row("one, two", [(1, 2, 3)])
    with pytest.raises(TypeError, match="no marks"):
        each_row("one", [pytest.param(1, marks=pytest.mark.xfail)])
    with pytest.raises(TypeError, match="no parameter one"):
        each_row("one", [1])(lambda two: two)
