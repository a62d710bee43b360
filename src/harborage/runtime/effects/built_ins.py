"""The built-in tools by name, and how those that a configuration lists get into a catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from harborage.artifacts import ArtifactStore
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.errors import HarborageError, NotFoundError, names_of
from harborage.tools import CatalogView, Invoker, Loading, ToolCatalog, ToolDescriptor, ToolError
from harborage.tools.builtin import artifact_fetch, clock_now, text_echo, tool_get, tool_search
from harborage.tools.enums import ARTIFACT_FETCH, CLOCK_NOW, DECLARATIVE_ACTION, TEXT_ECHO, TOOL_GET, TOOL_SEARCH


class UnknownBuiltInError(NotFoundError):
    """No built-in tool has this name. `names` are the unknown ones, `known` those that exist."""

    def __init__(self, names: tuple[str, ...] = (), known: tuple[str, ...] = ()) -> None:
        self.names = names
        self.known = known
        listed = ", ".join(names)
        text = f"unknown built-in tools: {listed} (there are: {', '.join(known)})"
        super().__init__(listed, what="built-in tool", message=text)


class RegisterFailedError(HarborageError):
    """The built-in tools could not be registered; none of them was."""


class BuiltInDeps(msgspec.Struct, frozen=True, kw_only=True):
    """What built-in tools work with.

    `artifacts` is the store to read; without it, the one that comes with a call. `needs_approval` decides which tools
    are gated, anew for each call; without it `declarative_action` is not registered. `granted_scopes` are those of the
    runs that use the catalog: a search finds no tool that they may not see.
    """

    artifacts: ArtifactStore | None = None
    needs_approval: Callable[[str], bool] | None = None
    granted_scopes: frozenset[str] = frozenset()
    clock: Timers = SYSTEM_CLOCK


Maker: TypeAlias = Callable[[CatalogView, BuiltInDeps], ToolDescriptor]


def _declarative(view: CatalogView, deps: BuiltInDeps) -> ToolDescriptor:
    from harborage.planner.repair.declarative import declarative_action  # few runtimes have it

    if deps.needs_approval is None:
        raise RegisterFailedError(f"{DECLARATIVE_ACTION} must know which tools need approval; set needs_approval")
    # Without a bus of its own: events of the inner call go where those of the outer one go.
    invoker = Invoker(clock=deps.clock)
    return declarative_action(view.descriptor, invoker.invoke, needs_approval=deps.needs_approval)


BUILT_INS: Final[Mapping[str, Maker]] = MappingProxyType(
    {
        ARTIFACT_FETCH: lambda _view, deps: artifact_fetch(deps.artifacts),
        CLOCK_NOW: lambda _view, _deps: clock_now(),
        DECLARATIVE_ACTION: _declarative,
        TEXT_ECHO: lambda _view, _deps: text_echo(),
        TOOL_GET: lambda view, _deps: tool_get(view),
        TOOL_SEARCH: lambda view, _deps: tool_search(view),
    }
)
"""How each built-in tool is made."""


def register_built_ins(catalog: ToolCatalog | None, names: Iterable[str], deps: BuiltInDeps) -> None:
    """Add the named built-in tools to `catalog`, all or none; a name that is listed twice counts once.

    Raises:
        RegisterFailedError: there is no catalog, a name is taken in it, or a tool lacks what it works with.
        UnknownBuiltInError: a name is none of the built-in tools.
    """
    if catalog is None:
        raise RegisterFailedError("there is no catalog to register built-in tools in")
    wanted = tuple(dict.fromkeys(names_of(names, "built_in")))
    unknown = tuple(name for name in wanted if name not in BUILT_INS)
    if unknown:
        raise UnknownBuiltInError(unknown, tuple(sorted(BUILT_INS)))
    taken = [name for name in wanted if catalog.resolve(name) is not None]
    if taken:
        raise RegisterFailedError(f"these tools are registered already: {', '.join(taken)}; list each once")
    view = CatalogView(catalog, granted_scopes=deps.granted_scopes, loading=tuple(Loading))
    made = [BUILT_INS[name](view, deps) for name in wanted]
    try:
        for descriptor in made:
            catalog.register(descriptor)
    except ToolError as error:
        raise RegisterFailedError(f"a built-in tool does not fit the catalog: {error}") from error
