"""Pages: where the next one is, when there is none, and all of them as one value."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.identity import Identity
from harborage.tools import HTTP, CallContext, Invoker, Paging, ToolResult
from harborage.tools.http.errors import HTTPAnswerError
from harborage.tools.http.paging import Pages, next_link
from harborage.tools.sources import SourceServices, ToolLimits
from tests.kit.http_peer import Request, Response, peer

pytestmark = pytest.mark.anyio

WHO = Identity("tenant", "user", "session").with_run("run")


async def read(paging: Paging, handler: Any, limits: ToolLimits, args: bytes = b"{}") -> tuple[ToolResult, list[str]]:
    async with peer(handler) as served:
        given = {"page": {}} if paging.page else None
        source = HTTP("x", f"GET {served.url}/list", effects="read", paging=paging, args=given)
        opened = source.open(SourceServices(limits=limits))
        try:
            [tool] = await opened.list_tools(WHO)
            result = await Invoker().invoke(tool, args, CallContext(WHO))
        finally:
            await opened.aclose()
        return result, [one.target for one in served.asked]


async def test_links_are_followed_up_to_a_limit_and_the_rest_is_named() -> None:
    """An address of the same peer goes on with the same auth; the next one is in the metadata."""

    def handler(request: Request) -> Response:
        page = int(request.query.get("p", "1"))
        return Response(200, [page], {"link": f'</list?p={page + 1}>; rel="next", </list?p=1>; rel="first"'})

    result, asked = await read(Paging(link=True), handler, ToolLimits(http_pages=3))
    assert result.value == [1, 2, 3]
    assert result.meta is not None
    assert (result.meta["pages"], result.meta["next"]) == (3, "/list?p=4")
    assert asked == ["/list", "/list?p=2", "/list?p=3"]


async def test_all_pages_of_a_call_share_one_limit_of_bytes() -> None:
    """A list that is large in all is refused as one large answer is."""
    big, small = ["x" * 600], ToolLimits(result_bytes=1000)
    with pytest.raises(HTTPAnswerError, match="larger than"):
        await read(Paging(page="page"), lambda _request: Response(200, big), small, b'{"page": 1}')


@pytest.mark.parametrize(
    ("header", "address"),
    [
        ('<https://a/2>; rel="next"', "https://a/2"),
        ("<https://a/2>; rel=next", "https://a/2"),
        ('<https://a/1>; rel="prev", <https://a/3>; title="x"; rel="next last"', "https://a/3"),
        ('<https://a/1>; rel="nextish"', ""),
        ("", ""),
    ],
)
def test_the_next_page_of_a_header(header: str, address: str) -> None:
    """By its relation, whatever else there is."""
    assert next_link(header) == address


def test_a_cursor_that_does_not_move_ends_the_list() -> None:
    """A peer that names the same page for ever is not asked for ever."""
    pages = Pages(Paging(cursor="after", next="meta.cursor", items="items"), {})
    pages.add({"items": [1], "meta": {"cursor": "c"}}, {})
    assert (pages.has_next, pages.next_args) == (True, {"after": "c"})
    pages.add({"items": [2], "meta": {"cursor": "c"}}, {})
    assert not pages.has_next
    assert pages.value == {"items": [1, 2], "meta": {"cursor": "c"}}


def test_what_is_no_list_does_not_go_on() -> None:
    """An answer of another form is the result as it is."""
    pages = Pages(Paging(page="page"), {})
    pages.add({"error": "none"}, {})
    assert (pages.has_next, pages.value) == (False, {"error": "none"})
