"""Numbered pages of lists, as requests ask for them."""

from __future__ import annotations

import base64
import binascii
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


def encode_token(text: str) -> str:
    """Return the token of a place in a list: unpadded URL-safe base64."""
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def decode_token(token: str) -> str:
    """Return what a token spells; one that spells it in another way is none.

    Raises:
        ProtocolError: `invalid_request`: it is no token.
    """
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise foreign_cursor() from error
    if encode_token(text) != token:
        raise foreign_cursor()
    return text


def foreign_cursor() -> ProtocolError:
    """What is said of a cursor that no page of this list gave out."""
    return ProtocolError(Code.INVALID_REQUEST, "cursor: not one of this list; send what the last page answered")
