"""Guards on the largest thing, not the average one, and on the few statements the house does without.

Size limits help a reader; the other rules each stand for a fault that is hard to see in a review: hidden state, a task
without an owner, a failure that nobody hears of.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

Modules = Mapping[Path, ast.Module]
Function = ast.FunctionDef | ast.AsyncFunctionDef
Rule = Callable[[ast.Module], Iterator[tuple[int, str]]]

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_POSITIONAL = 6

# Who may start a bare task: each awaits what it starts. Everybody else asks a Crew or opens a TaskGroup.
TASK_OWNERS = ("harborage/concurrency.py", "harborage/runtime/parallel.py", "harborage/runtime/engines/")
PRINTERS = ("harborage/cli/",)
BROAD = frozenset({"Exception", "BaseException", "CancelledError"})


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function and method below `tree`, nested ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def long_functions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Functions that do not fit on a screen."""
    for function in functions(tree):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            yield function.lineno, f"{function.name} has {lines} lines; at most {MAX_FUNCTION_LINES}"


def public_callables(body: list[ast.stmt], *, is_class: bool = False) -> Iterator[tuple[Function, bool]]:
    """The functions and methods a caller can reach by public names, and whether the first parameter is bound."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_callables(node.body, is_class=True)
        elif isinstance(node, Function) and (not node.name.startswith("_") or node.name in {"__init__", "__call__"}):
            static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in node.decorator_list)
            yield node, is_class and not static


def wide_signatures(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Public callables with more positional parameters than a caller can keep in order."""
    for function, is_bound in public_callables(tree.body):
        count = len(function.args.posonlyargs) + len(function.args.args) - is_bound
        if count > MAX_POSITIONAL:
            yield function.lineno, f"{function.name} takes {count} positional parameters; at most {MAX_POSITIONAL}"


def global_statements(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """State that hides in a module."""
    return ((node.lineno, "global statement") for node in ast.walk(tree) if isinstance(node, ast.Global))


def task_groups(tree: ast.Module) -> set[str]:
    """The names bound by `async with TaskGroup() as name`."""
    items = (item for node in ast.walk(tree) if isinstance(node, ast.AsyncWith) for item in node.items)
    return {
        item.optional_vars.id
        for item in items
        if isinstance(item.optional_vars, ast.Name)
        and isinstance(item.context_expr, ast.Call)
        and ast.unparse(item.context_expr.func).endswith("TaskGroup")
    }


def unowned_tasks(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Tasks that are started where nobody has to await them."""
    groups = task_groups(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        owner, _, name = called.rpartition(".")
        if name in {"create_task", "ensure_future"} and owner not in groups:
            yield node.lineno, f"{called}() without an owner: use harborage.concurrency.Crew or a TaskGroup"


def names_broad(kinds: ast.expr | None) -> bool:
    """Whether an except clause, or the arguments of `suppress`, catch more than one can mean."""
    if kinds is None:
        return True
    listed = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
    return any(ast.unparse(kind).rpartition(".")[2] in BROAD for kind in listed)


def does_nothing(body: list[ast.stmt]) -> bool:
    """Whether a block has no effect: `pass`, `continue`, `...` or a lone string."""
    return all(
        isinstance(node, ast.Pass | ast.Continue)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in body
    )


def swallowed_failures(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Broad excepts, and broad `suppress`, after which nobody knows that something failed."""
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=kinds, body=body) if names_broad(kinds) and does_nothing(body):
                yield node.lineno, "a broad except that does nothing: re-raise, convert, or emit an event"
            case ast.Call(func=ast.Name("suppress") | ast.Attribute(attr="suppress"), args=kinds):
                if any(names_broad(kind) for kind in kinds):
                    yield node.lineno, "a broad suppress: re-raise, convert, or emit an event"


def prints(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Output that a library has no business to make."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return ((call.lineno, "print()") for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print")


def broken(modules: Modules, rule: Rule, *, spared: tuple[str, ...] = ()) -> list[str]:
    """Where a rule is broken, as `file:line what`. A spared path is a file or, with a slash at its end, a folder."""
    return [
        f"{path.as_posix()}:{line} {what}"
        for path, tree in modules.items()
        if not any(path.as_posix() == one or (one.endswith("/") and path.as_posix().startswith(one)) for one in spared)
        for line, what in rule(tree)
    ]


def test_files_are_short(root: Path, modules: Modules) -> None:
    """A file has at most 500 lines."""
    lines = {path.as_posix(): len((root / "src" / path).read_text("utf-8").splitlines()) for path in modules}
    assert lines
    assert not {path: count for path, count in lines.items() if count > MAX_FILE_LINES}


@pytest.mark.parametrize(
    ("rule", "spared"),
    [
        pytest.param(long_functions, (), id="functions fit on a screen"),
        pytest.param(wide_signatures, (), id="signatures are narrow"),
        pytest.param(global_statements, (), id="no global statement"),
        pytest.param(unowned_tasks, TASK_OWNERS, id="every task has an owner"),
        pytest.param(swallowed_failures, (), id="no failure is swallowed"),
        pytest.param(prints, PRINTERS, id="only the command line prints"),
    ],
)
def test_the_package_keeps_the_rule(modules: Modules, rule: Rule, spared: tuple[str, ...]) -> None:
    """No module breaks the rule; where one may, the file or folder is named above."""
    found = broken(modules, rule, spared=spared)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (long_functions, "async def f():\n" + "    x = 1\n" * 60),
        (wide_signatures, "def f(a, b, c, d, e, g, h): ..."),
        (wide_signatures, "class A:\n  def __init__(self, a, b, c, d, e, g, h): ..."),
        (global_statements, "def f():\n  global x\n  x = 1"),
        (unowned_tasks, "asyncio.create_task(f())"),
        (unowned_tasks, "from asyncio import create_task\ncreate_task(f())"),
        (unowned_tasks, "asyncio.get_running_loop().create_task(f())"),
        (unowned_tasks, "asyncio.ensure_future(f())"),
        (swallowed_failures, "try: f()\nexcept Exception: pass"),
        (swallowed_failures, "for x in y:\n  try: f()\n  except (ValueError, BaseException): continue"),
        (swallowed_failures, "try: f()\nexcept: ..."),
        (swallowed_failures, "try: f()\nexcept asyncio.CancelledError: 'never mind'"),
        (swallowed_failures, "with contextlib.suppress(Exception): f()"),
        (prints, "def f(): print('hello')"),
    ],
)
def test_a_broken_rule_is_found(rule: Rule, source: str) -> None:
    """Each rule finds what it forbids."""
    assert list(rule(ast.parse(source)))


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (long_functions, "def f():\n" + "    x = 1\n" * 59),
        (wide_signatures, "class A:\n  def f(self, a, b, c, d, e, g, *, h, i): ..."),
        (wide_signatures, "def _f(a, b, c, d, e, g, h): ..."),
        (unowned_tasks, "async def f():\n  async with asyncio.TaskGroup() as group:\n    group.create_task(g())"),
        (swallowed_failures, "try: f()\nexcept ValueError: pass"),
        (swallowed_failures, "try: f()\nexcept Exception as error: log(error)"),
        (prints, "def f(console): console.print('hello')"),
    ],
)
def test_what_keeps_the_rule_is_left_alone(rule: Rule, source: str) -> None:
    """Each rule passes what is just inside it."""
    assert not list(rule(ast.parse(source)))


def test_a_spared_file_is_spared_alone() -> None:
    """An exemption holds for the file or folder it names and for nothing whose name merely begins like it."""
    task = ast.parse("asyncio.create_task(f())")
    spared = ("harborage/concurrency.py", "harborage/runtime/engines/")
    assert not broken({Path("harborage/concurrency.py"): task}, unowned_tasks, spared=spared)
    assert not broken({Path("harborage/runtime/engines/embedded.py"): task}, unowned_tasks, spared=spared)
    assert broken({Path("harborage/runtime/engines_of_war.py"): task}, unowned_tasks, spared=spared)
