"""What callers mark runs with: names and values, as rows have them and as queries look for them. Pure.

Each tag is a line of JSON, so that a run has a tag where its text has that line, in every database alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from harborage import codec


def marks_of(tags: Mapping[str, str]) -> tuple[str, ...]:
    """What the text of a run with these tags contains, one mark for each."""
    return tuple(f"\n{codec.encode_text(name)}:{codec.encode_text(value)}\n" for name, value in sorted(tags.items()))


def text_of(tags: Mapping[str, str]) -> str:
    """How a row has these tags."""
    return "".join(marks_of(tags))


def tags_of(text: str) -> dict[str, str]:
    """The tags of a row."""
    if not text:
        return {}
    lines = ",".join(line for line in text.split("\n") if line)
    found: dict[str, str] = codec.decode(f"{{{lines}}}".encode(), dict[str, str])
    return found
