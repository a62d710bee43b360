"""Read a Python function as a tool: its arguments, its schemas, and where it wants the call's context.

Runs once, at registration, and refuses there what could not work later.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect as kinds

from harborage.tools.arguments import REQUIRED, Argument
from harborage.tools.docstrings import parse_docstring
from harborage.tools.errors import UnsupportedTypeError
from harborage.tools.model import CallContext, ToolResult
from harborage.tools.schema import SchemaBuilder, default_of, object_schema, optional_part, type_info
from harborage.tools.strict import Finder, unknown_field_finder

__all__ = ["Signature", "read_signature"]

_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A function as a tool.

    `context_name` is the parameter that takes the CallContext, or empty. `returns` is what the function declares to
    return; Any when it says nothing, or returns a ToolResult itself.
    """

    name: str
    description: str
    arguments: tuple[Argument, ...]
    context_name: str
    returns: Any
    args_schema: dict[str, Any]
    out_schema: dict[str, Any]
    find_unknown: Finder | None


def read_signature(fn: Callable[..., Any], name: str = "") -> Signature:
    """What the signature and the docstring of `fn` say; `name` overrides the function's own.

    Raises:
        UnsupportedTypeError: a type has no JSON Schema, or the function takes or gives what a tool cannot.
    """
    source = _source(fn)
    name = name or (source.__name__ if source.__name__ != "__call__" else type(fn).__name__)
    _refuse_generators(source, name)
    hints = _type_hints(source, name)
    arguments, context_name = _arguments(fn, hints, name)
    docs = parse_docstring(source.__doc__)
    returns = hints.get("return", Any)
    returns = Any if returns is ToolResult else returns
    args_schema, infos = _args_schema(arguments, docs.parameters, name)
    return Signature(
        name=name,
        description=docs.description,
        arguments=arguments,
        context_name=context_name,
        returns=returns,
        args_schema=args_schema,
        out_schema=_out_schema(returns, name),
        find_unknown=_argument_finder(infos),
    )


def _source(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function whose text this is: inside a partial or a wrapper, or the `__call__` of an object."""
    inner = inspect.unwrap(fn.func if isinstance(fn, partial) else fn)
    if inspect.isroutine(inner):
        return inner
    called: Callable[..., Any] = type(inner).__call__
    return called


def _refuse_generators(fn: Callable[..., Any], name: str) -> None:
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise UnsupportedTypeError(name, "a tool returns one value; collect what it yields and return a list")


def _type_hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(fn, include_extras=True)
    except Exception as error:
        reason = f"an annotation cannot be resolved ({error}); its names must be importable from the function's module"
        raise UnsupportedTypeError(name, reason) from error


def _arguments(fn: Callable[..., Any], hints: dict[str, Any], name: str) -> tuple[tuple[Argument, ...], str]:
    """The arguments of `fn`, and the name of its context parameter or nothing."""
    found: list[Argument] = []
    contexts: list[str] = []
    # What a partial has bound may be a credential: it is not the model's to see or to change.
    bound = fn.keywords if isinstance(fn, partial) else {}
    for each in _parameters(fn, name):
        if each.name in bound:
            continue
        place = f"{name}.{each.name}"
        if each.kind is _POSITIONAL_ONLY or each.kind in _VARIADIC:
            raise UnsupportedTypeError(place, "tools are called by keyword; name each parameter")
        annotation = hints.get(each.name, Any)
        if _is_context(annotation):
            contexts.append(each.name)
        else:
            found.append(_argument(each, annotation, place))
    if len(contexts) > 1:
        raise UnsupportedTypeError(name, f"takes the call context twice: {', '.join(contexts)}")
    return tuple(found), "".join(contexts)


def _parameters(fn: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(fn).parameters.values())
    except ValueError as error:
        raise UnsupportedTypeError(name, f"its signature cannot be read: {error}") from error


def _argument(parameter: inspect.Parameter, annotation: Any, place: str) -> Argument:
    """An optional parameter need not be given, whether or not it has a default: it is None then."""
    if parameter.default is not inspect.Parameter.empty:
        return Argument(parameter.name, annotation, parameter.default)
    is_optional = optional_part(type_info(annotation, place)) is not None
    return Argument(parameter.name, annotation, None if is_optional else REQUIRED)


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_context(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_is_context(part) for part in get_args(annotation))
    return annotation is CallContext


def _args_schema(
    arguments: tuple[Argument, ...], documented: dict[str, str], name: str
) -> tuple[dict[str, Any], dict[str, kinds.Type]]:
    builder = SchemaBuilder()
    properties: dict[str, Any] = {}
    infos: dict[str, kinds.Type] = {}
    for each in arguments:
        place = f"{name}.{each.name}"
        info = infos[each.name] = type_info(each.type, place)
        part = None if each.default is REQUIRED else optional_part(info)
        schema = builder.schema(info if part is None else part, place)
        description = _annotated_description(each.type) or documented.get(each.name, "")
        properties[each.name] = {
            **schema,
            **({"description": description} if description else {}),
            **({} if each.default is REQUIRED else default_of(each.default)),
        }
    required = [each.name for each in arguments if each.default is REQUIRED]
    return _with_definitions(object_schema(properties, required), builder), infos


def _annotated_description(annotation: Any) -> str:
    """What `Annotated[T, "text"]`, `Annotated[T, Doc("text")]` or a `description` inside says of a parameter."""
    for each in get_args(annotation)[1:] if get_origin(annotation) is Annotated else ():
        text = each if isinstance(each, str) else getattr(each, "description", getattr(each, "documentation", None))
        if isinstance(text, str) and text:
            return text
    return ""


def _out_schema(returns: Any, name: str) -> dict[str, Any]:
    builder = SchemaBuilder()
    place = f"{name} -> result"
    return _with_definitions(builder.schema(type_info(returns, place), place), builder)


def _with_definitions(schema: dict[str, Any], builder: SchemaBuilder) -> dict[str, Any]:
    return {**schema, "$defs": builder.definitions} if builder.definitions else schema


def _argument_finder(infos: dict[str, kinds.Type]) -> Finder | None:
    """A finder over all arguments; None when no argument holds a record that drops unknown fields."""
    inner = {name: finder for name, info in infos.items() if (finder := unknown_field_finder(info)) is not None}
    if not inner:
        return None

    def find(value: object, path: str) -> str | None:
        if not isinstance(value, dict):
            return None
        found = (finder(value[name], f"{path}.{name}") for name, finder in inner.items() if name in value)
        return next((each for each in found if each), None)

    return find
