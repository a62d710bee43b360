"""What the model wrote under the schema, read back: a call, an answer, or neither because it was cut off. Pure.

While the text streams, the words of an answer are taken out of it as they come; a call shows nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Final, TypeAlias

import msgspec

from harborage import codec
from harborage.llm.local.schemas import TEXT


class Call(msgspec.Struct, frozen=True):
    """A call of one tool; `args` is a JSON object."""

    name: str
    args: bytes


class Answer(msgspec.Struct, frozen=True):
    """The final answer."""

    text: str


class CutOff(msgspec.Struct, frozen=True):
    """No decision: the reply ended in the middle. `text` is what there is of an answer."""

    text: str = ""


Decision: TypeAlias = Call | Answer | CutOff


def written_call(name: str, args: bytes) -> str:
    """A call as the model is to write it; arguments that are no JSON object become none."""
    try:
        arguments = codec.decode(args or b"{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        arguments = {}
    return _written(name, arguments if isinstance(arguments, dict) else {})


def written_answer(name: str, text: str) -> str:
    """An answer as the model is to write it."""
    return _written(name, {TEXT: text})


def _written(name: str, arguments: object) -> str:
    # With a blank after each colon and comma, as models write JSON by themselves.
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def read_decision(reply: str, *, tools: Collection[str], answer: str, is_object: bool = False) -> Decision:
    """What `reply` decides. With `is_object` the answer is an object, and its JSON the text. Never: fails."""
    try:
        found = json.loads(reply)
    except (ValueError, RecursionError):
        stream = AnswerStream(answer)
        return CutOff("" if is_object else stream.feed(reply))
    if not isinstance(found, dict):
        return CutOff()
    name, arguments = found.get("name"), found.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return CutOff()
    if name == answer:
        if is_object:
            return Answer(json.dumps(arguments, ensure_ascii=False))
        text = arguments.get(TEXT)
        return Answer(_whole(text)) if isinstance(text, str) else CutOff()
    return Call(name, json.dumps(arguments).encode()) if name in tools else CutOff()


_BLANK: Final = r"\s*"


class AnswerStream:
    """The text of an answer, out of the pieces of the JSON that holds it.

    Whatever the pieces are, what `feed` returns for them is in sum the text: an escape or a pair of surrogates that is
    not whole yet waits for its end.
    """

    __slots__ = ("_head", "_is_over", "_opening", "_rest", "_wrong")

    def __init__(self, answer: str) -> None:
        name = re.escape(json.dumps(answer))
        parts = (r"\{", '"name"', ":", name, ",", '"arguments"', ":", r"\{", f'"{TEXT}"', ":", '"')
        self._opening = re.compile(_BLANK + _BLANK.join(parts))
        # A reply that names something else is a call, and has nothing to show.
        self._wrong = re.compile(_BLANK + _BLANK.join((r"\{", '"name"', ":", rf"(?!{name})" + r'"[^"]*"')))
        self._head: str | None = ""
        self._rest = ""
        self._is_over = False

    def feed(self, delta: str) -> str:
        """What `delta` adds to the text, if anything."""
        if self._is_over or not delta:
            return ""
        if self._head is not None:
            self._head += delta
            begun = self._opening.match(self._head)
            if begun is None:
                self._is_over = self._wrong.match(self._head) is not None
                return ""
            delta, self._head = self._head[begun.end() :], None
        return self._taken(self._rest + delta)

    def _taken(self, raw: str) -> str:
        """The text of `raw` up to its end or to what is not whole yet."""
        at = 0
        while at < len(raw) and raw[at] != '"':
            step = _unit(raw, at)
            if not step:
                break
            at += step
        self._is_over = at < len(raw) and raw[at] == '"'
        self._rest = raw[at:]
        return _unescaped(raw[:at])


def _unit(raw: str, at: int) -> int:
    """How many characters the character at `at` is written with; 0 when they are not all there yet."""
    if raw[at] != "\\":
        return 1
    if at + 1 >= len(raw):
        return 0
    if raw[at + 1] != "u":
        return 2
    if at + 6 > len(raw):
        return 0
    if not _is_high(raw[at + 2 : at + 6]):
        return 6
    following = raw[at + 6 : at + 12]
    if len(following) == 6 or not "\\u".startswith(following[:2]):
        return 12 if following.startswith("\\u") and _is_low(following[2:]) else 6
    return 0


def _is_high(digits: str) -> bool:
    return digits[:1] in "dD" and digits[1:2] in "89abAB"


def _is_low(digits: str) -> bool:
    return digits[:1] in "dD" and digits[1:2] in "cdefCDEF"


def _unescaped(raw: str) -> str:
    if "\\" not in raw:
        return raw
    try:
        return _whole(json.loads(f'"{raw}"', strict=False))
    except ValueError:
        return raw


def _whole(text: str) -> str:
    """`text` without halves of a surrogate pair, which no encoding takes."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
