"""The calculator and the clock.

The calculator takes arithmetic written as in Python and walks it as a tree of a few known kinds of node. Nothing is
executed, and every operation is bounded before it is made, so no expression takes noticeable time or memory.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from datetime import UTC, tzinfo
from typing import Final, TypeAlias, TypedDict

from harborage.tools.enums import SideEffect
from harborage.tools.function import tool
from harborage.tools.model import CallContext, ToolDescriptor
from harborage.tools.standard.errors import ExpressionRefusedError, StandardToolError

Number: TypeAlias = int | float

_MAX_CHARS: Final = 500
_MAX_BITS: Final = 4096
_MAX_FACTORIAL: Final = 400
_MAX_ARGUMENTS: Final = 100
_DIGITS: Final = 15

_CONSTANTS: Final[dict[str, float]] = {"pi": math.pi, "e": math.e, "tau": math.tau}


class Calculation(TypedDict):
    """An expression and its result."""

    expression: str
    result: int | float


def calculator() -> ToolDescriptor:
    """Make the tool that computes an arithmetic expression."""

    async def calculate_(expression: str) -> Calculation:
        """Work out an arithmetic expression, such as (2 + 3) * sqrt(16) / 7 ** 2.

        Args:
            expression: numbers, + - * / // % **, parentheses, pi, e, tau, and the functions abs, round, min, max, sum,
                sqrt, cbrt, exp, log, log2, log10, sin, cos, tan, asin, acos, atan, atan2, degrees, radians, floor,
                ceil, hypot, gcd, lcm, factorial
        """
        return Calculation(expression=expression, result=calculate(expression))

    return tool(calculate_, name="calculator", effects=SideEffect.PURE, tags=("standard",), source="standard")


def calculate(expression: str) -> Number:
    """Compute `expression`: exact for whole numbers, to 15 digits otherwise.

    Raises:
        ExpressionRefusedError: it is no arithmetic, has no finite result, or would be too large.
    """
    text = expression.strip()
    if len(text) > _MAX_CHARS:
        raise ExpressionRefusedError(f"an expression has at most {_MAX_CHARS} characters; work it out in parts")
    try:
        tree = ast.parse(text, mode="eval")
        return _remove_noise(_evaluate(tree.body))
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ExpressionRefusedError(f"{text[:80]!r} is no arithmetic expression; write it like 2 * (3 + 4)") from error
    except ZeroDivisionError as error:
        raise ExpressionRefusedError("a division by zero has no result") from error
    except OverflowError as error:
        raise ExpressionRefusedError("the result is too large") from error
    except ValueError as error:
        raise ExpressionRefusedError(f"a function has no value there: {error}") from error


def _evaluate(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=bool() | complex()):
            raise ExpressionRefusedError("only whole numbers and decimals are numbers here")
        case ast.Constant(value=int() | float() as number):
            return _check_size(number)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _evaluate(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_evaluate(left), _evaluate(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _check_size(_OPERATORS[type(op)](_evaluate(left), _evaluate(right)))
        case ast.BinOp(op=ast.BitXor()):
            raise ExpressionRefusedError("^ is not a power here; write 2 ** 3")
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _call(name, args)
        case ast.Call(func=ast.Name(id=name)) | ast.Name(id=name):
            known = ", ".join(sorted((*_FUNCTIONS, *_CONSTANTS)))
            raise ExpressionRefusedError(f"{name!r} is not known here; there are {known}")
        case _:
            raise ExpressionRefusedError(
                f"{type(node).__name__} is no arithmetic; use numbers, operators and functions"
            )


def _call(name: str, args: list[ast.expr]) -> Number:
    if len(args) > _MAX_ARGUMENTS or any(isinstance(arg, ast.Starred) for arg in args):
        raise ExpressionRefusedError(f"{name} takes at most {_MAX_ARGUMENTS} numbers here")
    try:
        return _check_size(_FUNCTIONS[name](*map(_evaluate, args)))
    except TypeError as error:
        raise ExpressionRefusedError(f"{name} takes other arguments: {error}") from error


def _power(base: Number, exponent: Number) -> Number:
    """Compute a power; its size is checked before."""
    if isinstance(base, int) and isinstance(exponent, int):
        if abs(base) > 1 and base.bit_length() * abs(exponent) > _MAX_BITS:
            raise OverflowError
        if base == 0 and exponent < 0:
            raise ZeroDivisionError
    result = base**exponent
    if isinstance(result, complex):
        raise ExpressionRefusedError("a root of a negative number has no real result")
    return _check_size(result)


def _factorial(number: Number) -> Number:
    if isinstance(number, float) or not 0 <= number <= _MAX_FACTORIAL:
        raise ExpressionRefusedError(f"factorial takes a whole number from 0 to {_MAX_FACTORIAL}")
    return math.factorial(number)


def _round(number: Number, digits: Number = 0) -> Number:
    if isinstance(digits, float) or not -_DIGITS <= digits <= _DIGITS:
        raise ExpressionRefusedError(f"round takes a whole number of digits up to {_DIGITS}")
    return round(number, digits) if digits else round(number)


def _cbrt(number: Number) -> float:
    return math.cbrt(number)


def _sum(*numbers: Number) -> Number:
    return sum(numbers)


def _check_size(number: Number) -> Number:
    if isinstance(number, float):
        if not math.isfinite(number):
            raise OverflowError
    elif number.bit_length() > _MAX_BITS:
        raise OverflowError
    return number


def _remove_noise(number: Number) -> Number:
    """Remove the noise of binary fractions: 0.1 + 0.2 is 0.3."""
    return float(f"{number:.{_DIGITS}g}") if isinstance(number, float) else number


_OPERATORS: Final[dict[type[ast.operator], Callable[[Number, Number], Number]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}

_FUNCTIONS: Final[dict[str, Callable[..., Number]]] = {
    "abs": abs,
    "acos": math.acos,
    "asin": math.asin,
    "atan": math.atan,
    "atan2": math.atan2,
    "cbrt": _cbrt,
    "ceil": math.ceil,
    "cos": math.cos,
    "degrees": math.degrees,
    "exp": math.exp,
    "factorial": _factorial,
    "floor": math.floor,
    "gcd": math.gcd,
    "hypot": math.hypot,
    "lcm": math.lcm,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": max,
    "min": min,
    "radians": math.radians,
    "round": _round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "sum": _sum,
    "tan": math.tan,
}


_MAX_NAME_CHARS = 64


class LocalTime(TypedDict):
    """A moment in a time zone."""

    time: str
    weekday: str
    timezone: str
    utc_offset: str


def clock() -> ToolDescriptor:
    """Make the tool that returns the time of the call's clock."""

    async def read_clock(call: CallContext, timezone: str = "UTC") -> LocalTime:
        """Tell the current date, time and day of the week.

        Args:
            timezone: an IANA name such as Europe/Vienna
        """
        now = call.clock.now().astimezone(_find_zone(timezone))
        offset = now.strftime("%z")
        return LocalTime(
            time=now.isoformat(timespec="seconds"),
            weekday=now.strftime("%A"),
            timezone=timezone,
            utc_offset=f"{offset[:3]}:{offset[3:5]}",
        )

    return tool(read_clock, name="clock", effects=SideEffect.PURE, tags=("standard",), source="standard")


def _find_zone(name: str) -> tzinfo:
    if name.upper() == "UTC":
        return UTC
    # Costs a few milliseconds, and most clocks are asked for UTC.
    from zoneinfo import ZoneInfo

    try:
        if len(name) > _MAX_NAME_CHARS:
            raise ValueError("too long")
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:
        shown = name[:_MAX_NAME_CHARS]
        raise StandardToolError(f"there is no time zone {shown!r}; use an IANA name such as Europe/Vienna") from error
