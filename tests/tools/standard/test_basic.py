"""The calculator and the clock."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harborage.tools import SideEffect
from harborage.tools.standard import ExpressionRefusedError, StandardToolError, calculator, clock, standard_tools
from harborage.tools.standard.basic import calculate
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio


@each_row(
    "expression, expected",
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-2 ** 2", -4),
        ("2 ** -1", 0.5),
        ("7 // 2 + 7 % 2", 4),
        ("0.1 + 0.2", 0.3),
        ("1_000 * +3", 3000),
        ("10 / 4", 2.5),
        ("sqrt(16) + cbrt(27)", 7.0),
        ("round(pi, 2)", 3.14),
        ("round(2.6)", 3),
        ("max(1, 2, 3) - min(4, 5)", -1),
        ("sum(1, 2, 3.5)", 6.5),
        ("gcd(12, 18) * lcm(4, 6)", 72),
        ("log(e) + log10(100) + log(8, 2)", 6.0),
        ("factorial(20)", 2_432_902_008_176_640_000),
        ("2 ** 100", 1 << 100),
        ("hypot(3, 4)", 5.0),
        ("0 ** 0", 1),
        ("1 ** 10000000000", 1),
        ("  42  ", 42),
    ],
)
async def test_arithmetic_is_worked_out(invoke: Any, expression: str, expected: float) -> None:
    """Whole numbers exactly, the rest to fifteen digits, and the expression comes back with the result."""
    assert await invoke(calculator(), expression=expression) == {"expression": expression, "result": expected}
    assert type(calculate(expression)) is type(expected)


@each_row(
    "expression, says",
    [
        ("", "no arithmetic expression"),
        ("1 +", "no arithmetic expression"),
        ("1; 2", "no arithmetic expression"),
        ("x = 1", "no arithmetic expression"),
        ("__import__('os').system('true')", "no arithmetic"),
        ("open('/etc/passwd')", "'open' is not known"),
        ("eval('1')", "'eval' is not known"),
        ("x + 1", "'x' is not known"),
        ("().__class__", "no arithmetic"),
        ("pi.real", "Attribute is no arithmetic"),
        ("[1, 2]", "List is no arithmetic"),
        ("[x for x in (1,)]", "no arithmetic"),
        ("(lambda: 1)()", "no arithmetic"),
        ("sqrt(*[1])", "no arithmetic|at most"),
        ("round(1.5, ndigits=1)", "round"),
        ("'a' * 9", "Constant is no arithmetic"),
        ("True + 1", "whole numbers and decimals"),
        ("2j * 2", "whole numbers and decimals"),
        ("1 if 1 else 2", "no arithmetic"),
        ("1 < 2", "Compare is no arithmetic"),
        ("2 ^ 3", r"2 \*\* 3"),
        ("~1", "no arithmetic"),
        ("1 << 9", "no arithmetic"),
        ("f'{1}'", "no arithmetic"),
        ("(y := 1)", "no arithmetic"),
        ("await_(1)", "not known"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("sqrt(-1)", "no value"),
        ("log(0)", "no value"),
        ("(-8) ** 0.5", "no real result"),
        ("exp(1000)", "too large"),
        ("1e308 * 10", "too large"),
        ("1e999", "too large"),
        ("1e999 - 1e999", "too large"),
        ("sqrt()", "other arguments"),
        ("atan2(1)", "other arguments"),
        ("gcd(1.5, 2)", "other arguments"),
        ("round(1, 1.5)", "whole number of digits"),
    ],
)
async def test_anything_else_is_refused(invoke: Any, expression: str, says: str) -> None:
    """With a text that says what would do."""
    with pytest.raises(ExpressionRefusedError, match=says):
        await invoke(calculator(), expression=expression)


@each_row(
    "expression",
    [
        "9 ** 9 ** 9",
        "9 ** 9 ** 9 ** 9",
        "2 ** 5000",
        "2 ** -5000",
        "10 ** 1000 * 10 ** 1000",
        "(10 ** 1000) ** 1000",
        "factorial(100000)",
        "factorial(factorial(20))",
        "factorial(2.5)",
        "round(10 ** 300, -10 ** 10)",
        "1" * 501,
        "(" * 250 + "1" + ")" * 250,
        "-" * 499 + "1" + "1",
        "lcm(" + ",".join(["2"] * 101) + ")",
    ],
)
def test_no_expression_takes_long(expression: str) -> None:
    """What would be too large or too deep is refused before it is worked out."""
    with pytest.raises(ExpressionRefusedError):
        calculate(expression)


@given(st.text(alphabet="0123456789.+-*/%() episqrtlogmax,", max_size=60))
@example("9" * 60)
def test_any_text_gives_a_finite_number_or_a_refusal(expression: str) -> None:
    """There is no third outcome."""
    try:
        result = calculate(expression)
    except ExpressionRefusedError:
        return
    assert isinstance(result, int) or math.isfinite(result)


def test_it_is_pure() -> None:
    """A call can be made again whenever that helps."""
    assert calculator().tool.side_effects is SideEffect.PURE


async def test_the_time_is_in_utc_by_default(invoke: Any) -> None:
    """With the day of the week and the offset, both of which models get wrong on their own."""
    assert await invoke(clock()) == {
        "time": "2026-03-04T23:06:07+00:00",
        "weekday": "Wednesday",
        "timezone": "UTC",
        "utc_offset": "+00:00",
    }


async def test_another_time_zone_may_be_another_day(invoke: Any) -> None:
    """The weekday is the one there."""
    published = await invoke(clock(), timezone="Asia/Kolkata")
    assert (published["time"], published["weekday"], published["utc_offset"]) == (
        "2026-03-05T04:36:07+05:30",
        "Thursday",
        "+05:30",
    )


@each_row("name", ["", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "America", "x" * 500, "a\0b"])
async def test_a_zone_that_is_none_is_refused(invoke: Any, name: str) -> None:
    """Unknown names, folders of names and paths alike."""
    with pytest.raises(StandardToolError, match="no time zone"):
        await invoke(clock(), timezone=name)


def test_the_whole_set_has_unique_names_and_describes_itself(tmp_path: Any) -> None:
    """Every tool says what it does, what each argument is, and what it does to the world."""
    tools = [one.tool for one in standard_tools(tmp_path)]
    assert [one.name for one in tools] == [
        "list_files",
        "read_file",
        "search_files",
        "write_file",
        "http_get",
        "calculator",
        "clock",
    ]
    for one in tools:
        assert one.description
        assert one.side_effects is not SideEffect.STATEFUL
        assert all(each["description"] for each in one.args_schema["properties"].values())
    assert [one.tool.name for one in standard_tools()] == ["http_get", "calculator", "clock"]
    assert "write_file" not in [one.tool.name for one in standard_tools(tmp_path, can_write=False)]
