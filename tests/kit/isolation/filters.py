"""Where the server and what is below it tell principals apart: each such place can be taken out, one at a time.

A filter is found in the source: a part of an identity with which something is asked for, the comparison of a part, a
check of scope or identity. It is taken out by the code that the function would have without it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

from tests.kit.isolation.requests import REQUESTS
from tests.kit.isolation.served_canary import watch_server

_SERVER: Final = "harborage.server"
_FAMILIES: Final = f"{_SERVER}.families"
_PARTS: Final = ("tenant", "user", "session", "tenants", "users", "sessions")
_QUERIES: Final = frozenset({"RunQuery", "EventQuery", "PauseQuery", "SessionQuery", "SessionListQuery", "replace"})
_TRIPLES: Final = frozenset({"ArtifactScope", "Owner", "Filter", "Reach"})
_COUNTED: Final = frozenset({"EventCountQuery"})
_CHECKS: Final = frozenset({"require", "check_identity"})
_SCOPES: Final = frozenset({"is_scoped", "is_admin"})
_COMPARED: Final = frozenset({"tenant_id", "user_id", "session_id", "who", "identity"})
_OWN: Final = frozenset({"own", "own_user", "own_tenant"})

PLACES: Final[dict[str, tuple[str, ...]]] = {
    f"{_FAMILIES}.agents": ("agents.",),
    f"{_FAMILIES}.artifacts": ("artifacts.",),
    f"{_FAMILIES}.control": ("start", "cancel", "approve", "reject", "resume", "prioritize"),
    f"{_FAMILIES}.events": ("events.aggregate",),
    f"{_FAMILIES}.flows": ("flows.",),
    f"{_FAMILIES}.mcp": ("mcp.",),
    f"{_FAMILIES}.memory": ("memory.",),
    f"{_FAMILIES}.overrides": ("runs.set_overrides", "start"),
    f"{_FAMILIES}.pauses": ("pause.", "approve", "reject", "start"),
    f"{_FAMILIES}.posture": ("runtime.", "metrics.", "governance.", "llm."),
    f"{_FAMILIES}.remembered": ("memory.",),
    f"{_FAMILIES}.runs": ("runs.",),
    f"{_FAMILIES}.search_indexes": ("search.",),
    f"{_FAMILIES}.sessions": ("sessions.",),
    f"{_FAMILIES}.task_detail": ("tasks.get",),
    f"{_FAMILIES}.tasks": ("tasks.",),
    f"{_FAMILIES}.tool_usage": ("tools.",),
    f"{_FAMILIES}.tools": ("tools.",),
    f"{_SERVER}.a2a.listing": ("a2a.",),
    f"{_SERVER}.a2a.tasks": ("a2a.",),
    f"{_SERVER}.identity": ("start",),
    f"{_SERVER}.dispatch": ("start",),
    f"{_SERVER}.stream": ("events.subscribe",),
    f"{_SERVER}.event_log": ("events.subscribe",),
    f"{_SERVER}.links": ("artifacts.get_ref",),
    "harborage.events.fanout": ("events.subscribe",),
    "harborage.runtime.host": ("cancel", "user_message", "approve", "reject"),
    "harborage.store.memory.views": ("pause.", "search.", "tasks.", "tools.", "metrics.", "events.aggregate"),
}
"""The modules with filters, each with the beginnings of the requests that pass them."""


NOT_SEEN: Final[Mapping[str, str]] = {
    "server.a2a.tasks.Tasks.begin: message.context": "what a caller says of its own task is checked",
    "server.a2a.tasks.Tasks.find: session=session": "it narrows what is the caller's own",
    "server.families.posture._ask_": "asks for what is nobody's, and shows only whether a part answers",
    "server.families.events._slots": "of a bus that stores nothing: its test is in tests/server/families",
    "server.families.control._foreground": "each run that is found is looked up once more as one of the caller's",
    "server.families.artifacts._owner: parts.": "a scope that lacks a part is refused",
    "server.families.runs._pauses": "the run is named as well, and no two runs have one id",
    "server.families.task_detail._parent": "the run is named as well, and no two runs have one id",
    "server.families.tasks._place": "a place that lacks a part is in no list",
    "server.event_log.Wanted.load": "the runs above are named as well, and no two runs have one id",
    "server.families.search_indexes.reach_of: tenants": "no tenants are nobody's",
    "server.families.search_indexes._tasks: tenant=tenant if": "the owners beside it say the same",
    "server.families.search_indexes._tasks: user=user if": "the owners beside it say the same",
    "server.families.events._is_of": "of a bus that stores nothing: its test is in tests/server/families",
    "server.families.pauses._rows: tenant": "only a flag depends on it: its test is in tests/server/families",
    "server.families.sessions._find: tenants=(who.tenant_id,) #2": "who has the scope may see what the third finds",
    "server.dispatch.Dispatcher._run: method.identity is": "another principal is refused, or needs the scope for it",
    "server.stream.Streams._opened: asked.is_admin #2": "whether it is audited: its test is in tests/server",
    "runtime.host.Runtime._count_runs": "a limit of runs at once: its test is in tests/runtime",
    "store.memory.views.total_sessions": "a yes or no: its test is in the conformance suite of stores",
    "store.memory.views._is_owned": "its tests are in the conformance suite of stores",
}
"""By the beginning of their names, filters of which no request can show that they are gone; and why."""


class Filter(NamedTuple):
    """One filter, and what its function is without it: one of `values` stands in its place."""

    module: str
    function: str
    text: str
    node: int
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        """Where it is."""
        return f"{self.module.removeprefix('harborage.')}.{self.function}: {self.text}"

    @property
    def is_seen(self) -> bool:
        """Whether a request must show that it is gone."""
        return not self.name.startswith(tuple(NOT_SEEN))


def find_filters() -> list[Filter]:
    """Return all filters of `PLACES`."""
    return [found for module in PLACES for found in _filters_of(module)]


def _filters_of(name: str) -> Iterator[Filter]:
    tree = ast.parse(inspect.getsource(importlib.import_module(name)))
    seen: Counter[str] = Counter()
    for function, node in _functions(tree):
        for number, inner in enumerate(ast.walk(node)):
            for part, values in _places(inner):
                text = _text(part)
                seen[f"{function} {text}"] += 1
                times = seen[f"{function} {text}"]
                yield Filter(name, function, text if times == 1 else f"{text} #{times}", number, values)


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The outermost functions, and the methods of classes, by their qualified names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def _places(node: ast.AST) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """What in a node is a filter, and what may stand in its place."""
    match node:
        case ast.Call(func=func, args=args, keywords=keywords):
            name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
            if name in _QUERIES:
                yield from ((one, ("",)) for one in keywords if one.arg in _PARTS)
            elif name in _COUNTED:
                yield from ((one.value, ("()",)) for one in keywords if one.arg in _PARTS)
            elif name in _TRIPLES:
                empty = "()" if name == "Reach" else "''"
                yield from ((one, (empty,)) for one in args[:3] if not _is_empty(one))
        case ast.Expr(value=ast.Call(func=func)):
            name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
            if name in _CHECKS:
                yield node.value, ("None",)
        case ast.Attribute(attr=attr) if attr in _SCOPES:
            yield node, ("True",)
        case ast.Compare(left=left, comparators=others):
            if any(_is_identity(one) for side in (left, *others) for one in ast.walk(side)):
                yield node, ("True", "False")
        case _:
            pass


def _is_empty(node: ast.AST) -> bool:
    return isinstance(node, ast.Starred) or (isinstance(node, ast.Constant) and not node.value)


def _is_identity(node: ast.AST) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr in _COMPARED) or (
        isinstance(node, ast.Name) and node.id in _OWN
    )


@contextmanager
def without(filter: Filter, value: str) -> Iterator[None]:
    """Let the server run without a filter, one of its values in its place."""
    module = importlib.import_module(filter.module)
    function = _live(module, filter.function)
    kept = function.__code__
    function.__code__ = _mutated(module, filter, value)
    try:
        yield
    finally:
        function.__code__ = kept


def _live(module: ModuleType, name: str) -> FunctionType:
    found: Any = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    found = getattr(found, "fget", None) or getattr(found, "__func__", found)
    found = inspect.unwrap(found)
    assert isinstance(found, FunctionType), name
    return found


def _mutated(module: ModuleType, filter: Filter, value: str) -> CodeType:
    tree = ast.parse(inspect.getsource(module))
    function = dict(_functions(tree))[filter.function]
    (node,) = (one for number, one in enumerate(ast.walk(function)) if number == filter.node)
    text = filter.text.partition(" #")[0]
    (part,) = (one for one, _ in _places(node) if _text(one) == text)
    _replace(function, node, part, value)
    code = compile(ast.fix_missing_locations(tree), module.__file__ or "", "exec")
    return _code_of(code, filter.function.split("."))


def _replace(function: ast.AST, node: ast.AST, part: Any, value: str) -> None:
    if isinstance(part, ast.keyword):
        assert isinstance(node, ast.Call)
        node.keywords.remove(part)
        return
    wanted = ast.parse(value, mode="eval").body

    class Put(ast.NodeTransformer):
        def visit(self, one: ast.AST) -> Any:
            return wanted if one is part else self.generic_visit(one)

    Put().visit(function)


def _code_of(code: CodeType, path: list[str]) -> CodeType:
    for name in path:
        (code,) = (one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name)
    return code


async def is_missed(filter: Filter, folder: Path, *, principals: int, requests: int, seed: int = 0) -> bool:
    """Return whether principals notice, by requests that pass a filter, that it is gone."""
    names = [name for name in REQUESTS if name.startswith(PLACES[filter.module])]
    for value in filter.values:
        with without(filter, value), TemporaryDirectory(dir=folder) as place:
            try:
                found = await watch_server(
                    Path(place), principals=principals, requests=requests, seed=seed, names=names
                )
            except (AssertionError, TimeoutError):  # a stream was refused, or a run does not end as its owner said
                return True
        if found.leaks:
            return True
    return False
