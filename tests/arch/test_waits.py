"""Every wait has an exit in time: a limit where it stands, or an owner that is named here and ends it.

A wait is an `await` of an event, queue, lock, condition, future, task or process. It is limited where it stands under
`asyncio.timeout` or `CancelScope`, is handed a limit, or its function arms a timer that ends it. What a function is
given to await, and what a callback returned, belongs to who gave it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.arch.open_waits import OPEN_WAITS
from tests.kit.tables import each_row

Modules = Mapping[Path, ast.Module]
Function = ast.FunctionDef | ast.AsyncFunctionDef

# Methods of events, queues, locks, conditions, processes, threads and servers that return when something has happened.
WAITING = frozenset({"wait", "wait_for", "get", "put", "join", "acquire", "communicate", "wait_closed", "result"})
# Without a time among their arguments these wait for everything that they are given.
WAITERS = frozenset({"asyncio.wait", "asyncio.gather", "asyncio.shield", "gather_all", "wait"})
# Of these an argument alone, whatever it is, is no limit: it is what is put, or what holds.
TAKES_VALUE = frozenset({"put", "wait_for"})
# What makes a block end in time.
LIMITS = frozenset({"timeout", "timeout_at", "CancelScope", "scope"})
# What tells that a value is awaitable.
ASKS = frozenset({"isawaitable", "iscoroutine", "hasattr"})
# What tests are made of: each of these has the limit of its test.
OF_TESTS = ("testing/", "planner/conformance/")
# What arms a timer that ends the wait of the same function.
TIMERS = frozenset({"call_later", "call_at"})
LIMIT_NAMES = ("timeout", "within", "seconds", "deadline", "left", "grace", "patience", "block")


def name_of(call: ast.Call) -> str:
    """The last part of what is called."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def has_limit(call: ast.Call) -> bool:
    """Whether a time is among the arguments."""
    if ast.unparse(call.func) == "asyncio.wait_for" or any(
        keyword.arg and any(word in keyword.arg for word in LIMIT_NAMES) for keyword in call.keywords
    ):
        return True
    return name_of(call) not in TAKES_VALUE and ast.unparse(call.func) not in WAITERS and bool(call.args)


def is_open(awaited: ast.expr) -> bool:
    """Whether what is awaited ends only when another has done something."""
    if isinstance(awaited, ast.Name | ast.Attribute | ast.Subscript):
        return True  # a task or a future
    if not isinstance(awaited, ast.Call):
        return False
    is_wait = name_of(awaited) in WAITING and isinstance(awaited.func, ast.Attribute)
    is_wait = is_wait or ast.unparse(awaited.func) in WAITERS or name_of(awaited) == "create_future"
    return is_wait and not has_limit(awaited)


def is_limiting(block: ast.AST) -> bool:
    """Whether a `with` ends what stands in it in time."""
    if not isinstance(block, ast.With | ast.AsyncWith):
        return False
    calls = (item.context_expr for item in block.items)
    return any(isinstance(call, ast.Call) and name_of(call) in LIMITS for call in calls)


def open_waits(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """The waits of a module that nothing limits where they stand: function, what is awaited, line."""
    yield from _below(tree, "", frozenset(), is_limited=False)


def _below(node: ast.AST, where: str, given: frozenset[str], *, is_limited: bool) -> Iterator[tuple[str, str, int]]:
    for child in ast.iter_child_nodes(node):
        place, names, limited = where, given, is_limited
        if isinstance(child, Function | ast.ClassDef):
            place = f"{where}.{child.name}" if where else child.name
        if isinstance(child, Function):
            names, limited = given | given_to(child), arms_a_timer(child)
        limited = limited or is_limiting(child)
        awaited = child.value if isinstance(child, ast.Await) and not limited else None
        if awaited is not None and is_open(awaited) and not (isinstance(awaited, ast.Name) and awaited.id in names):
            yield place, ast.unparse(awaited), awaited.lineno
        yield from _below(child, place, names, is_limited=limited)


def given_to(function: Function) -> frozenset[str]:
    """The names of what a function is given, and of what it found to be awaitable."""
    parameters = {one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    asked = [node for node in ast.walk(function) if isinstance(node, ast.Call) and name_of(node) in ASKS]
    return frozenset(parameters | {one.id for call in asked for one in call.args[:1] if isinstance(one, ast.Name)})


def arms_a_timer(function: Function) -> bool:
    """Whether the function itself makes sure that it is woken in time."""
    return any(isinstance(node, ast.Call) and name_of(node) in TIMERS for node in ast.walk(function))


def found_in(modules: Modules) -> Iterator[tuple[str, str]]:
    """The open waits of the package: the file and the function, and a line for a person."""
    for path, tree in modules.items():
        name = path.as_posix().partition("harborage/")[2]
        if not name.startswith(OF_TESTS):
            for place, what, line in open_waits(tree):
                yield f"{name} {place}", f"{name}:{line} {place} awaits {what}"


def test_every_wait_is_limited_or_has_an_owner(modules: Modules) -> None:
    """No wait without a limit, but those of the list."""
    unlimited = [line for key, line in found_in(modules) if key not in OPEN_WAITS]
    assert not unlimited, "put `async with asyncio.timeout(…)` around it, or list who ends it in open_waits.py"


def test_the_list_has_no_wait_that_is_gone(modules: Modules) -> None:
    """Each line of it is about a wait that there is, and says who ends it."""
    assert OPEN_WAITS.keys() <= {key for key, _ in found_in(modules)}
    assert all(OPEN_WAITS.values())


@each_row(
    "source",
    [
        "await event.wait()",
        "await self._queue.get()",
        "await future",
        "await self._task",
        "await asyncio.wait(tasks)",
        "await asyncio.shield(task)",
        "await process.communicate()",
        "await queue.put(1)",
        "await condition.wait_for(lambda: done)",
        "await asyncio.get_running_loop().create_future()",
        "with suppress(ValueError):\n        await event.wait()",
    ],
)
def test_a_wait_without_a_limit_is_found(source: str) -> None:
    """Each kind of it."""
    assert list(open_waits(ast.parse(f"async def f():\n    {source}")))


@each_row(
    "source",
    [
        "async with asyncio.timeout(3):\n        await event.wait()",
        "with CancelScope(clock, 3):\n        await task",
        "await asyncio.wait(tasks, timeout=3)",
        "await asyncio.wait_for(task, 3)",
        "timer = clock.call_later(3, event.set)\n    await event.wait()",
        "await given",
        "await settings.get('name')",
        "await call()",
        "if inspect.isawaitable(found):\n        await found",
    ],
)
def test_a_limited_wait_is_allowed(source: str) -> None:
    """Whatever its limit is, and what the function was given to await."""
    assert not list(open_waits(ast.parse(f"async def f(given):\n    {source}")))
