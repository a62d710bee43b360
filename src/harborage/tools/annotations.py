"""Read the annotations of a function, each by itself, and find the one that asks for the call's context.

An annotation is resolved in the names of the function's module and of the functions around it, as they are when the
tool is made. That of the context is only recognised, never resolved as a whole: what `CallContext[Shop]` names may be
there for type checkers alone.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator
from enum import Enum, auto
from types import CodeType, FrameType, SimpleNamespace
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from harborage.tools.errors import UnsupportedTypeError
from harborage.tools.model import CallContext

_OTHER_CONTEXTS = frozenset({"RunContext", "AgentContext", "WorkflowContext"})
_CLASS_OR_ITEM = r"([\w.]+)\s*(\[.*\])?"


class ContextUse(Enum):
    """How an annotation has to do with the call's context: it is one, it only mentions one, or neither."""

    IS = auto()
    MENTIONS = auto()
    NONE = auto()


class Scope(NamedTuple):
    """The names that annotations of a function are resolved in, and whether it is made in the body of a class."""

    names: dict[str, Any]
    around: dict[str, Any]
    type_parameters: tuple[Any, ...]
    is_in_class: bool

    def resolve(self, annotation: Any, place: str) -> Any:
        """Return the type that an annotation means.

        Raises:
            UnsupportedTypeError: a name in it is not there at run time, or it is no annotation at all.
        """
        holder = SimpleNamespace(__annotations__={"it": annotation}, __type_params__=self.type_parameters)
        try:
            return get_type_hints(holder, self.names, self.around, include_extras=True)["it"]
        except NameError as error:
            fix = "move it out of TYPE_CHECKING, or to the top of the module"
            raise UnsupportedTypeError(place, f"{error.name} is not importable at run time; {fix}") from error
        except Exception as error:
            raise UnsupportedTypeError(place, f"its annotation cannot be resolved ({error})") from error

    def context_use(self, annotation: Any, place: str) -> ContextUse:
        """Return how an annotation has to do with the call's context.

        Raises:
            UnsupportedTypeError: it is the context of something else than a tool.
        """
        if isinstance(annotation, str):
            return self._context_use_of_text(annotation, place)
        return _context_use_of_type(annotation, place)

    def _context_use_of_text(self, text: str, place: str) -> ContextUse:
        """Read an annotation that is a text; `CallContext[Shop]` is recognised by what stands before the bracket."""
        plain = re.fullmatch(_CLASS_OR_ITEM, text.strip(), re.DOTALL)
        head = plain.group(1) if plain else ""
        name = head.rpartition(".")[2]
        if name == CallContext.__name__ or name in _OTHER_CONTEXTS:
            try:
                return _context_use_of_type(self.resolve(head, place), place)
            except UnsupportedTypeError:  # only type checkers know the class: its name says enough
                return _context_use_of_name(name, place)
        try:
            return _context_use_of_type(self.resolve(text, place), place)
        except UnsupportedTypeError:
            is_named = re.search(rf"\b{CallContext.__name__}\b", text)
            return ContextUse.MENTIONS if is_named else ContextUse.NONE


def scope_of(fn: Callable[..., Any]) -> Scope:
    """Return the names around `fn`, a function itself and no wrapper, as they are now."""
    code = getattr(fn, "__code__", None)
    around: dict[str, Any] = {}
    frames = list(_frames_around(code)) if code is not None else []
    for frame in reversed(frames):
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a function; the names in a class are not seen from within
            around.update(frame.f_locals)
    around.update(_names_closed_over(fn))
    return Scope(
        names=getattr(fn, "__globals__", {}),
        around=around,
        type_parameters=getattr(fn, "__type_params__", ()),
        is_in_class=bool(frames) and "__qualname__" in frames[0].f_locals,
    )


def _frames_around(code: CodeType) -> Iterator[FrameType]:
    """Yield the running functions and class bodies in which `code` is defined, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if any(part is code for part in frame.f_code.co_consts):
            if frame.f_locals is frame.f_globals:
                return  # the module
            yield frame
            code = frame.f_code
        frame = frame.f_back


def _names_closed_over(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the names of functions around `fn` that it uses, also when those have ended."""
    found: dict[str, Any] = {}
    cells = getattr(fn, "__closure__", None) or ()
    for name, cell in zip(fn.__code__.co_freevars if cells else (), cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not yet set, such as the name of a function that calls itself
            continue
    return found


def _context_use_of_type(annotation: Any, place: str) -> ContextUse:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _context_use_of_type(get_args(annotation)[0], place)
    if origin in (Union, types.UnionType):
        uses = [_context_use_of_type(part, place) for part in get_args(annotation)]
        return ContextUse.NONE if all(use is ContextUse.NONE for use in uses) else ContextUse.MENTIONS
    cls = annotation if origin is None else origin
    if cls is CallContext:
        return ContextUse.IS
    is_ours = getattr(cls, "__module__", "").partition(".")[0] == "harborage"
    if is_ours and cls.__name__ in _OTHER_CONTEXTS:
        return _context_use_of_name(cls.__name__, place)
    return ContextUse.NONE


def _context_use_of_name(name: str, place: str) -> ContextUse:
    if name in _OTHER_CONTEXTS:
        raise UnsupportedTypeError(place, f"a tool takes {CallContext.__name__}, not {name}")
    return ContextUse.IS
