"""One test over a table: every row is tried, and a failure names each row that is wrong."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import indent
from typing import Any, cast

import pytest

Test = Callable[..., Any]
Labels = Callable[[Any], object] | Sequence[str] | None

# `pytest.raises` and `pytest.fail` fail with what is no Exception; a skipped row would hide that nothing was tested.
FAILURES = (Exception, pytest.fail.Exception, pytest.skip.Exception)
SHOWN_CHARS = 120


class _Rows:
    """The failures of a table so far, reported together once all rows were tried."""

    def __init__(self, rows: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self._rows = rows
        self._failures: list[tuple[str, BaseException]] = []

    def __iter__(self) -> Iterator[tuple[_Row, dict[str, Any]]]:
        for label, values in self._rows:
            yield _Row(label, self._failures), values
        if self._failures:
            report = "\n".join(f"- {label}\n{indent(_told(failure), '    ')}" for label, failure in self._failures)
            message = f"{len(self._failures)} of {len(self._rows)} rows failed:\n{report}"
            raise AssertionError(message) from self._failures[0][1]


class _Row:
    """Keeps the failure of one row, so that the next one is tried."""

    def __init__(self, label: str, failures: list[tuple[str, BaseException]]) -> None:
        self._label = label
        self._failures = failures

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, failure: BaseException | None, __: object) -> bool:
        if not isinstance(failure, FAILURES):
            return False
        self._failures.append((self._label, failure))
        return True


def each_row(names: str, table: Iterable[Any], *, ids: Labels = None) -> Callable[[Test], Test]:
    """A test that tries every row of `table` and fails with all those that are wrong; written like `parametrize`.

    Use it where a row is pure data: the rows share the fixtures, the event loop and the timeout of the one test. A case
    that needs those for itself is for `pytest.mark.parametrize`. A row that skips fails, since the others go on.
    """
    keys = [name.strip() for name in names.split(",") if name.strip()]
    rows = [_row(keys, row, ids, at) for at, row in enumerate(table)]
    if not rows:
        raise ValueError(f"The table of {names!r} is empty: its test would check nothing.")

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def try_rows(*args: Any, **fixtures: Any) -> None:
            for row, values in _Rows(rows):
                with row:
                    test(*args, **fixtures, **values)

        @functools.wraps(test)
        async def await_rows(*args: Any, **fixtures: Any) -> None:
            for row, values in _Rows(rows):
                with row:
                    await test(*args, **fixtures, **values)

        signature = inspect.signature(test)
        if missing := [key for key in keys if key not in signature.parameters]:
            raise TypeError(f"{test.__qualname__} has no parameter {', '.join(missing)}; name the columns after them.")
        others = [one for name, one in signature.parameters.items() if name not in keys]
        tried: Any = await_rows if inspect.iscoroutinefunction(test) else try_rows
        tried.__signature__ = signature.replace(parameters=others)
        return cast("Callable[..., Any]", tried)

    return decorate


def _row(keys: Sequence[str], row: Any, ids: Labels, at: int) -> tuple[str, dict[str, Any]]:
    """The row's name in a message, and its values by column."""
    name = ids[at] if isinstance(ids, Sequence) else None
    if isinstance(row, type(pytest.param())):
        if row.marks:
            raise TypeError(f"A row of a table takes no marks: {row!r}. Use pytest.mark.parametrize.")
        name, values = None if row.id is None else str(row.id), row.values
    else:
        values = (row,) if len(keys) == 1 else tuple(row)
    if len(values) != len(keys):
        raise ValueError(f"The row {values!r} does not fit the columns {', '.join(keys)}.")
    shown = ", ".join(
        f"{key}={_shown(value, ids if callable(ids) else None)}" for key, value in zip(keys, values, strict=True)
    )
    return (f"{name}: {shown}" if name else shown), dict(zip(keys, values, strict=True))


def _shown(value: Any, ids: Callable[[Any], object] | None) -> str:
    given = ids(value) if ids else None
    try:
        shown = repr(value) if given is None else str(given)
    except RecursionError:
        shown = f"<{type(value).__name__}, nested too deep to be shown>"
    return shown if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]}…"


def _told(failure: BaseException) -> str:
    """What went wrong, and on which line of the test."""
    frame = failure.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename == __file__:
        frame = frame.tb_next
    where = f"line {frame.tb_lineno}: " if frame is not None else ""
    kind = "" if isinstance(failure, AssertionError) else f"{type(failure).__name__}: "
    return f"{where}{kind}{failure}"
