"""Documents of real products: read as they are, with all that is awkward in them, and called."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec
import pytest

from harborage.errors import InvalidOptionError
from harborage.identity import Identity
from harborage.secrets import secret
from harborage.tools import ApiKey, Bearer, CallContext, Invoker, Loading, OpenAPI, SideEffect, ToolDescriptor
from harborage.tools.http.errors import HeaderConflictError
from harborage.tools.sources import SourceServices
from tests.kit.http_peer import Request, Response, peer
from tests.kit.openapi_documents import document

pytestmark = pytest.mark.anyio

WHO = Identity("tenant", "user", "session").with_run("run")
TOKEN = Bearer(secret("env:API_TOKEN"))
KEY = ApiKey(secret("env:API_TOKEN"))


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "canary-token")


def by_name(source: OpenAPI) -> dict[str, ToolDescriptor[Any]]:
    return {one.tool.name: one for one in source.known}


async def called(source: OpenAPI, name: str, args: dict[str, Any]) -> Any:
    opened = source.open(SourceServices())
    try:
        tools = {one.tool.name: one for one in await opened.list_tools(WHO)}
        context = CallContext(WHO, idempotency_key="run/1")
        return (await Invoker().invoke(tools[name], msgspec.json.encode(args), context)).value
    finally:
        await opened.aclose()


@pytest.mark.parametrize(
    ("name", "count", "options"),
    [
        ("figma", 54, {"auth": TOKEN}),
        ("directus", 136, {"auth": TOKEN, "base_url": "http://127.0.0.1:9"}),
        ("blockfrost", 129, {"auth": KEY}),
        ("notion", 24, {"auth": TOKEN, "headers": {"Notion-Version": "2022-06-28"}}),
    ],
)
def test_every_operation_becomes_a_tool_whose_schema_is_sound(name: str, count: int, options: dict[str, Any]) -> None:
    """No document is refused for what is wrong elsewhere in it; what cannot be called says why."""
    found = by_name(OpenAPI(document(name), name=name, **options))
    assert len(found) == count
    for one in found.values():
        if one.unavailable:
            continue
        jsonschema_rs.validator_for(one.tool.args_schema, offline=True)
        assert "'nullable': True" not in str(one.tool.args_schema)
        assert one.tool.description
        assert len(one.tool.description.encode()) <= 2048
        assert one.tool.loading is (Loading.DEFERRED if count > 30 else Loading.ALWAYS)
    assert len([one for one in found.values() if one.unavailable]) <= 3


async def test_figma_is_selected_by_id_line_and_tag() -> None:
    """Its calls go where the document says, with the token; what wants another key says which."""
    with pytest.raises(InvalidOptionError, match="did you mean 'getFile'"):
        OpenAPI(document("figma"), select=["getFyle"])
    source = OpenAPI(document("figma"), select=["getFile", "GET /v1/me", "tag:Comments"], auth=TOKEN)
    found = by_name(source)
    assert source.name == "figma-rest-api-spec-0_43_0"
    assert {"getFile", "getMe", "getComments", "postComment"} < {name.rpartition("_")[2] for name in found}
    async with peer(lambda request: Response(200, {"path": request.target})) as served:
        here = OpenAPI(
            document("figma"), name="figma", base_url=served.url, auth=TOKEN, select=["getFile", "getPayments"]
        )
        answer = await called(here, "figma_getFile", {"file_key": "a/b", "ids": "1:2", "depth": 2})
        assert answer == {"path": "/v1/files/a%2Fb?ids=1%3A2&depth=2"}
        assert served.asked[0].headers["authorization"] == "Bearer canary-token"
    assert "X-Figma-Token" in by_name(here)["figma_getPayments"].unavailable


async def test_directus_needs_an_address_and_takes_its_key_in_the_query() -> None:
    """Without servers base_url is missing; what calls do, and what may be sent again, the operator says."""
    with pytest.raises(InvalidOptionError, match="base_url: the document names no server"):
        OpenAPI(document("directus"), name="d", auth=TOKEN)
    async with peer(lambda request: Response(200, request.query)) as served:
        source = OpenAPI(
            document("directus"),
            name="d",
            base_url=served.url,
            auth=ApiKey(secret("env:API_TOKEN"), query="access_token"),
            effects={"createUser": "write"},
            idempotent=["updateUser"],
            approve=["delete*"],
            safe_methods=True,
        )
        found = by_name(source)
        assert (await called(source, "d_getUsers", {"limit": 2}))["access_token"] == "***"
        assert served.asked[0].query == {"limit": "2", "access_token": "canary-token"}
    assert found["d_createUser"].tool.side_effects is SideEffect.WRITE
    assert not found["d_createUser"].tool.idempotent
    assert found["d_updateUser"].tool.idempotent
    assert found["d_deleteUser"].tool.idempotent
    assert found["d_deleteUser"].approval == "always"
    assert found["d_getUsers"].tool.side_effects is SideEffect.READ


async def test_blockfrost_is_named_by_method_and_path_and_goes_on_by_page() -> None:
    """Operations without an id have names of their own; the pages of a list are one result."""
    pages = [["a", "b"], ["c", "d"], ["e"]]
    async with peer(lambda request: Response(200, pages[int(request.query.get("page", "1")) - 1])) as served:
        source = OpenAPI(
            document("blockfrost"),
            name="chain",
            base_url=served.url,
            auth=KEY,
            select=["GET /blocks/latest/txs"],
            pagination={"*": {"page": "page", "size": "count"}},
        )
        assert list(by_name(source)) == ["chain_get_blocks_latest_txs"]
        assert await called(source, "chain_get_blocks_latest_txs", {"count": 2}) == ["a", "b", "c", "d", "e"]
        assert [one.query.get("page") for one in served.asked] == [None, "2", "3"]
        assert served.asked[0].headers["project_id"] == "canary-token"


async def test_notion_has_a_header_that_the_operator_fixes_and_pages_by_cursor() -> None:
    """A header that the operator sends is no argument; the cursor stands in the body of a search."""

    def handler(request: Request) -> Response:
        is_last = request.json.get("start_cursor") == "c2"
        more = {"next_cursor": None if is_last else "c2", "has_more": not is_last}
        return Response(200, {"results": [2 if is_last else 1], **more})

    options: dict[str, Any] = {"name": "notion", "auth": TOKEN}
    found = by_name(OpenAPI(document("notion"), **options))
    assert "Notion-Version" in found["notion_post-search"].tool.args_schema["properties"]
    async with peer(handler) as served:
        source = OpenAPI(
            document("notion"),
            base_url=served.url,
            headers={"notion-version": "2022-06-28"},
            effects={"post-search": "read"},
            pagination={"post-search": {"cursor": "start_cursor", "next": "next_cursor", "items": "results"}},
            **options,
        )
        assert "Notion-Version" not in by_name(source)["notion_post-search"].tool.args_schema["properties"]
        answer = await called(source, "notion_post-search", {"query": "tea"})
        assert answer == {"results": [1, 2], "next_cursor": None, "has_more": False}
        assert served.asked[1].json == {"query": "tea", "start_cursor": "c2"}
        assert served.asked[0].headers["notion-version"] == "2022-06-28"


def test_a_header_of_the_operator_cannot_be_that_of_the_auth() -> None:
    """The auth is said once."""
    with pytest.raises(HeaderConflictError, match="Authorization shows who calls"):
        OpenAPI(document("notion"), name="n", headers={"Authorization": secret("env:API_TOKEN")})
