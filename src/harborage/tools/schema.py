"""JSON Schemas of tools: of a Python type, as the model sees it, and validation against a schema of a foreign tool.

msgspec says how a type is read (`msgspec.inspect`), this file says how it is written down, so the schema and the
decoder come from one description. Types without a JSON form are refused when a tool is registered. Foreign schemas
(of MCP servers, HTTP manifests, remote agents) are compiled once and never fetched from anywhere; error texts name the
place and the rule but hide the value.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as kinds

from harborage.codec import UnserializableError, to_plain
from harborage.tools.arguments import to_invalid_args
from harborage.tools.errors import ToolInvalidArgsError, UnsupportedTypeError, json_path
from harborage.tools.model import Tool, ToolBody, ToolDescriptor
from harborage.tools.shapes import Shape, is_model

MAX_DEPTH = 32
"""How deep a type may nest before it is refused."""

_FORMATS: dict[type[kinds.Type], dict[str, Any]] = {
    kinds.AnyType: {},
    kinds.RawType: {},
    kinds.NoneType: {"type": "null"},
    kinds.BoolType: {"type": "boolean"},
    kinds.DateTimeType: {"type": "string", "format": "date-time"},
    kinds.DateType: {"type": "string", "format": "date"},
    kinds.TimeType: {"type": "string", "format": "time"},
    kinds.TimeDeltaType: {"type": "string", "format": "duration"},
    kinds.UUIDType: {"type": "string", "format": "uuid"},
    kinds.DecimalType: {"type": "string", "format": "decimal"},
    kinds.BytesType: {"type": "string", "contentEncoding": "base64"},
    kinds.ByteArrayType: {"type": "string", "contentEncoding": "base64"},
    kinds.MemoryViewType: {"type": "string", "contentEncoding": "base64"},
}
_NUMBER_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_LISTS = (kinds.ListType, kinds.VarTupleType, kinds.SetType, kinds.FrozenSetType)
_RECORDS = (kinds.StructType, kinds.DataclassType, kinds.TypedDictType)


def read_type(annotation: Any, path: str) -> kinds.Type:
    """Return how msgspec reads `annotation`.

    Raises:
        UnsupportedTypeError: it cannot, or a name inside cannot be resolved.
    """
    if isinstance(annotation, TypeVar):
        raise UnsupportedTypeError(path, f"{annotation.__name__} is not bound to a type; name the type")
    try:
        return kinds.type_info(annotation)
    except Exception as error:
        raise UnsupportedTypeError(path, f"{_type_name(annotation)} cannot be described: {error}") from error


def unwrap_optional(info: kinds.Type) -> kinds.Type | None:
    """Return the type in an `Optional` besides None; None when `info` is not optional."""
    inner = info.type if isinstance(info, kinds.Metadata) else info
    if not isinstance(inner, kinds.UnionType) or not any(isinstance(part, kinds.NoneType) for part in inner.types):
        return None
    rest = tuple(part for part in inner.types if not isinstance(part, kinds.NoneType))
    part = rest[0] if len(rest) == 1 else kinds.UnionType(rest)
    return kinds.Metadata(part, info.extra_json_schema) if isinstance(info, kinds.Metadata) else part


def make_object_schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return the schema of a closed object: no other fields, and `required` sorted, left out when empty."""
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = sorted(required)
    return schema


class SchemaBuilder:
    """Builds the schemas of one tool side; `definitions` collects what models refer to, for the root's `$defs`."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._above: list[Any] = []

    def describe(self, annotation: Any, path: str, depth: int = 1) -> dict[str, Any]:
        """Return the schema of a type; as for `schema`."""
        return self.schema(read_type(annotation, path), path, depth)

    def schema(self, info: kinds.Type, path: str, depth: int = 1) -> dict[str, Any]:
        """Return the schema of `info`; `path` names the place in errors.

        Raises:
            UnsupportedTypeError: the type has no JSON form, it contains itself, or it nests deeper than 32.
        """
        if depth > MAX_DEPTH:
            raise UnsupportedTypeError(path, f"types nest deeper than {MAX_DEPTH}; flatten them")
        plain = _FORMATS.get(type(info))
        if plain is not None:
            return dict(plain)
        match info:
            case kinds.Metadata():
                return {**self.schema(info.type, path, depth), **(info.extra_json_schema or {})}
            case kinds.IntType() | kinds.FloatType():
                name = "integer" if isinstance(info, kinds.IntType) else "number"
                return {"type": name, **_number_bounds(info)}
            case kinds.StrType():
                pattern = {} if info.pattern is None else {"pattern": info.pattern}
                return {"type": "string", **_length_bounds(info, "Length"), **pattern}
            case kinds.EnumType():
                return _enumeration([member.value for member in info.cls])
            case kinds.LiteralType():
                return _enumeration(list(info.values))
            case kinds.UnionType():
                return {"anyOf": [self._member(part, path, depth) for part in info.types]}
            case kinds.DictType():
                return self._mapping(info, path, depth)
            case kinds.CustomType():
                return self._custom(info.cls, path, depth)
            case _:
                return self._nested(info, path, depth)

    def _nested(self, info: kinds.Type, path: str, depth: int) -> dict[str, Any]:
        if isinstance(info, _LISTS):
            items = self.schema(info.item_type, f"{path}[]", depth + 1)
            unique = {"uniqueItems": True} if isinstance(info, (kinds.SetType, kinds.FrozenSetType)) else {}
            return {"type": "array", "items": items, **unique, **_length_bounds(info, "Items")}
        if isinstance(info, kinds.TupleType):
            return self._fixed(info.item_types, path, depth)
        if isinstance(info, (*_RECORDS, kinds.NamedTupleType)):
            return self._record(info, path, depth)
        raise UnsupportedTypeError(path, f"{type(info).__name__.removesuffix('Type')} has no JSON form")

    def _member(self, part: kinds.Type, path: str, depth: int) -> dict[str, Any]:
        schema = self.schema(part, path, depth)
        if isinstance(part, kinds.StructType) and part.tag_field is not None and "properties" in schema:
            schema["required"] = sorted({part.tag_field, *schema.get("required", ())})
        return schema

    def _mapping(self, info: kinds.DictType, path: str, depth: int) -> dict[str, Any]:
        keys = self.schema(info.key_type, f"{path} <key>", depth + 1)
        if keys and keys.get("type") != "string":
            raise UnsupportedTypeError(path, "JSON objects have string keys; use dict[str, …] or a list of pairs")
        values = self.schema(info.value_type, f"{path}.*", depth + 1)
        names = {"propertyNames": keys} if len(keys) > 1 else {}
        return {"type": "object", "additionalProperties": values, **names, **_length_bounds(info, "Properties")}

    def _fixed(self, types: tuple[kinds.Type, ...], path: str, depth: int) -> dict[str, Any]:
        items = [self.schema(each, f"{path}[{at}]", depth + 1) for at, each in enumerate(types)]
        sized = {"minItems": len(items), "maxItems": len(items)}
        if items and all(each == items[0] for each in items):
            return {"type": "array", "items": items[0], **sized}
        return {"type": "array", "prefixItems": items, "items": False, **sized}

    def _record(self, info: Any, path: str, depth: int) -> dict[str, Any]:
        if info.cls in self._above:
            raise UnsupportedTypeError(
                path, f"{_type_name(info.cls)} contains itself; break the cycle, or take it as dict"
            )
        self._above.append(info.cls)
        try:
            if isinstance(info, kinds.NamedTupleType) or getattr(info, "array_like", False):
                return self._row(info, path, depth)
            return self._closed_object(info, path, depth)
        finally:
            self._above.pop()

    def _row(self, info: Any, path: str, depth: int) -> dict[str, Any]:
        items = [self.schema(each.type, f"{path}.{each.name}", depth + 1) for each in info.fields]
        row = {"type": "array", "prefixItems": items, "minItems": sum(each.required for each in info.fields)}
        # msgspec reads an array-like struct that does not forbid it with elements to spare, from newer writers.
        is_open = not getattr(info, "forbid_unknown_fields", True)
        return row if is_open else {**row, "items": False, "maxItems": len(items)}

    def _closed_object(self, info: Any, path: str, depth: int) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        if getattr(info, "tag_field", None) is not None:
            properties[info.tag_field] = {"const": info.tag}
        for each in info.fields:
            place = f"{path}.{each.encode_name}"
            part = None if each.required else unwrap_optional(each.type)
            shown = self.schema(each.type if part is None else part, place, depth + 1)
            properties[each.encode_name] = {**shown, **encode_default(each.default)}
        return make_object_schema(properties, [each.encode_name for each in info.fields if each.required])

    def _custom(self, cls: Any, path: str, depth: int) -> dict[str, Any]:
        if cls is object:
            return {}
        if isinstance(cls, type) and issubclass(cls, Shape):
            return cls.describe(self, path, depth)
        if not is_model(cls):
            raise UnsupportedTypeError(path, f"{_type_name(cls)} has no JSON form; use a dataclass or a model")
        own: dict[str, Any] = cls.model_json_schema()
        prefix = f"{cls.__name__}{len(self.definitions) or ''}."
        schema: dict[str, Any] = _rename_references(own, prefix)
        self.definitions.update({prefix + name: each for name, each in schema.pop("$defs", {}).items()})
        return schema


def encode_default(default: Any) -> dict[str, Any]:
    """Return the `default` entry of a property: empty without a default, for None, and for one without a JSON form."""
    if default is None or default is msgspec.NODEFAULT or default is msgspec.UNSET:
        return {}
    try:
        return {"default": to_plain(default)}
    except UnserializableError:
        # The default still applies; only the model does not see it.
        return {}


def _number_bounds(info: Any) -> dict[str, Any]:
    found = {key: getattr(info, name) for name, key in _NUMBER_BOUNDS.items()}
    return {key: value for key, value in found.items() if value is not None}


def _length_bounds(info: Any, noun: str) -> dict[str, Any]:
    found = {f"min{noun}": getattr(info, "min_length", None), f"max{noun}": getattr(info, "max_length", None)}
    return {key: value for key, value in found.items() if value is not None}


def _enumeration(values: list[Any]) -> dict[str, Any]:
    plain = [value.value if isinstance(value, enum.Enum) else value for value in values]
    if all(isinstance(value, str) for value in plain):
        return {"type": "string", "enum": sorted(plain)}
    if all(isinstance(value, int) and not isinstance(value, bool) for value in plain):
        return {"type": "integer", "enum": sorted(plain)}
    return {"enum": plain}


def _rename_references(node: Any, prefix: str) -> Any:
    """Rename the definitions of a model's schema, so that they do not clash with those of another model."""
    if isinstance(node, list):
        return [_rename_references(each, prefix) for each in node]
    if not isinstance(node, dict):
        return node
    renamed = {key: _rename_references(each, prefix) for key, each in node.items()}
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        renamed["$ref"] = f"#/$defs/{prefix}{reference.removeprefix('#/$defs/')}"
    return renamed


def _type_name(annotation: Any) -> str:
    return getattr(annotation, "__qualname__", None) or str(annotation)


_MASK = "the value"


def describe_tool(tool: Tool, body: ToolBody) -> ToolDescriptor:
    """Return a descriptor that validates arguments and results by the tool's schemas; an empty one validates nothing.

    Raises:
        UnsupportedTypeError: a schema is not valid, or refers to another document.
    """
    check_args = schema_validator(tool.args_schema, f"{tool.name} args_schema") if tool.args_schema else None
    check_result = schema_validator(tool.out_schema, f"{tool.name} out_schema") if tool.out_schema else None
    return ToolDescriptor(
        tool=tool,
        body=body,
        validate_args=None if check_args is None else _check_bytes_with(check_args),
        validate_result=None if check_result is None else _check_plain_with(check_result),
    )


def schema_validator(schema: dict[str, Any], name: str = "schema") -> Callable[[Any], None]:
    """Return a function that raises ToolInvalidArgsError, with the path, for decoded JSON that does not fit `schema`.

    Raises:
        UnsupportedTypeError: the schema is not valid, or refers to another document.
    """
    # Costs 70 ms once, and only programs with foreign tools need it.
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for(schema, mask=_MASK, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise UnsupportedTypeError(name, f"not a usable JSON Schema: {error}") from error

    def check(value: Any) -> None:
        try:
            validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            raise _to_invalid_args(error) from error
        except (ValueError, RecursionError) as error:
            raise ToolInvalidArgsError(f"not JSON: {type(error).__name__}") from error

    return check


def _check_bytes_with(check: Callable[[Any], None]) -> Callable[[bytes], None]:
    def check_bytes(args: bytes) -> None:
        try:
            value = msgspec.json.decode(args if args.strip() else b"{}")
        except (ValueError, RecursionError) as error:
            raise to_invalid_args(error) from error
        check(value)

    return check_bytes


def _check_plain_with(check: Callable[[Any], None]) -> Callable[[Any], None]:
    def check_plain(value: Any) -> None:
        try:
            plain = msgspec.to_builtins(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise ToolInvalidArgsError(f"not JSON: {error}") from error
        check(plain)

    return check_plain


def _to_invalid_args(error: Any) -> ToolInvalidArgsError:
    """Convert a validation error into one with its path; a missing or unknown field belongs to the path."""
    kind = error.kind
    field = getattr(kind, "property", None) or next(iter(getattr(kind, "unexpected", ())), None)
    return ToolInvalidArgsError(
        str(error.message), json_path(error.instance_path) + (f".{field}" if isinstance(field, str) else "")
    )
