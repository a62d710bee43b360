"""Declared endpoints and manifests: templates, where arguments go, and what is refused where it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from harborage.errors import InvalidOptionError
from harborage.identity import Identity
from harborage.secrets import secret
from harborage.tools import HTTP, ApiKey, CallContext, HTTPManifest, Invoker, ToolInvalidArgsError
from harborage.tools.http.errors import HeaderConflictError, TemplateSecretLeakError
from harborage.tools.sources import SourceServices, ToolSource
from tests.kit.http_peer import Request, Response, peer

pytestmark = pytest.mark.anyio

WHO = Identity("tenant", "user", "session").with_run("run")
KEY = secret("env:KEY")


async def called(source: ToolSource, name: str, args: dict[str, Any]) -> Any:
    opened = source.open(SourceServices())
    try:
        tools = {one.tool.name: one for one in await opened.list_tools(WHO)}
        return (await Invoker().invoke(tools[name], msgspec.json.encode(args), CallContext(WHO))).value
    finally:
        await opened.aclose()


async def test_arguments_go_into_the_path_the_query_or_the_body() -> None:
    """What is in the address is quoted whole; a key is sent only with a call that has one."""
    async with peer(lambda request: Response(200, [request.target, request.body.decode()])) as served:
        weather = HTTP("weather", f"GET {served.url}/v1/{{city}}", effects="read")
        assert weather.known[0].tool.args_schema["required"] == ["city"]
        assert await called(weather, "weather", {"city": "a/b?c"}) == ["/v1/a%2Fb%3Fc", ""]
        days = HTTP("days", f"GET {served.url}/v1/{{city}}", args={"city": str, "days": int}, query={"u": "c"})
        assert await called(days, "days", {"city": "oslo", "days": 3}) == ["/v1/oslo?days=3&u=c", ""]
        note = HTTP("note", f"PUT {served.url}/n/{{id}}", args={"id": int, "text": {"type": "string"}})
        assert await called(note, "note", {"id": 7, "text": "tea"}) == ["/n/7", '{"text":"tea"}']
        assert "idempotency-key" not in served.asked[0].headers
    with pytest.raises(ToolInvalidArgsError, match="additional properties|unexpected"):
        await called(weather, "weather", {"city": "oslo", "more": 1})


async def test_a_manifest_declares_several_with_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value cannot leave the JSON text that it stands in; a missing one is named."""
    monkeypatch.setenv("CRM_TOKEN", "t-123")

    def handler(request: Request) -> Response:
        return Response(200, [request.target, request.body.decode(), request.headers.get("x-t")])

    async with peer(handler) as served:
        file = tmp_path / "crm.yaml"
        file.write_text(
            f"""
base_url: {served.url}/api
auth: {{api_key: {{value: "${{CRM_TOKEN}}", query: token}}}}
headers: {{X-T: "seven"}}
tools:
  - name: note
    method: POST
    path: /notes/{{{{.Args.id}}}}
    query: {{q: "{{{{.Args.q}}}}"}}
    body: '{{"text": "<{{{{.Args.text}}}}>", "n": {{{{.Args.n}}}}}}'
    args: {{id: {{type: string}}, q: {{type: string}}, text: {{type: string}}, n: {{type: array}}}}
"""
        )
        source = HTTPManifest(file)
        assert source.known[0].tool.source == "manifest:crm"
        got = await called(source, "note", {"id": "a/b", "q": "x&y", "text": '", "evil": "', "n": [1]})
    assert got[0] == "/api/notes/a%2Fb?q=x%26y&token=***"
    assert msgspec.json.decode(got[1]) == {"text": '<", "evil": ">', "n": [1]}
    assert got[2] == "seven"
    with pytest.raises(ToolInvalidArgsError, match='"q" is a required property'):
        await called(source, "note", {"id": "a", "text": "", "n": []})


@pytest.mark.parametrize(
    ("make", "kind", "why"),
    [
        (lambda: HTTP("x", "https://a.example"), InvalidOptionError, "a method and an address"),
        (lambda: HTTP("x", "FETCH https://a.example/"), InvalidOptionError, "one of GET, POST"),
        (lambda: HTTP("", "GET https://a.example/"), InvalidOptionError, "the tool's name, first"),
        (lambda: HTTP("x", "GET https://{host}/"), InvalidOptionError, "an address such as"),
        (lambda: HTTP("x", "GET https://a:b@a.example/"), InvalidOptionError, "without a user"),
        (lambda: HTTP("x", "GET https://a.example/{{.Auth.token}}"), TemplateSecretLeakError, "has no .Auth"),
        (lambda: HTTP("x", "GET https://a.example/{{range}}"), InvalidOptionError, "is no template"),
        (lambda: HTTP("x", "GET https://a.example/", headers={"Authorization": KEY}), HeaderConflictError, "auth="),
        (lambda: HTTP("x", "GET https://a.example/", headers={"Host": "b"}), HeaderConflictError, "connection"),
        (lambda: HTTP("x", "GET https://a.b/", query={"k": ""}, auth=ApiKey(KEY, query="k")), HeaderConflictError, "k"),
        (lambda: HTTP("x", "GET https://a.example/", auth=ApiKey(KEY)), InvalidOptionError, "where the key goes"),
        (lambda: HTTP("x", "GET https://a.example/{a}", args={"b": str}), InvalidOptionError, "no argument of args="),
        (lambda: HTTP("x", "GET https://a.example/", effects="reed"), InvalidOptionError, "effects"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused_where_it_is_written(make: Any, kind: type[Exception], why: str) -> None:
    """With the fix."""
    with pytest.raises(kind, match=why):
        make()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tools: [{name: a, path: /x}]", "needs the base_url"),
        ("tools: [{name: a, url: 'https://a.example', path: /x}]", "give url, or path"),
        ("tools: [{name: a, url: 'https://a.example', methid: GET}]", "unknown field `methid`"),
        ("tools: [{name: a, url: 'https://a.example'}]\nauth: {bearer: hunter2}", "secret: give a reference"),
        ("tools: [{name: a, url: 'https://a.example'}]\nauth: {}", "give one of bearer"),
        ("tools: [", "neither JSON nor YAML"),
    ],
)
def test_a_manifest_that_is_wrong_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """Unknown keys, plain secrets and half addresses; a secret is not repeated."""
    file = tmp_path / "m.yaml"
    file.write_text(text)
    with pytest.raises(InvalidOptionError, match=why) as refused:
        HTTPManifest(file)
    assert "hunter2" not in str(refused.value)
