"""Numbered pages of lists, as requests ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from harborage.protocol.errors import Code, ProtocolError

T = TypeVar("T")

DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 200


def checked_page(page: int, page_size: int) -> tuple[int, int]:
    """Return number and size of a page, with the defaults in place of zeros.

    Raises:
        ProtocolError: `invalid_request`: one is negative, or the size too large.
    """
    if page < 0 or not 0 <= page_size <= MAX_PAGE_SIZE:
        text = f"page is a number from 1, page_size from 1 to {MAX_PAGE_SIZE} (0 is {DEFAULT_PAGE_SIZE})"
        raise ProtocolError(Code.INVALID_REQUEST, f"invalid request: {text}")
    return page or 1, page_size or DEFAULT_PAGE_SIZE


def page_count(total: int, page_size: int) -> int:
    """Return how many pages there are; 0 of nothing."""
    return -(-total // page_size)


def cut_page(rows: Sequence[T], page: int, page_size: int) -> list[T]:
    """Return the rows of a page; none behind the last."""
    return list(rows[(page - 1) * page_size : page * page_size])
