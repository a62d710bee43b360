"""Read a Python function as a tool: its arguments, its schemas, its documentation, and its context parameter.

Runs once, at registration, and refuses there what could not work later. A docstring is read in Google, NumPy or Sphinx
style; one in none of these styles is all description.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect as kinds

from harborage.tools.arguments import REQUIRED, Argument, Finder, make_unknown_field_finder
from harborage.tools.errors import UnsupportedTypeError
from harborage.tools.model import CallContext, ToolResult
from harborage.tools.schema import SchemaBuilder, encode_default, make_object_schema, read_type, unwrap_optional

_PARAMETER_HEADINGS = frozenset({"args", "arguments", "params", "parameters", "other parameters", "keyword args"})
_OTHER_HEADINGS = frozenset({"returns", "return", "yields", "yield", "raises", "raise", "attributes", "warns"})
_GOOGLE_HEADING = re.compile(r"^([A-Za-z ]+):$")
# Those for entries as texts: `re` compiles them for the first section and keeps them.
_GOOGLE_ENTRY = r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$"
_NUMPY_ENTRY = r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$"
_SPHINX_FIELD = re.compile(r"^:(\w+)(?:\s+([^:]*))?:\s*(.*)$")


class Docstring(msgspec.Struct, frozen=True):
    """The description, and the meaning of each parameter that is documented, each as one line of text."""

    description: str = ""
    parameters: dict[str, str] = {}


def parse_docstring(text: str | None) -> Docstring:
    """Parse the description of a function and of its parameters; the sections on results and errors are left out."""
    lines = inspect.cleandoc(text or "").splitlines()
    start = next((at for at in range(len(lines)) if _opens_section(lines, at)), len(lines))
    parameters: dict[str, str] = {}
    at = start
    while at < len(lines):
        at = _read_section(lines, at, parameters)
    return Docstring("\n".join(lines[:start]).strip(), parameters)


def _opens_section(lines: list[str], at: int) -> bool:
    return bool(_SPHINX_FIELD.match(lines[at])) or _read_heading(lines, at) in _PARAMETER_HEADINGS | _OTHER_HEADINGS


def _read_heading(lines: list[str], at: int) -> str:
    """Return the name of the section that begins here, lower-cased, or an empty text."""
    if _is_underlined(lines, at):
        return lines[at].strip().lower()
    google = _GOOGLE_HEADING.match(lines[at])
    return google.group(1).lower() if google else ""


def _is_underlined(lines: list[str], at: int) -> bool:
    return bool(lines[at].strip()) and at + 1 < len(lines) and re.fullmatch(r"-{3,}\s*", lines[at + 1]) is not None


def _read_section(lines: list[str], at: int, parameters: dict[str, str]) -> int:
    """Read the section that begins at line `at` into `parameters`; return the line where the next one may begin."""
    sphinx = _SPHINX_FIELD.match(lines[at])
    end = at + 1
    while end < len(lines) and not _opens_section(lines, end):
        end += 1
    body = lines[at + 1 : end]
    if sphinx:
        if sphinx.group(1) in ("param", "parameter", "arg", "argument", "key", "keyword") and sphinx.group(2):
            name = sphinx.group(2).split()[-1].lstrip("*")
            parameters[name] = _one_line([sphinx.group(3), *_take_indented(body)])
    elif _read_heading(lines, at) in _PARAMETER_HEADINGS:
        is_numpy = _is_underlined(lines, at)
        parameters.update(_read_numpy_entries(body[1:]) if is_numpy else _read_google_entries(body))
    return end


def _read_google_entries(body: list[str]) -> dict[str, str]:
    """Read `name (type): meaning`, all at one indent; deeper lines continue the meaning."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    indent = next((_indent(line) for line in body if line.strip()), 0)
    for line in body:
        if line.strip() and _indent(line) < max(indent, 1):
            break  # free text after the section
        entry = re.match(_GOOGLE_ENTRY, line.strip()) if _indent(line) == indent else None
        if entry:
            current = found.setdefault(entry.group(1), [])
            current.append(entry.group(2))
        elif current is not None:
            current.append(line)
    return {name: _one_line(text) for name, text in found.items()}


def _read_numpy_entries(body: list[str]) -> dict[str, str]:
    """Read `name : type` without indent, its meaning indented below; one entry may name several parameters."""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in body:
        entry = re.match(_NUMPY_ENTRY, line) if line.strip() and not _indent(line) else None
        if entry:
            names = [name.strip().lstrip("*") for name in entry.group(1).split(",")]
            found.update({name: [] for name in names})
            continue
        for name in names:
            found[name].append(line)
    return {name: _one_line(text) for name, text in found.items()}


def _take_indented(lines: list[str]) -> list[str]:
    block: list[str] = []
    for line in lines:
        if line.strip() and not _indent(line):
            break
        block.append(line)
    return block


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _one_line(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A function as a tool.

    `context_name` is the parameter that takes the CallContext, or empty. `returns` is what the function declares to
    return; Any when it declares nothing, or a ToolResult.
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
    """Read the signature and the docstring of `fn`; `name` overrides the function's own.

    Raises:
        UnsupportedTypeError: a type has no JSON Schema, or the function takes or returns what a tool cannot.
    """
    if isinstance(fn, type):
        raise UnsupportedTypeError(name or fn.__name__, f"{fn.__name__} is a class; wrap it in a function")
    source = _unwrap(fn)
    name = name or _name_function(fn, source)
    _refuse_generators(source, name)
    hints = _type_hints(source, name)
    arguments, context_name = _read_arguments(fn, hints, name)
    docs = parse_docstring(source.__doc__)
    _refuse_unknown_names(docs, inspect.signature(source).parameters, name)
    returns = hints.get("return", Any)
    returns = Any if returns is ToolResult else returns
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


def _type_hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(fn, include_extras=True)
    except NameError as error:
        raise _say_unresolved(fn, name, error) from error
    except Exception as error:
        reason = f"an annotation cannot be resolved ({error}); its names must be importable from the function's module"
        raise UnsupportedTypeError(name, reason) from error


def _say_unresolved(fn: Callable[..., Any], name: str, error: NameError) -> UnsupportedTypeError:
    """Return the error for a name in an annotation of `fn` that only a type checker sees, or that a function hides."""
    named = (each for each, text in fn.__annotations__.items() if re.search(rf"\b{error.name}\b", str(text)))
    first = next(named, "")
    place = f"{name} -> result" if first == "return" else f"{name}.{first}" if first else name
    fix = "move it out of TYPE_CHECKING, or to the top of the module"
    return UnsupportedTypeError(place, f"{error.name} is not importable at run time; {fix}")


def _read_arguments(fn: Callable[..., Any], hints: dict[str, Any], name: str) -> tuple[tuple[Argument, ...], str]:
    """Return the arguments of `fn`, and the name of its context parameter or an empty text."""
    found: list[Argument] = []
    contexts: list[str] = []
    # An argument that a partial has bound may be a credential: the model must not see or change it.
    bound = fn.keywords if isinstance(fn, partial) else {}
    for each in _list_parameters(fn, name):
        if each.name in bound:
            continue
        place = f"{name}.{each.name}"
        _refuse_kind(each, place)
        if each.name not in hints:
            raise UnsupportedTypeError(place, _say_how_to_annotate(each.name))
        annotation = hints[each.name]
        if _is_context(annotation):
            contexts.append(each.name)
        else:
            found.append(_make_argument(each, annotation, place))
    if len(contexts) > 1:
        raise UnsupportedTypeError(name, f"takes the call context twice: {', '.join(contexts)}")
    return tuple(found), "".join(contexts)


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
        return "give the method of an object, for example tool(desk.open)"
    return f"annotate it, for example {name}: str"


def _list_parameters(fn: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(fn).parameters.values())
    except ValueError as error:
        raise UnsupportedTypeError(name, f"its signature cannot be read: {error}") from error


def _make_argument(parameter: inspect.Parameter, annotation: Any, place: str) -> Argument:
    """Return the argument of a parameter; an optional one without a default is None when it is left out."""
    if parameter.default is not inspect.Parameter.empty:
        return Argument(parameter.name, annotation, parameter.default)
    is_optional = unwrap_optional(read_type(annotation, place)) is not None
    return Argument(parameter.name, annotation, None if is_optional else REQUIRED)


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_context(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_is_context(part) for part in get_args(annotation))
    return annotation is CallContext


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
