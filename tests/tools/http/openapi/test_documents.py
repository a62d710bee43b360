"""Documents: what is read, which references are followed, and what only costs the operation that uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harborage.errors import InvalidOptionError
from harborage.secrets import secret
from harborage.tools import ApiKey, Bearer, OpenAPI, SideEffect, ToolDescriptor
from harborage.tools.http.errors import DocumentError, HeaderConflictError
from harborage.tools.sources import ToolLimits

BASE = "https://api.example"
KEY = secret("env:KEY")


def operation(schema: Any = None, **more: Any) -> dict[str, Any]:
    """A POST with this schema as its JSON body."""
    body = {} if schema is None else {"requestBody": {"content": {"application/json": {"schema": schema}}}}
    return {"operationId": "act", **body, **more}


def document(post: dict[str, Any], version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    return {"openapi": version, "paths": {"/act": {"post": post}}, **more}


def tool_of(given: Any, **options: Any) -> ToolDescriptor[Any]:
    [found] = OpenAPI(given, **{"name": "s", "base_url": BASE} | options).known
    return found


def schema_of(post: dict[str, Any], version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    found = tool_of(document(post, version, **more))
    assert found.unavailable == ""
    return found.tool.args_schema


def test_words_of_30_become_those_of_json_schema() -> None:
    """`nullable`, exclusive bounds that are true or false, and a type that is null."""
    fields = {
        "a": {"type": "string", "nullable": True, "enum": ["x"]},
        "b": {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False},
        "c": {"type": None},
        "d": {"$ref": "#/components/schemas/D", "nullable": True},
        "e": {"type": "string", "readOnly": True},
    }
    schema = schema_of(
        operation({"type": "object", "properties": fields, "required": ["a", "e"]}, requestBody=None)
        | operation({"type": "object", "properties": fields, "required": ["a", "e"]}),
        "3.0.3",
        components={"schemas": {"D": {"type": "string", "example": "gone"}}},
    )
    assert schema["properties"] == {
        "a": {"type": ["string", "null"], "enum": ["x", None]},
        "b": {"type": "integer", "exclusiveMinimum": 1, "maximum": 9},
        "c": {"type": "null"},
        "d": {"anyOf": [{"$ref": "#/$defs/D"}, {"type": "null"}]},
    }
    assert schema["$defs"] == {"D": {"type": "string"}}


def test_a_schema_that_contains_itself_stays_a_reference() -> None:
    """Models and validators follow it as far as they need."""
    tree = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Tree"}}}
    body = {"type": "object", "properties": {"root": {"$ref": "#/components/schemas/Tree"}}}
    schema = schema_of(operation(body), components={"schemas": {"Tree": tree}})
    assert schema["properties"]["root"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["properties"]["next"] == {"$ref": "#/$defs/Tree"}


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("http://169.254.169.254/x.json", "none is fetched"),
        ("https://evil.example/x.yaml#/A", "none is fetched"),
        ("file:///etc/passwd", "none is fetched"),
        ("//evil.example/x", "none is fetched"),
        ("/etc/passwd", "none is fetched"),
        ("../outside.yaml", "out of its folder"),
        ("link.yaml", "out of its folder"),
        ("missing.yaml", "there is no such file"),
        ("#/components/schemas/None", "leads nowhere"),
        ("#/components/schemas/Loop", "lead in a circle"),
    ],
)
def test_a_reference_that_leads_away_costs_its_operation(tmp_path: Path, reference: str, why: str) -> None:
    """Nothing is visited; the operation is listed as unavailable with the reason, the others are there."""
    (tmp_path / "outside.yaml").write_text("type: string")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    file = inner / "api.yaml"
    bad: dict[str, Any] = document(operation({"$ref": reference}, operationId="bad"))
    bad["components"] = {"schemas": {"Loop": {"$ref": "#/components/schemas/Loop"}}}
    bad["paths"]["/good"] = {"get": {"operationId": "good"}}
    file.write_text(json.dumps(bad))
    found = {one.tool.name: one for one in OpenAPI(file, base_url=BASE).known}
    assert why in found["api_bad"].unavailable
    assert found["api_good"].unavailable == ""


def test_files_beside_a_document_are_read(tmp_path: Path) -> None:
    """References in them lead on from where they stand."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.yaml").write_text("A: {type: object, properties: {b: {$ref: 'b.yaml#/B'}}}")
    (tmp_path / "parts" / "b.yaml").write_text("B: {type: integer}")
    file = tmp_path / "api.yaml"
    file.write_text(
        "openapi: 3.1.0\npaths: {/a: {put: {operationId: a, requestBody: {content: {application/json: "
        "{schema: {$ref: 'parts/a.yaml#/A'}}}}}}}"
    )
    [found] = OpenAPI(file, base_url=BASE).known
    assert found.tool.args_schema["properties"] == {"b": {"$ref": "#/$defs/B"}}


def test_a_small_file_that_stands_for_a_huge_schema_is_refused_at_once(tmp_path: Path) -> None:
    """Names of YAML that stand for one another a billion times cost that operation, and no time."""
    each = "s{0}: &s{0} {{type: object, properties: {{a: *s{1}, b: *s{1}}}}}"
    lines = ["s0: &s0 {type: string}", *(each.format(level, level - 1) for level in range(1, 40))]
    file = tmp_path / "bomb.yaml"
    body = "requestBody: {content: {application/json: {schema: *s39}}}"
    paths = f"paths: {{/a: {{post: {{operationId: a, {body}}}}}}}"
    file.write_text("openapi: 3.1.0\nx-parts:\n  " + "\n  ".join(lines) + f"\n{paths}")
    [found] = OpenAPI(file, base_url=BASE).known
    assert "parts" in found.unavailable or "deeper" in found.unavailable


def test_limits_of_schemas_cost_their_operation() -> None:
    """Too deep, too large."""
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(120):
        deep = {"type": "array", "items": deep}
    body = {"type": "object", "properties": {"a": deep}}
    assert "nests deeper than 100 levels" in tool_of(document(operation(body))).unavailable
    wide = {"type": "object", "properties": {"a": {"enum": ["x" * 600]}}}
    small = ToolLimits(schema_bytes=512)
    assert "at most 512 bytes" in tool_of(document(operation(wide)), limits=small).unavailable
    wrong = {"type": "object", "properties": {"a": {"type": "strong"}}}
    assert "not a usable JSON Schema" in tool_of(document(operation(wrong))).unavailable


def test_texts_of_a_document_are_data() -> None:
    """Descriptions have no control characters and at most 2 KB; the cut is marked."""
    found = tool_of(document(operation(summary="\x1b[31mred\x1b[0m \u202e", description="x" * 5000))).tool
    assert found.description.startswith("[31mred[0m")
    assert len(found.description.encode()) <= 2048
    assert found.description.endswith("…")


def test_equal_names_of_arguments_are_told_apart_by_their_place() -> None:
    """Odd names become ones that models may write; what the peer gets stays as it is."""
    body = {"type": "object", "properties": {"id": {}, "filter[x]": {}}}
    post = operation(body, parameters=[{"in": "query", "name": "id", "schema": {}}, {"in": "header", "name": "X-Id"}])
    assert sorted(schema_of(post)["properties"]) == ["X-Id", "body_id", "filter_x", "query_id"]


def test_headers_that_belong_to_the_auth_or_the_connection_are_refused() -> None:
    """Of a selected operation; others may have them."""
    for name in ("Authorization", "Cookie", "Host", "Transfer-Encoding", "X-Key"):
        post = operation(parameters=[{"in": "header", "name": name, "schema": {"type": "string"}}])
        with pytest.raises(HeaderConflictError, match=f"s_act: {name}"):
            tool_of(document(post), auth=ApiKey(KEY, header="X-Key"))
    with pytest.raises(HeaderConflictError, match="headers"):
        raise HeaderConflictError("s_act", "headers", "belongs")
    secured = {"components": {"securitySchemes": {"k": {"type": "apiKey", "in": "query", "name": "key"}}}}
    post = operation(parameters=[{"in": "query", "name": "key", "schema": {}}], security=[{"k": []}])
    with pytest.raises(HeaderConflictError, match="s_act: key is the key of auth="):
        tool_of(document(post, **secured), auth=ApiKey(KEY))


def test_what_an_operation_wants_to_know_who_calls() -> None:
    """No auth is sent where none is wanted; two at once are not given."""
    schemes = {
        "b": {"type": "http", "scheme": "bearer"},
        "k": {"type": "apiKey", "in": "header", "name": "X-Key"},
    }
    more = {"components": {"securitySchemes": schemes}}
    wants = {"either": [{"b": []}, {"k": []}], "both": [{"b": [], "k": []}], "none": [], "maybe": [{}, {"k": []}]}
    found = {
        name: tool_of(document(operation(security=security), **more), auth=Bearer(KEY)).unavailable
        for name, security in wants.items()
    }
    assert found == {
        "either": "",
        "both": "it wants bearer (b) and a key (k: header X-Key), which auth= does not give",
        "none": "",
        "maybe": "",
    }
    assert "which auth= does not give" in tool_of(document(operation(security=[{"b": []}]), **more)).unavailable


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (b"\xff\xfe\0", "neither JSON nor YAML"),
        (b"a: [", "neither JSON nor YAML, line "),
        (b'{"swagger": "2.0"}', "Swagger 2.0"),
        (b"[]", 'says no "openapi: 3'),
        ("missing.yaml", "there is no such file"),
    ],
)
def test_what_is_no_document_is_refused(given: Any, why: str) -> None:
    """With what it is, or where it goes wrong."""
    with pytest.raises(DocumentError, match=why):
        OpenAPI(given, name="s")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"select": ["akt"]}, "nothing is called 'akt'; did you mean 'act'"),
        ({"select": "act"}, r"several names"),
        ({"effects": {"act": "wrte"}}, "'wrte' is no effect; did you mean 'write'"),
        ({"idempotent": ["acts"]}, "idempotent: nothing is called 'acts'"),
        ({"base_url": "ftp://x"}, "an address such as https"),
        ({"base_url": "https://a:b@x"}, "without a user"),
        ({"auth": "hunter2"}, "auth: give Bearer"),
        ({"auth": ApiKey(KEY)}, "does not say where its key goes"),
        ({"headers": {"X-A": 7}}, "give a text or a secret"),
        ({"pagination": {"act": {"cursor": "c"}}}, "give one of link"),
        ({"name": "my shop!"}, "letters, digits"),
    ],
)
def test_options_that_do_not_fit_are_refused_where_they_are_written(options: dict[str, Any], why: str) -> None:
    """With the nearest name or the fix, and without what was given where it may be a secret."""
    with pytest.raises(InvalidOptionError, match=why) as refused:
        tool_of(document(operation()), **options)
    assert "hunter2" not in str(refused.value)


def test_names_are_those_of_the_document_or_of_method_and_path() -> None:
    """Two of one name differ, and `rename` gives another."""
    paths = {"/a/{id}": {"get": {}, "delete": {"operationId": "x/y"}}, "/b": {"get": {"operationId": "x/y"}}}
    source = OpenAPI({"openapi": "3.1.0", "paths": paths}, name="s", base_url=BASE, rename={"GET /a/{id}": "find_a"})
    names = [one.tool.name for one in source.known]
    assert names[:2] == ["find_a", "s_x/y"]
    assert names[2].startswith("s_x/y_")
    effects = [one.tool.side_effects for one in source.known]
    assert effects == [SideEffect.READ, SideEffect.EXTERNAL, SideEffect.READ]
