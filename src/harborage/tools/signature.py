"""Read a Python function as a tool: its arguments, its schemas, its documentation, and its context parameter.

Runs once, at registration, and refuses there what could not work later.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from msgspec import inspect as kinds

from harborage.tools.annotations import ContextUse, Scope, scope_of
from harborage.tools.arguments import REQUIRED, Argument, Finder, make_unknown_field_finder
from harborage.tools.docstrings import Docstring, parse_docstring
from harborage.tools.errors import UnsupportedTypeError
from harborage.tools.model import ToolResult
from harborage.tools.schema import SchemaBuilder, encode_default, make_object_schema, read_type, unwrap_optional
from harborage.tools.values import readable

_CONTEXT_NAMES = frozenset({"ctx", "context", "call"})


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A function as a tool.

    `context_name` is the first parameter if that takes the CallContext, or empty. `returns` is what the function
    declares to return; Any when it declares nothing, or a ToolResult. `is_method` says that the function is written
    in a class and needs an object first, which is no argument.
    """

    name: str
    description: str
    arguments: tuple[Argument, ...]
    context_name: str
    returns: Any
    args_schema: dict[str, Any]
    out_schema: dict[str, Any]
    find_unknown: Finder | None
    is_method: bool = False


def read_signature(fn: Callable[..., Any], name: str = "") -> Signature:
    """Read the signature and the docstring of `fn`; `name` overrides the function's own.

    Raises:
        UnsupportedTypeError: a type has no JSON Schema, or the function takes or returns what a tool cannot.
    """
    if isinstance(fn, type):
        raise UnsupportedTypeError(name or fn.__name__, f"{fn.__name__} is a class; wrap it in a function")
    source = _unwrap(fn)
    name = name or _name_function(fn, source)
    _refuse_generators(source, name)
    scope, annotations = scope_of(source), getattr(source, "__annotations__", {})
    is_method = scope.is_in_class and _needs_object(fn, annotations)
    arguments, context_name = _read_arguments(fn, annotations, scope, name, is_method=is_method)
    docs = parse_docstring(source.__doc__)
    known = (*inspect.signature(source).parameters, *(each.name for each in arguments))
    _refuse_unknown_names(docs, known, name)
    returns = scope.resolve(annotations.get("return", Any), f"{name} -> result")
    returns = Any if returns is ToolResult else readable(returns, f"{name} -> result", needs_zone=False)
    args_schema, infos = _make_args_schema(arguments, docs.parameters, name)
    return Signature(
        name=name,
        description=docs.description,
        arguments=arguments,
        context_name=context_name,
        returns=returns,
        args_schema=args_schema,
        out_schema=_make_out_schema(returns, name),
        find_unknown=_make_argument_finder(infos),
        is_method=is_method,
    )


def _unwrap(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function itself: inside a partial or a wrapper, or the `__call__` of an object."""
    inner = inspect.unwrap(fn.func if isinstance(fn, partial) else fn)
    if inspect.isroutine(inner):
        return inner
    called: Callable[..., Any] = type(inner).__call__
    return called


def _name_function(fn: Callable[..., Any], source: Callable[..., Any]) -> str:
    """Return the function's own name; of an object that can be called, its class's in snake_case."""
    return source.__name__ if source.__name__ != "__call__" else _to_snake_case(type(fn).__name__)


def _to_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _refuse_unknown_names(docs: Docstring, known: Iterable[str], name: str) -> None:
    """Refuse a docstring that documents a parameter which the function does not have."""
    unknown = next((each for each in docs.parameters if each not in known), None)
    if unknown is not None:
        from difflib import get_close_matches  # only a mistake needs it

        near = get_close_matches(unknown, known, 1)
        fix = f"did you mean {near[0]}?" if near else "there is no such parameter"
        raise UnsupportedTypeError(name, f"the docstring names {unknown}; {fix}")


def _refuse_generators(fn: Callable[..., Any], name: str) -> None:
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise UnsupportedTypeError(name, "a tool returns one value; return a list of what it yields")


def _read_arguments(
    fn: Callable[..., Any], annotations: dict[str, Any], scope: Scope, name: str, *, is_method: bool
) -> tuple[tuple[Argument, ...], str]:
    """Return the arguments of `fn`, and the name of its context parameter or an empty text."""
    # An argument that a partial has bound may be a credential: the model must not see or change it.
    bound = fn.keywords if isinstance(fn, partial) else {}
    listed = [each for each in _list_parameters(fn, name) if each.name not in bound][is_method:]
    context_name = _find_context(listed, annotations, scope, name)
    found: list[Argument] = []
    for each in listed:
        if each.name == context_name:
            continue
        place = f"{name}.{each.name}"
        if each.kind is inspect.Parameter.VAR_KEYWORD and "Unpack" in str(annotations.get(each.name, "")):
            found += _read_unpacked(scope.resolve(annotations[each.name], place), place)
            continue
        _refuse_kind(each, place)
        if each.name not in annotations:
            raise UnsupportedTypeError(place, _say_how_to_annotate(each.name))
        annotation = readable(scope.resolve(annotations[each.name], place), place)
        found.append(_make_argument(each, annotation, place))
    return tuple(found), context_name


def _read_unpacked(annotation: Any, place: str) -> list[Argument]:
    """The fields of the TypedDict in `**kwargs: Unpack[TypedDict]`, as arguments; those left out are not passed.

    Raises:
        UnsupportedTypeError: it unpacks something else.
    """
    inner: Any = next(iter(get_args(annotation)), None)
    if not is_typeddict(inner):
        raise UnsupportedTypeError(place, "only a TypedDict is unpacked into named arguments")
    found: list[Argument] = []
    for field, given in get_type_hints(inner, include_extras=True).items():
        mark = get_origin(given) if get_origin(given) in (Required, NotRequired) else None
        of = given if mark is None else get_args(given)[0]
        # Quoted marks are not among the keys that the class knows of.
        is_required = mark is Required or (mark is None and field in inner.__required_keys__)
        default = REQUIRED if is_required else msgspec.UNSET
        found.append(Argument(field, readable(of, f"{place}.{field}"), default))
    return found


def _needs_object(fn: Callable[..., Any], annotations: dict[str, Any]) -> bool:
    """Whether a function in the body of a class takes the object first: the one parameter that has no annotation."""
    first = next(iter(inspect.signature(fn).parameters), None) if inspect.isfunction(fn) else None
    return first is not None and first not in annotations


def _find_context(listed: list[inspect.Parameter], annotations: dict[str, Any], scope: Scope, name: str) -> str:
    """Return the name of the parameter that takes the call's context, or an empty text.

    It is the first one, because only the first can be taken off a function's type.
    """
    found: list[tuple[inspect.Parameter, ContextUse]] = []
    for each in listed:
        use = scope.context_use(annotations.get(each.name, Any), f"{name}.{each.name}")
        if use is not ContextUse.NONE:
            found.append((each, use))
    if not found:
        return ""
    if len(found) > 1:
        twice = ", ".join(each.name for each, _ in found)
        raise UnsupportedTypeError(name, f"takes the call context twice: {twice}")
    only, use = found[0]
    if only is not listed[0] or only.kind is inspect.Parameter.KEYWORD_ONLY:
        raise UnsupportedTypeError(name, f"{only.name} must be the first parameter")
    if use is not ContextUse.IS or only.default is not inspect.Parameter.empty:
        reason = f"{only.name} must be the first parameter, and always given: write {only.name}: CallContext"
        raise UnsupportedTypeError(name, reason)
    _refuse_kind(only, f"{name}.{only.name}")
    return only.name


def _refuse_kind(parameter: inspect.Parameter, place: str) -> None:
    """Refuse a parameter that a call by keyword cannot fill."""
    name = parameter.name
    match parameter.kind:
        case inspect.Parameter.POSITIONAL_ONLY:
            raise UnsupportedTypeError(place, "tools are called by keyword; remove the /")
        case inspect.Parameter.VAR_POSITIONAL:
            raise UnsupportedTypeError(place, f"a tool has named arguments; use {name}: list[…]")
        case inspect.Parameter.VAR_KEYWORD:
            raise UnsupportedTypeError(place, f"a tool has named arguments; use {name}: dict[str, …] or a dataclass")
        case inspect.Parameter.POSITIONAL_OR_KEYWORD | inspect.Parameter.KEYWORD_ONLY:
            return


def _say_how_to_annotate(name: str) -> str:
    if name == "self":
        return "put @tool above it in the class, or give the method of an object, for example tool(desk.open)"
    if name in _CONTEXT_NAMES:
        return f"annotate it, for example {name}: CallContext as the first parameter"
    return f"annotate it, for example {name}: str"


def _list_parameters(fn: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(fn).parameters.values())
    except ValueError as error:
        raise UnsupportedTypeError(name, f"its signature cannot be read: {error}") from error


def _make_argument(parameter: inspect.Parameter, annotation: Any, place: str) -> Argument:
    """Return the argument of a parameter; an optional one without a default is None when it is left out."""
    if type(parameter.default).__name__ == "FieldInfo":
        raise UnsupportedTypeError(place, f"a Field is no default; write {parameter.name}: Annotated[…, Field(…)]")
    if parameter.default is not inspect.Parameter.empty:
        return Argument(parameter.name, annotation, parameter.default)
    is_optional = unwrap_optional(read_type(annotation, place)) is not None
    return Argument(parameter.name, annotation, None if is_optional else REQUIRED)


def _make_args_schema(
    arguments: tuple[Argument, ...], documented: dict[str, str], name: str
) -> tuple[dict[str, Any], dict[str, kinds.Type]]:
    builder = SchemaBuilder()
    properties: dict[str, Any] = {}
    infos: dict[str, kinds.Type] = {}
    for each in arguments:
        place = f"{name}.{each.name}"
        info = infos[each.name] = read_type(each.type, place)
        part = None if each.default is REQUIRED else unwrap_optional(info)
        schema = builder.schema(info if part is None else part, place)
        description = _find_annotation_text(each.type) or documented.get(each.name, "")
        properties[each.name] = {
            **schema,
            **({"description": description} if description else {}),
            **({} if each.default is REQUIRED else encode_default(each.default)),
        }
    required = [each.name for each in arguments if each.default is REQUIRED]
    return _add_definitions(make_object_schema(properties, required), builder), infos


def _find_annotation_text(annotation: Any) -> str:
    """Return the text of `Annotated[T, "text"]`, `Annotated[T, Doc("text")]` or a `description` inside."""
    for each in get_args(annotation)[1:] if get_origin(annotation) is Annotated else ():
        text = each if isinstance(each, str) else getattr(each, "description", getattr(each, "documentation", None))
        if isinstance(text, str) and text:
            return text
    return ""


def _make_out_schema(returns: Any, name: str) -> dict[str, Any]:
    builder = SchemaBuilder()
    place = f"{name} -> result"
    return _add_definitions(builder.schema(read_type(returns, place), place), builder)


def _add_definitions(schema: dict[str, Any], builder: SchemaBuilder) -> dict[str, Any]:
    return {**schema, "$defs": builder.definitions} if builder.definitions else schema


def _make_argument_finder(infos: dict[str, kinds.Type]) -> Finder | None:
    """Return a finder over all arguments; None when no argument holds a record that drops unknown fields."""
    inner = {name: finder for name, info in infos.items() if (finder := make_unknown_field_finder(info)) is not None}
    if not inner:
        return None

    def find(value: object, path: str) -> str | None:
        if not isinstance(value, dict):
            return None
        found = (finder(value[name], f"{path}.{name}") for name, finder in inner.items() if name in value)
        return next((each for each in found if each), None)

    return find
