"""Tools as typed values: each is called like the function it was made of, and bound to an object as methods are."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from types import MethodType
from typing import Any, Concatenate, Final, Generic, overload

from msgspec.structs import replace
from typing_extensions import ParamSpec, TypeVar

from harborage.tools.errors import UnsupportedTypeError
from harborage.tools.model import ToolBody, ToolDescriptor

IN_WORKFLOW: Final[ContextVar[str]] = ContextVar("in_workflow", default="")
"""The workflow whose code is executed now; what it does must go through its context, or it would not be recorded."""

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")
DepsT = TypeVar("DepsT")
ResultT_co = TypeVar("ResultT_co", covariant=True, default=Any)
DepsT_contra = TypeVar("DepsT_contra", contravariant=True, default=object)


class FunctionTool(ToolDescriptor[DepsT_contra], Generic[DepsT_contra], frozen=True, dict=True, kw_only=True):
    """A tool made of a Python function. `takes_context` says whether the function gets the call's context first.

    `bind` makes the body of a method that is bound to an object; None for a function that is no method, or is bound.
    """

    takes_context: bool = False
    bind: Callable[[Callable[..., Any]], ToolBody] | None = None

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self.function is not None
        if workflow := IN_WORKFLOW.get():
            how = f"the workflow {workflow!r} calls a tool by await ctx.call({self.tool.name}, …)"
            raise UnsupportedTypeError(self.tool.name, f"called like a function it would not be recorded; {how}")
        if self.takes_context:
            how = f"call {self.tool.name}.function(ctx, …) outside a run"
            raise UnsupportedTypeError(self.tool.name, f"its first parameter is the context of a call; {how}")
        return self.function(*args, **kwargs)

    def _bound(self, to: object) -> Any:
        """The same tool as the method of an object."""
        if to is None or self.bind is None:
            return self
        assert self.function is not None
        method = MethodType(self.function, to)
        return replace(self, function=method, body=self.bind(method), bind=None)


class AsyncTool(FunctionTool[DepsT_contra], Generic[P, ResultT_co, DepsT_contra], frozen=True, dict=True, kw_only=True):
    """A tool made of an async function. Awaiting a call of it calls the function, outside every run."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, ResultT_co]:
        coroutine: Coroutine[Any, Any, ResultT_co] = self._called(args, kwargs)
        return coroutine

    @overload
    def __get__(self, obj: None, owner: type | None = None) -> AsyncTool[P, ResultT_co, DepsT_contra]: ...

    @overload
    def __get__(
        self: AsyncTool[Concatenate[Any, Q], T, DepsT], obj: object, owner: type | None = None
    ) -> AsyncTool[Q, T, DepsT]: ...

    def __get__(self, obj: object, owner: type | None = None) -> Any:
        return self._bound(obj)


class SyncTool(FunctionTool[DepsT_contra], Generic[P, ResultT_co, DepsT_contra], frozen=True, dict=True, kw_only=True):
    """A tool made of a function that is not async; a run calls it in a thread. Calling it calls the function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ResultT_co:
        result: ResultT_co = self._called(args, kwargs)
        return result

    @overload
    def __get__(self, obj: None, owner: type | None = None) -> SyncTool[P, ResultT_co, DepsT_contra]: ...

    @overload
    def __get__(
        self: SyncTool[Concatenate[Any, Q], T, DepsT], obj: object, owner: type | None = None
    ) -> SyncTool[Q, T, DepsT]: ...

    def __get__(self, obj: object, owner: type | None = None) -> Any:
        return self._bound(obj)


def is_unbound(descriptor: ToolDescriptor[Any]) -> bool:
    """Whether it is a method without its object."""
    return isinstance(descriptor, FunctionTool) and descriptor.bind is not None


def how_to_bind(descriptor: ToolDescriptor[Any]) -> str:
    """What to write in place of a method without its object."""
    qualified = getattr(descriptor.function, "__qualname__", descriptor.tool.name)
    cls, _, method = qualified.rpartition(".<locals>.")[2].rpartition(".")
    return f"give the method of an object, for example {cls or '…'}(…).{method}"
