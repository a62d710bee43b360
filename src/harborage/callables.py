"""Whether a callback is of the kind that is called: a plain function where a value is used, else an async one.

Checked where the callback is given. A coroutine that is not awaited is true, is no value and never runs; a plain
function where one is awaited fails at its first call, long after the mistake.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable
from typing import Any, TypeVar, get_origin

from harborage.errors import HarborageError

T = TypeVar("T")


class CallbackKindError(HarborageError):
    """A callback is no callable, or is async where a plain function is called, or the other way round."""


def is_async(callback: Any) -> bool:
    """Whether calling `callback` gives something to await, as far as its definition says."""
    function = _function_of(callback)
    if inspect.iscoroutinefunction(function):
        return True
    returns = getattr(function, "__annotations__", {}).get("return")
    if isinstance(returns, str):
        return returns.split("[", 1)[0].rpartition(".")[2] in ("Awaitable", "Coroutine", "Future", "Task")
    kind = get_origin(returns) or returns
    return isinstance(kind, type) and issubclass(kind, Awaitable)


def require_sync(callback: Any, name: str) -> None:
    """Accept a callback whose value is used at once; None is accepted, too.

    Raises:
        CallbackKindError: it cannot be called, or is async; the text names it.
    """
    if callback is None:
        return
    _require_callable(callback, name)
    if is_async(callback):
        raise CallbackKindError(f"{name} is async, and is called without being awaited: write it with def")


def require_async(callback: Any, name: str) -> None:
    """Accept a callback that is awaited; None is accepted, too.

    Raises:
        CallbackKindError: it cannot be called, or is a plain function; the text names it.
    """
    if callback is None:
        return
    _require_callable(callback, name)
    # Of what has no signature in Python nothing is known; a lambda may well return a coroutine.
    function = _function_of(callback)
    is_known = inspect.isfunction(function) and function.__name__ != "<lambda>"
    if is_known and not is_async(callback):
        raise CallbackKindError(f"{name} is a plain function, and is awaited: write it with async def")


async def settled(value: Awaitable[T] | T) -> T:
    """`value`, awaited if it has to be: for callbacks that may be of either kind."""
    return await value if inspect.isawaitable(value) else value


def _require_callable(callback: Any, name: str) -> None:
    if not callable(callback):
        raise CallbackKindError(f"{name} is a {type(callback).__name__}, which cannot be called: give a function")


def _function_of(callback: Any) -> Any:
    """The function behind partials, decorators, methods and objects that can be called."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    if not inspect.isroutine(callback) and not isinstance(callback, type):
        callback = type(callback).__call__
    callback = getattr(callback, "__func__", callback)
    return callback if inspect.iscoroutinefunction(callback) else inspect.unwrap(callback)
