"""The declared output of an agent: the schema that its model is shown, and the way from an answer to the value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from harborage import codec
from harborage.artifacts.media import Media
from harborage.planner.answers import AnswerInvalidError, AnswerSchema
from harborage.tools.errors import ToolInvalidArgsError, UnsupportedTypeError
from harborage.tools.schema import SchemaBuilder, make_object_schema, schema_validator
from harborage.tools.values import make_reader, readable

if TYPE_CHECKING:
    from harborage.runtime.partials import PartialJson, Path

T = TypeVar("T")

_PLACE: Final = "output"
_WRAPPED: Final = "value"
_OBJECT: Final = "object"
_DEEPEST: Final = 32


class JsonSchema(msgspec.Struct, frozen=True):
    """A plain JSON schema as the output of an agent; its values are what `json.loads` gives."""

    schema: dict[str, Any]


def json_schema(schema: Mapping[str, Any]) -> type[dict[str, Any]]:
    """Return what `output=` takes for a plain JSON schema; the output is then a dict that is valid against it.

    Raises:
        UnsupportedTypeError: it is no schema of an object.
    """
    if schema.get("type") != _OBJECT:
        raise UnsupportedTypeError(_PLACE, "json_schema takes the schema of an object: {'type': 'object', …}")
    made: Any = JsonSchema(dict(schema))  # checkers see the type of its values
    return made  # type: ignore[no-any-return]


class OutputType(Generic[T]):
    """How an answer becomes a value of one type. `schema` is an object at the top, as providers want it: a type that
    is none is wrapped in an object with the one field `value`."""

    def __init__(self, schema: dict[str, Any], read: Callable[[Any], T], *, is_wrapped: bool, takes_text: bool) -> None:
        self.schema = schema
        self._read = read
        self._is_wrapped = is_wrapped
        self._takes_text = takes_text

    @property
    def for_record(self) -> AnswerSchema:
        """The form alone, for a run that is asked for it in place of its agent's."""
        return AnswerSchema(self.schema, self._is_wrapped, self._takes_text)

    @property
    def takes_text(self) -> bool:
        """Whether a plain text is a value of the type."""
        return self._takes_text

    @property
    def inner_schema(self) -> dict[str, Any]:
        """The schema of the value alone, without the wrapper."""
        if not self._is_wrapped:
            return self.schema
        inner = self.schema["properties"][_WRAPPED]
        return {**inner, "$defs": self.schema["$defs"]} if "$defs" in self.schema else dict(inner)

    def check(self, value: Any) -> Any:
        """Return the answer as plain JSON, without the wrapper.

        Raises:
            AnswerInvalidError: it does not fit the type.
        """
        inner = value
        if self._is_wrapped and isinstance(value, dict) and value.keys() == {_WRAPPED}:
            inner = value[_WRAPPED]
        if isinstance(value, str) and not self._takes_text:
            raise AnswerInvalidError("it is no JSON; write one JSON value that matches the schema, and nothing else")
        try:
            return codec.to_plain(self._read(inner), _PLACE)
        except ToolInvalidArgsError as error:
            raise AnswerInvalidError(str(error)) from error

    def decode(self, payload: Any) -> T:
        """Return the value that a finish carries.

        Raises:
            AnswerInvalidError: it does not fit the type, which has changed since.
        """
        try:
            return self._read(payload)
        except ToolInvalidArgsError as error:
            raise AnswerInvalidError(f"what the run gave does not fit the agent's output any more: {error}") from error

    def __call__(self, payload: Any) -> T:
        """As `decode`."""
        return self.decode(payload)

    def read_partial(self, text: str, document: PartialJson) -> T:
        """Return the value that the beginning of an answer stands for; fields still to come are their defaults.

        Raises:
            AnswerInvalidError: it stands for none yet.
        """
        if self._takes_text and text and not document.has_begun:
            return self._read(text)
        for found in document.candidates(self._grows):
            is_in = self._is_wrapped and isinstance(found, dict) and found.keys() <= {_WRAPPED}
            if is_in and not found:
                continue
            try:
                return self._read(found[_WRAPPED] if is_in else found)
            except ToolInvalidArgsError:
                continue
        raise AnswerInvalidError("nothing of it is whole yet")

    def _grows(self, path: Path) -> bool:
        """Whether any text may stand at a place, so that the beginning of one may, too."""
        at = [self.schema, self.inner_schema] if self._is_wrapped and path[:1] != (_WRAPPED,) else [self.schema]
        for step in path:
            at = [inner for one in at for inner in self._below(one, step)]
        return any(_is_any_text(one) for node in at for one in self._branches(node))

    def _branches(self, node: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
        """A node of the schema as it is meant: what it refers to, and each that it may be."""
        if not isinstance(node, dict) or depth > _DEEPEST:
            return
        if isinstance(named := node.get("$ref"), str):
            yield from self._branches(self.schema.get("$defs", {}).get(named.rpartition("/")[2]), depth + 1)
        inner = [one for way in ("anyOf", "oneOf", "allOf") for one in node.get(way, ())]
        for one in inner:
            yield from self._branches(one, depth + 1)
        if not inner and named is None:
            yield node

    def _below(self, node: Any, step: str | int) -> Iterator[Any]:
        for one in self._branches(node):
            if isinstance(step, str):
                yield one.get("properties", {}).get(step, one.get("additionalProperties"))
            else:
                places = one.get("prefixItems", ())
                yield places[step] if step < len(places) else one.get("items")


def _is_any_text(node: dict[str, Any]) -> bool:
    limits = ("enum", "const", "format", "pattern", "contentEncoding", "minLength")
    return node == {} or (node.get("type") == "string" and not any(limit in node for limit in limits))


def output_type(output: Any) -> OutputType[Any] | None:
    """Return how answers become values of the type `output`; None for text, which needs nothing.

    Raises:
        UnsupportedTypeError: it is no type, or one without a JSON form.
    """
    if output is str:
        return None
    if isinstance(output, JsonSchema):
        return OutputType(output.schema, _validated(output.schema), is_wrapped=False, takes_text=False)
    _refuse(output)
    builder, read_as = SchemaBuilder(), readable(output, _PLACE)
    schema = builder.describe(read_as, _PLACE)
    is_wrapped = schema.get("type") != _OBJECT
    if is_wrapped:
        schema = make_object_schema({_WRAPPED: schema}, [_WRAPPED])
    if builder.definitions:
        schema = {**schema, "$defs": builder.definitions}
    return OutputType(schema, make_reader(read_as, _PLACE), is_wrapped=is_wrapped, takes_text=str in members(output))


def _refuse(output: Any) -> None:
    """Refuse what is no type.

    Raises:
        UnsupportedTypeError: with the fix.
    """
    if isinstance(output, str):
        raise UnsupportedTypeError(_PLACE, f"takes the type, not its name: output={output}")
    if isinstance(output, dict):
        raise UnsupportedTypeError(_PLACE, "takes a type; for a schema write output=json_schema({…})")
    if output is None or output is Any or isinstance(output, TypeVar):
        raise UnsupportedTypeError(_PLACE, f"{output} says nothing about an answer; leave it out for text")
    if any(isinstance(one, type) and issubclass(one, Media) for one in members(output)):
        raise UnsupportedTypeError(_PLACE, "a model answers in text; let a tool return the picture, sound or file")
    if not isinstance(output, type) and get_origin(output) is None and not hasattr(output, "__supertype__"):
        raise UnsupportedTypeError(_PLACE, f"takes the type: {type(output).__name__}")


def members(annotation: Any) -> tuple[Any, ...]:
    """The types of a union; the type itself for any other."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _validated(schema: dict[str, Any]) -> Callable[[Any], Any]:
    validate = schema_validator(schema, "output")

    def read(value: Any) -> Any:
        validate(value)
        return value

    return read
