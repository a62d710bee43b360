"""Check values against JSON Schemas that other people wrote: MCP servers, HTTP manifests, remote agents.

A schema is compiled once, when its tool is described. Schemas are never fetched from anywhere, and error texts name
the place and the rule but hide the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from harborage.tools.arguments import invalid_args
from harborage.tools.errors import ToolInvalidArgsError, UnsupportedTypeError
from harborage.tools.model import Tool, ToolBody, ToolDescriptor

__all__ = ["describe_tool", "schema_validator"]

_MASK = "the value"


def describe_tool(tool: Tool, body: ToolBody) -> ToolDescriptor:
    """A descriptor that checks arguments and results against the tool's own schemas; an empty schema checks nothing.

    Raises:
        UnsupportedTypeError: a schema is not valid, or refers to another document.
    """
    check_args = schema_validator(tool.args_schema, f"{tool.name} args_schema") if tool.args_schema else None
    check_result = schema_validator(tool.out_schema, f"{tool.name} out_schema") if tool.out_schema else None
    return ToolDescriptor(
        tool=tool,
        body=body,
        validate_args=None if check_args is None else _of_bytes(check_args),
        validate_result=None if check_result is None else _of_plain(check_result),
    )


def schema_validator(schema: dict[str, Any], name: str = "schema") -> Callable[[Any], None]:
    """A function that accepts decoded JSON that fits `schema` and raises ToolInvalidArgsError, naming the path, else.

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
            raise _named(error) from error
        except (ValueError, RecursionError) as error:
            raise ToolInvalidArgsError(f"not JSON: {type(error).__name__}") from error

    return check


def _of_bytes(check: Callable[[Any], None]) -> Callable[[bytes], None]:
    def check_bytes(args: bytes) -> None:
        try:
            value = msgspec.json.decode(args if args.strip() else b"{}")
        except (ValueError, RecursionError) as error:
            raise invalid_args(error) from error
        check(value)

    return check_bytes


def _of_plain(check: Callable[[Any], None]) -> Callable[[Any], None]:
    def check_plain(value: Any) -> None:
        try:
            plain = msgspec.to_builtins(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise ToolInvalidArgsError(f"not JSON: {error}") from error
        check(plain)

    return check_plain


def _named(error: Any) -> ToolInvalidArgsError:
    """The complaint with its path; a missing or unknown field belongs to the path."""
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    kind = error.kind
    field = getattr(kind, "property", None) or next(iter(getattr(kind, "unexpected", ())), None)
    return ToolInvalidArgsError(str(error.message), f"${steps}" + (f".{field}" if isinstance(field, str) else ""))
