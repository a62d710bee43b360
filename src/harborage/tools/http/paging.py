"""The pages of a list: where the next one is, and all of them as one value. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from harborage.tools.http.operation import Paging

_LINK: Final = re.compile(r"<([^<>]*)>([^<]*)")
_NEXT: Final = re.compile(r"""rel\s*=\s*(?:"[^"]*\bnext\b[^"]*"|next\b)""", re.IGNORECASE)


class Pages:
    """The pages of one call. `add` takes each; `has_next` says whether there is another, `value` is all of them.

    The value has the form of a page: an answer that is an object is the last one, with the items of all.
    """

    def __init__(self, paging: Paging, args: Mapping[str, Any]) -> None:
        self._paging = paging
        self._args = dict(args)
        self._items: list[Any] = []
        self._last: Any = None
        self._is_list = True
        self.count = 0
        self.link = ""
        self.has_next = False

    def add(self, page: Any, headers: Mapping[str, str]) -> None:
        """Take the next page."""
        self.count += 1
        self._last = page
        found = _at(page, self._paging.items)
        self._is_list = isinstance(found, list)
        items = found if isinstance(found, list) else []
        self._items += items
        if not self._is_list:
            self.has_next = False  # it is no list, so it does not go on
        elif self._paging.link:
            self.link = next_link(headers.get("link", ""))
            self.has_next = bool(self.link)
        elif self._paging.cursor:
            self._go_on_behind(_at(page, self._paging.next))
        else:
            self._go_on_after(items)

    def _go_on_behind(self, cursor: Any) -> None:
        is_known = cursor in (None, "", False) or cursor == self._args.get(self._paging.cursor)
        self.has_next = not is_known and isinstance(cursor, str | int)
        if self.has_next:
            self._args[self._paging.cursor] = cursor

    def _go_on_after(self, items: list[Any]) -> None:
        size = self._args.get(self._paging.size) if self._paging.size else None
        self.has_next = bool(items) and (not isinstance(size, int) or len(items) >= size)
        if self.has_next:
            page = self._args.get(self._paging.page, 1)
            self._args[self._paging.page] = page + 1 if isinstance(page, int) else 2

    @property
    def next_args(self) -> dict[str, Any]:
        """The arguments of the next page."""
        return self._args

    @property
    def value(self) -> Any:
        """All pages as one."""
        return _put(self._last, self._paging.items, self._items) if self._is_list else self._last

    @property
    def meta(self) -> dict[str, Any]:
        """How many pages were read, and what the next one is, if there is one."""
        found: dict[str, Any] = {"pages": self.count}
        if self.has_next:
            found["next"] = self.link or self._args.get(self._paging.cursor or self._paging.page)
        return found


def next_link(header: str) -> str:
    """Return the address that a header `Link` names as the next page; empty where there is none."""
    return next((address for address, params in _LINK.findall(header) if _NEXT.search(params)), "")


def _at(value: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _put(value: Any, path: str, items: list[Any]) -> Any:
    if not path:
        return items
    name, _, rest = path.partition(".")
    return {**value, name: _put(value.get(name), rest, items)}
