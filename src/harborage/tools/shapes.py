"""The base of classes that stand in the place of a type which msgspec cannot read by itself."""

from __future__ import annotations

import re
from typing import Any, Protocol


class Describer(Protocol):
    """Writes the schemas of the types inside a shape, as `SchemaBuilder` does."""

    def describe(self, annotation: Any, path: str, depth: int) -> dict[str, Any]:
        """Return the schema of a type at this place."""
        ...


class InvalidValueError(ValueError):
    """A shape or a model refused its part of a value; `path` is the place below that part."""

    def __init__(self, reason: str, path: str) -> None:
        self.reason = reason
        self.path = path
        super().__init__(reason)


class _Shapes(type):
    """The class of shapes. msgspec asks whether what a shape has read is an instance of it, and it is the value."""

    def __instancecheck__(cls, _value: object) -> bool:
        return True


class Shape(metaclass=_Shapes):
    """A type that is read and described by a rule of its own; each is a subclass that is never instantiated."""

    @classmethod
    def read(cls, value: Any) -> Any:
        """Return the value that plain JSON, or a value of the type itself, means.

        Raises:
            InvalidValueError: it does not fit, with the path.
        """
        raise NotImplementedError

    @classmethod
    def describe(cls, describer: Describer, path: str, depth: int) -> dict[str, Any]:
        """Return the schema of the type.

        Raises:
            UnsupportedTypeError: something inside has no JSON form.
        """
        raise NotImplementedError


def is_model(cls: Any) -> bool:
    """Whether a class has its own schema and validation, as pydantic models do; nothing is imported to find out."""
    return isinstance(cls, type) and hasattr(cls, "model_json_schema") and hasattr(cls, "model_validate_json")


def type_name(annotation: Any) -> str:
    """Return the name of a type for people, `Answer` or `list[Answer]`, without its module."""
    args = getattr(annotation, "__args__", None)
    name = getattr(annotation, "__qualname__", None) or getattr(annotation, "__name__", None)
    if args or not isinstance(name, str):
        return re.sub(r"[A-Za-z_]\w*\.|<locals>\.", "", str(annotation))
    return name.rpartition(".<locals>.")[2]
