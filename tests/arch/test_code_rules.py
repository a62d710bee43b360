"""Limits on the largest file, function and signature, and statements that the package does without.

The size limits help a reader. Each other rule prevents a fault that is hard to see in a review: hidden state, a task
without an owner, a failure that is lost.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.arch.conftest import uncollected
from tests.kit.tables import each_row

Modules = Mapping[Path, ast.Module]
Function = ast.FunctionDef | ast.AsyncFunctionDef
Rule = Callable[[ast.Module], Iterator[tuple[int, str]]]

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_POSITIONAL = 6

# These may start a task directly, since they await it; other modules use a Crew or a TaskGroup.
TASK_OWNERS = ("harborage/concurrency.py", "harborage/runtime/durable/")
PRINTERS = ("harborage/cli/",)
TEST_KITS = ("harborage/testing/", "harborage/planner/conformance/")
# These own the task that they cancel, and wait for its end.
CANCELLERS = ("harborage/runtime/durable/performer.py", "harborage/runtime/durable/race.py")
# Types whose falsy value may mean "not given", and a class that has no empty objects.
PLAIN_TYPES = frozenset({"bool", "str", "int", "float", "bytes", "timedelta", "Logger"})
BROAD = frozenset({"Exception", "BaseException", "CancelledError"})


@cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    """Everything below `tree`, found once for all rules: the walk costs more than what they look for."""
    with uncollected():
        return list(ast.walk(tree))


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function and method below `tree`, nested ones too."""
    return (node for node in nodes(tree) if isinstance(node, Function))


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
    """Public callables with too many positional parameters."""
    for function, is_bound in public_callables(tree.body):
        count = len(function.args.posonlyargs) + len(function.args.args) - is_bound
        if count > MAX_POSITIONAL:
            yield function.lineno, f"{function.name} takes {count} positional parameters; at most {MAX_POSITIONAL}"


def global_statements(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """State hidden in a module."""
    return ((node.lineno, "global statement") for node in nodes(tree) if isinstance(node, ast.Global))


def task_groups(tree: ast.Module) -> set[str]:
    """The names bound by `async with TaskGroup() as name`."""
    items = (item for node in nodes(tree) if isinstance(node, ast.AsyncWith) for item in node.items)
    return {
        item.optional_vars.id
        for item in items
        if isinstance(item.optional_vars, ast.Name)
        and isinstance(item.context_expr, ast.Call)
        and ast.unparse(item.context_expr.func).endswith("TaskGroup")
    }


def unowned_tasks(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Tasks that no owner awaits."""
    groups = task_groups(tree)
    for node in nodes(tree):
        match node:
            case ast.Call(func=ast.Name(id="create_task" | "ensure_future") as func):
                owner = ""
            case ast.Call(func=ast.Attribute(attr="create_task" | "ensure_future", value=value) as func):
                owner = ast.unparse(value)
            case _:
                continue
        if owner not in groups:
            called = ast.unparse(func)
            yield node.lineno, f"{called}() without an owner: use harborage.concurrency.Crew or a TaskGroup"


def bare_gathers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Calls of `gather` that may lose a cancellation: if work fails in the same moment, only the failure is raised."""
    for node in nodes(tree):
        match node:
            case ast.Call(func=ast.Name(id="gather") | ast.Attribute(value=ast.Name(id="asyncio"), attr="gather")):
                if not any(one.arg == "return_exceptions" for one in node.keywords):
                    yield node.lineno, "a bare gather(): use harborage.concurrency.together"


def names_broad(kinds: ast.expr | None) -> bool:
    """Whether an except clause, or an argument of `suppress`, catches every failure or a cancellation."""
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
    """Broad excepts, and broad `suppress`, that leave no trace of a failure."""
    for node in nodes(tree):
        match node:
            case ast.ExceptHandler(type=kinds, body=body) if names_broad(kinds) and does_nothing(body):
                yield node.lineno, "a broad except that does nothing: re-raise, convert, or emit an event"
            case ast.Call(func=ast.Name("suppress") | ast.Attribute(attr="suppress"), args=kinds):
                if any(names_broad(kind) for kind in kinds):
                    yield node.lineno, "a broad suppress: re-raise, convert, or emit an event"


def prints(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Output on stdout, which a library must not make."""
    calls = (node for node in nodes(tree) if isinstance(node, ast.Call))
    return ((call.lineno, "print()") for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print")


def or_defaults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Defaults after `or`, which replace an object that was passed and is empty: a registry, a mapping, a list.

    Allowed are a default that is an empty literal itself, and plain values, whose falsy one may mean "not given".
    """
    parents = {child: node for node in nodes(tree) for child in ast.iter_child_nodes(node)}
    for function in functions(tree):
        parameters = function.args
        objects = {
            one.arg
            for one in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)
            if not type_names(one.annotation) & PLAIN_TYPES
        }
        for node in own_nodes(function):
            if not isinstance(node, ast.BoolOp) or not isinstance(node.op, ast.Or) or is_condition(node, parents):
                continue
            first, default = node.values[0], node.values[-1]
            is_object = isinstance(first, ast.Name) and first.id in objects and not is_empty(default)
            if is_object or is_constructed(default):
                yield node.lineno, f"`{ast.unparse(node)}`: an empty object counts as given; ask `is None`"


def lost_cancellations(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Handlers of a cancellation in async code that never raise: what they belong to cannot be stopped."""
    for function in functions(tree):
        handlers = (node for node in own_nodes(function) if isinstance(node, ast.ExceptHandler))
        if not isinstance(function, ast.AsyncFunctionDef):
            continue
        for handler in handlers:
            caught = {name.rpartition(".")[2] for name in caught_names(handler.type)}
            is_raising = any(isinstance(node, ast.Raise) for part in handler.body for node in ast.walk(part))
            if caught & {"", "BaseException", "CancelledError"} and not is_raising:
                yield handler.lineno, f"{function.name} catches its cancellation and never raises it again"


def caught_names(kinds: ast.expr | None) -> list[str]:
    """The names of what a handler catches; one empty name for all there is."""
    if kinds is None:
        return [""]
    return [ast.unparse(kind) for kind in (kinds.elts if isinstance(kinds, ast.Tuple) else [kinds])]


def truth_of_objects(sized: frozenset[str]) -> Rule:
    """Make the rule that an object which may be missing and may be empty is compared with None; `sized` are the
    classes of which an empty one is false."""

    def rule(tree: ast.Module) -> Iterator[tuple[int, str]]:
        for function in functions(tree):
            parameters = function.args
            optional = {
                one.arg
                for one in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)
                if one.annotation is not None and may_be_missing(one.annotation) and type_names(one.annotation) & sized
            }
            if not optional:
                continue
            parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
            for node in own_nodes(function):
                is_bare = isinstance(parents.get(node), ast.BoolOp | ast.UnaryOp) or is_test(node, parents)
                if isinstance(node, ast.Name) and node.id in optional and is_bare:
                    yield node.lineno, f"the truth of `{node.id}`: an empty one counts as given; ask `is None`"

    return rule


def may_be_missing(annotation: ast.expr) -> bool:
    """Whether an annotation allows None."""
    return any(isinstance(node, ast.Constant) and node.value is None for node in ast.walk(annotation))


def is_test(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether a node stands alone as the condition of a statement or an expression."""
    parent = parents.get(node)
    return getattr(parent, "test", None) is node or (isinstance(parent, ast.comprehension) and node in parent.ifs)


def sized_classes(modules: Modules) -> frozenset[str]:
    """The classes of the package of which an empty object is false."""
    classes = (node for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    names = {"__len__", "__bool__"}
    return frozenset(
        one.name for one in classes if any(isinstance(part, Function) and part.name in names for part in one.body)
    )


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions inside it."""
    open_nodes: list[ast.AST] = [*function.body]
    while open_nodes:
        node = open_nodes.pop()
        yield node
        open_nodes += [child for child in ast.iter_child_nodes(node) if not isinstance(child, Function)]


def type_names(annotation: ast.expr | None) -> set[str]:
    """The names of the types that an annotation allows, without their parameters."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            return type_names(left) | type_names(right)
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[inner, *_])):
            return type_names(inner)
        case ast.Subscript(value=value):
            return type_names(value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {name}
        case _:
            return set()


def is_condition(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether only the truth of an expression is used."""
    parent = parents[node]
    while isinstance(parent, (ast.BoolOp, ast.UnaryOp)):
        node, parent = parent, parents[parent]
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id in {"bool", "any", "all"}
    return isinstance(parent, ast.comprehension) or getattr(parent, "test", None) is node


def is_empty(default: ast.expr) -> bool:
    """Whether a default is an empty literal."""
    match default:
        case ast.Dict(keys=[]) | ast.Tuple(elts=[]) | ast.List(elts=[]) | ast.Constant(value="" | b"" | 0):
            return True
        case _:
            return False


def is_constructed(default: ast.expr) -> bool:
    """Whether a default calls a class."""
    match default:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name.lstrip("_")[:1].isupper()
        case _:
            return False


def export_lists(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lists of public names in a module: what it defines without an underscore is public, and no module re-exports."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.AnnAssign(target=ast.Name(id="__all__")):
                yield node.lineno, "__all__ in a module: only a package, or a face of one, lists its names"


def broken(modules: Modules, rule: Rule, *, excepted: tuple[str, ...] = ()) -> list[str]:
    """Where a rule is broken, as `file:line message`; an excepted path is a file or, ending in a slash, a folder."""
    return [
        f"{path.as_posix()}:{line} {what}"
        for path, tree in modules.items()
        if not any(
            path.as_posix() == one or (one.endswith("/") and path.as_posix().startswith(one)) for one in excepted
        )
        for line, what in rule(tree)
    ]


def test_only_packages_list_their_names(modules: Modules) -> None:
    """A module has no `__all__`, which would say again what it defines."""
    found = broken({path: tree for path, tree in modules.items() if path.name != "__init__.py"}, export_lists)
    assert not found, "\n".join(found)


def test_files_are_short(root: Path, modules: Modules) -> None:
    """A file has at most 500 lines."""
    lines = {path.as_posix(): len((root / "src" / path).read_text("utf-8").splitlines()) for path in modules}
    assert lines
    assert not {path: count for path, count in lines.items() if count > MAX_FILE_LINES}


@each_row(
    "rule, excepted",
    [
        pytest.param(long_functions, (), id="functions fit on a screen"),
        pytest.param(wide_signatures, (), id="signatures are narrow"),
        pytest.param(global_statements, (), id="no global statement"),
        pytest.param(unowned_tasks, TASK_OWNERS, id="every task has an owner"),
        pytest.param(bare_gathers, TEST_KITS, id="no cancellation is lost"),
        pytest.param(swallowed_failures, (), id="no failure is swallowed"),
        pytest.param(or_defaults, (), id="an empty object is not replaced by a default"),
        pytest.param(lost_cancellations, CANCELLERS, id="a cancellation is passed on"),
        pytest.param(prints, PRINTERS, id="only the command line prints"),
    ],
)
def test_the_package_follows_the_rule(modules: Modules, rule: Rule, excepted: tuple[str, ...]) -> None:
    """No module breaks the rule, besides the files and folders that are excepted above."""
    found = broken(modules, rule, excepted=excepted)
    assert not found, "\n".join(found)


def test_the_truth_of_an_object_is_not_asked(modules: Modules) -> None:
    """Where one may be missing, an empty one is not taken for that."""
    sized = sized_classes(modules)
    assert {"InboxRegistry", "Inbox", "Crew"} <= sized
    found = broken(modules, truth_of_objects(sized))
    assert not found, "\n".join(found)


INBOXES = truth_of_objects(frozenset({"Inboxes"}))


@each_row(
    "rule, source",
    [
        (long_functions, "async def f():\n" + "    x = 1\n" * 60),
        (wide_signatures, "def f(a, b, c, d, e, g, h): ..."),
        (wide_signatures, "class A:\n  def __init__(self, a, b, c, d, e, g, h): ..."),
        (global_statements, "def f():\n  global x\n  x = 1"),
        (unowned_tasks, "asyncio.create_task(f())"),
        (unowned_tasks, "from asyncio import create_task\ncreate_task(f())"),
        (unowned_tasks, "asyncio.get_running_loop().create_task(f())"),
        (unowned_tasks, "asyncio.ensure_future(f())"),
        (bare_gathers, "async def f():\n  await asyncio.gather(g(), h())"),
        (swallowed_failures, "try: f()\nexcept Exception: pass"),
        (swallowed_failures, "for x in y:\n  try: f()\n  except (ValueError, BaseException): continue"),
        (swallowed_failures, "try: f()\nexcept: ..."),
        (swallowed_failures, "try: f()\nexcept asyncio.CancelledError: 'never mind'"),
        (swallowed_failures, "with contextlib.suppress(Exception): f()"),
        (or_defaults, "def f(inboxes: Inboxes | None):\n  self.inboxes = inboxes or Inboxes()"),
        (or_defaults, "def f(*, given: Mapping[str, int] | None):\n  return use(given or DEFAULTS)"),
        (or_defaults, "def f(given):\n  def g(): return given\n  return given or g()"),
        (or_defaults, "def f(self):\n  return self.found or kinds.Directory()"),
        (or_defaults, "async def f(given: Annotated[list[str], Parameter()]):\n  x = [given or DEFAULTS]"),
        (lost_cancellations, "async def f():\n  try: await g()\n  except asyncio.CancelledError as e: log(e)"),
        (lost_cancellations, "async def f():\n  try: await g()\n  except (ValueError, BaseException) as e: log(e)"),
        (lost_cancellations, "async def f():\n  try: await g()\n  except: log()"),
        (INBOXES, "def f(inboxes: Inboxes | None):\n  if inboxes: g()"),
        (INBOXES, "def f(*, inboxes: Inboxes | None = None):\n  return g(inboxes) if not inboxes else 1"),
        (INBOXES, "def f(inboxes: Inboxes | None):\n  return [x for x in y if inboxes]"),
        (prints, "def f(): print('hello')"),
        (export_lists, "__all__ = ['f']"),
        (export_lists, "__all__: list[str] = []"),
    ],
)
def test_a_broken_rule_is_found(rule: Rule, source: str) -> None:
    """Each rule finds what it forbids."""
    assert list(rule(ast.parse(source)))


@each_row(
    "rule, source",
    [
        (long_functions, "def f():\n" + "    x = 1\n" * 59),
        (wide_signatures, "class A:\n  def f(self, a, b, c, d, e, g, *, h, i): ..."),
        (wide_signatures, "def _f(a, b, c, d, e, g, h): ..."),
        (unowned_tasks, "async def f():\n  async with asyncio.TaskGroup() as group:\n    group.create_task(g())"),
        (bare_gathers, "async def f(io):\n  await asyncio.gather(g(), return_exceptions=True)\n  await io.gather(g())"),
        (swallowed_failures, "try: f()\nexcept ValueError: pass"),
        (swallowed_failures, "try: f()\nexcept Exception as error: log(error)"),
        (or_defaults, "def f(inboxes: Inboxes | None):\n  x = Inboxes() if inboxes is None else inboxes"),
        (or_defaults, "def f(name: str, limit: int | None):\n  return name or DEFAULT, limit or 3"),
        (or_defaults, "def f(given: Mapping[str, int] | None):\n  return {**BASE, **(given or {})}"),
        (or_defaults, "def f(a: list[int], b: list[int]):\n  if a or b: return bool(a or b)"),
        (or_defaults, "def f(a: list[int], b):\n  return [x for x in a if x or not (b or a)]"),
        (
            lost_cancellations,
            "async def f():\n  try: await g()\n  except BaseException as e:\n    if is_mine(e): raise",
        ),
        (lost_cancellations, "def f():\n  try: g()\n  except BaseException as e: log(e)"),
        (INBOXES, "def f(inboxes: Inboxes | None):\n  if inboxes is None: g()"),
        (INBOXES, "def f(inboxes: Inboxes):\n  while inboxes: g()"),
        (prints, "def f(console): console.print('hello')"),
        (export_lists, "__all__, __getattr__, __dir__ = lazy_exports(__name__, {})"),
    ],
)
def test_code_within_the_rule_is_allowed(rule: Rule, source: str) -> None:
    """Each rule passes code that is just within it."""
    assert not list(rule(ast.parse(source)))


def test_an_exception_covers_only_its_own_path() -> None:
    """An exception holds for the file or folder it names and for nothing whose name merely begins like it."""
    task = ast.parse("asyncio.create_task(f())")
    excepted = ("harborage/concurrency.py", "harborage/runtime/durable/")
    assert not broken({Path("harborage/concurrency.py"): task}, unowned_tasks, excepted=excepted)
    assert not broken({Path("harborage/runtime/durable/stored.py"): task}, unowned_tasks, excepted=excepted)
    assert broken({Path("harborage/runtime/durables.py"): task}, unowned_tasks, excepted=excepted)


def test_the_name_of_an_error_is_unique(modules: Mapping[Path, ast.Module]) -> None:
    """A reader of a log knows which error it is, and no file has to import one under another name."""
    names = Counter(
        node.name
        for tree in modules.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and not node.name.startswith("_")
    )
    assert len(names) > 100
    assert not {name for name, count in names.items() if count > 1}


def test_one_sqlite_library_opens_a_file(root: Path) -> None:
    """Nothing reads a database with another SQLite library than the store, whose locks that one would not see."""
    folders = ("src", "tests", "benchmarks", "examples")
    files = [file for folder in folders for file in (root / folder).rglob("*.py")]
    imported = re.compile(r"^\s*(?:import|from) sqlite3\b", re.MULTILINE)
    assert files
    assert [str(file) for file in files if imported.search(file.read_text("utf-8"))] == []
