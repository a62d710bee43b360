"""Long text for a model in pieces that stay light: one heavy text would be taken for raw content that leaked. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from harborage.llm.content import Content, TextPart

__all__ = ["PIECE_BYTES", "in_pieces"]

PIECE_BYTES: Final = 4096
"""How large a piece grows: well below every sensible threshold of what is heavy."""


def in_pieces(lines: Iterable[str]) -> Content:
    """The lines as one text if they are short, else as several text parts; a longer line is a part of its own."""
    pieces: list[str] = []
    piece: list[str] = []
    size = 0
    for line in lines:
        bytes_of_line = len(line.encode("utf-8", "replace")) + 1
        if piece and size + bytes_of_line > PIECE_BYTES:
            pieces.append("\n".join(piece) + "\n")
            piece, size = [], 0
        piece.append(line)
        size += bytes_of_line
    pieces.append("\n".join(piece))
    return Content(text=pieces[0]) if len(pieces) == 1 else Content(parts=tuple(map(TextPart, pieces)))
