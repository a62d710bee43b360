"""Worked examples of calls, made from the tools: a small model imitates what it cannot follow as an instruction. Pure.

Each tool gives one: its description as the request, and a call with likely arguments as the reply. Together they are
the list of tools, in the form in which the model is to use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from harborage import codec
from harborage.llm.local.decisions import simplify_schema, write_answer, write_call

if TYPE_CHECKING:
    from harborage.llm.client import ToolDeclaration

MOST_EXAMPLES: Final = 8
"""How many tools get an example; more examples make a small model choose worse."""

Example = tuple[str, str]
"""A request, and the reply that decides it."""

_LONGEST_REQUEST: Final = 160
_GREETING: Final = ("Hello!", "Hello! What can I do for you?")
_SAID: Final = re.compile(r"[,;]?\s*(?:such as|for example|e\.g\.)\s+", re.IGNORECASE)
_ANY_TEXT: Final = "hello"
_CLUE_WORDS: Final = 5
# A word of a property's name, or of the beginning of its description, and a value that looks like it.
_LIKELY: Final = (
    ("content", "hello"),
    ("text", "hello"),
    ("message", "hello"),
    ("folder", "src"),
    ("directory", "src"),
    ("url", "https://example.org/page"),
    ("address", "https://example.org/page"),
    ("email", "ada@example.org"),
    ("file", "todo.md"),
    ("path", "todo.md"),
    ("expression", "6 * 7"),
    ("timezone", "Europe/Vienna"),
    ("date", "2026-01-31"),
    ("time", "17:30"),
    ("city", "Vienna"),
    ("place", "Vienna"),
    ("language", "French"),
    ("currency", "EUR"),
    ("word", "harbour"),
    ("name", "Ada"),
    ("to", "Ada"),
    ("id", "a1"),
    ("query", "harbour"),
)
_LIKELY_FORMATS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T17:30:00Z",
    "email": "ada@example.org",
    "time": "17:30:00",
    "uri": "https://example.org/page",
    "uuid": "7d444840-9dc0-11d1-b245-5ffdce74fad2",
}


def make_examples(tools: Sequence[ToolDeclaration], answer: str = "") -> list[Example]:
    """Return an example for each of the first few tools, and one of an answer when `answer` names one.

    The greeting comes first, as a small model repeats the last example.
    """
    greeting = [(_GREETING[0], write_answer(answer, _GREETING[1]))] if answer else []
    return [*greeting, *(make_example(tool) for tool in tools[:MOST_EXAMPLES])]


def make_example(tool: ToolDeclaration) -> Example:
    """Return a request for this tool, and the call that serves it."""
    arguments = _given(tool.schema) or _likely(tool)
    request = _request(tool)
    shown = ", ".join(_shown(value) for value in arguments.values())
    text = f"{request}: {shown}" if shown else f"{request}."
    return text[:_LONGEST_REQUEST], write_call(tool.name, codec.encode(arguments))


def _request(tool: ToolDeclaration) -> str:
    """Return the first sentence of the description without its examples; the name in words where there is none."""
    sentence = re.split(r"(?<=[a-z0-9)])[.!?](?:\s|$)", " ".join(tool.description.split()), maxsplit=1)[0]
    plain = _SAID.split(sentence, maxsplit=1)[0].rstrip(" ,;:.")
    return plain or tool.name.replace("_", " ").strip().capitalize()


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else codec.encode_text(value)


def _given(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in the first example of the schema, if they are an object."""
    examples = schema.get("examples")
    first = examples[0] if isinstance(examples, list | tuple) and examples else None
    return first if isinstance(first, dict) else {}


def _likely(tool: ToolDeclaration) -> dict[str, Any]:
    """Return likely arguments: the required ones, else the first optional one."""
    shape = simplify_schema(tool.schema)
    shape = next(iter(shape.get("anyOf", ())), shape)
    properties = shape.get("properties", {})
    described = tool.schema.get("properties")
    described = described if isinstance(described, Mapping) else {}
    names = list(shape.get("required", ())) or list(properties)[:1]
    in_text = _example_in(tool.description) if len(names) == 1 else ""
    return {name: _value(name, properties[name], described.get(name), in_text) for name in names}


def _value(name: str, shape: Mapping[str, Any], described: Any, in_text: str = "") -> Any:
    """Return a likely value: from the schema, from its description, else one that suits its name or type."""
    own = described if isinstance(described, Mapping) else {}
    for value in _named(shape, own):
        return value
    match shape.get("type"):
        case "string":
            text = _text(name, own, in_text)
            return text[: shape.get("maxLength", len(text))].ljust(shape.get("minLength", 0), "x")
        case "integer":
            return min(max(2, shape.get("minimum", 2)), shape.get("maximum", shape.get("minimum", 2) + 2))
        case "number":
            return 2
        case "boolean":
            return True
        case "array":
            return [_value(name, shape.get("items", {}), own.get("items"))] * max(1, shape.get("minItems", 0))
        case "object":
            inner = shape.get("properties", {})
            return {key: _value(key, inner[key], None) for key in shape.get("required", ())}
        case _ if "anyOf" in shape:
            return _value(name, shape["anyOf"][0], own)
        case "null":
            return None
        case _:
            return _ANY_TEXT


def _named(shape: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[Any]:
    if "const" in shape:
        yield shape["const"]
    if shape.get("enum"):
        yield shape["enum"][0]
    examples = own.get("examples")
    if isinstance(examples, list | tuple) and examples:
        yield examples[0]


def _text(name: str, own: Mapping[str, Any], in_text: str) -> str:
    description = own.get("description")
    described = description if isinstance(description, str) else ""
    example = _example_in(described).split(" ", 1)[0].rstrip(",;.")
    named = re.findall(r"[a-z]+", name.lower())
    meant = [*named, *re.findall(r"[a-z]{3,}", described.lower())[:_CLUE_WORDS]]
    by_format = _LIKELY_FORMATS.get(str(own.get("format")), "")
    return by_format or example or _clue(meant, among=named) or in_text or _clue(meant) or _ANY_TEXT


def _clue(words: list[str], among: list[str] | None = None) -> str:
    """Return the value of the first clue in `words`; with `among`, only if one of those is a clue."""
    if among is not None and not any(clue in among for clue, _ in _LIKELY):
        return ""
    return next((value for clue, value in _LIKELY if clue in words), "")


def _example_in(description: str) -> str:
    """Return the example in a description: the text behind `such as`, up to the end of the sentence."""
    parts = _SAID.split(" ".join(description.split()), maxsplit=1)
    return re.split(r"[.;](?:\s|$)|\s+or\s+", parts[1], maxsplit=1)[0].strip(" .,;") if len(parts) == 2 else ""
