"""Tools that a configuration names: documents and manifests become tools of every agent, mistakes are findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harborage import Agent
from harborage.app.configured import Deployment, configured
from harborage.cli.main import main
from harborage.config import InvalidConfigurationError, read_config
from harborage.secrets import Secret
from harborage.tools.sources import ToolLimits
from tests.kit.configurations import text_of

DOCUMENT = """
openapi: 3.0.3
paths:
  /orders: {get: {operationId: listOrders}, post: {operationId: createOrder}}
"""
MANIFEST = """
base_url: https://crm.example
auth: {bearer: "${CRM_TOKEN}"}
tools:
  - {name: find_customer, path: "/customers/{id}", effects: read}
  - {name: note, method: POST, path: /notes, args: {text: {type: string}}, idempotent: true}
"""


def deploy(folder: Path, changes: dict[str, Any], *agents: Agent[Any, Any]) -> Deployment:
    (folder / "shop.yaml").write_text(DOCUMENT)
    (folder / "crm.yaml").write_text(MANIFEST)
    loaded = read_config(text_of(changes), file=str(folder / "harborage.yaml"))
    return configured(loaded, agents or (Agent("clerk"),))


def refused(folder: Path, changes: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(InvalidConfigurationError) as caught:
        deploy(folder, changes)
    assert all(one.line > 0 for one in caught.value.findings)
    return [(one.path, one.reason) for one in caught.value.findings]


SHOP = {"name": "shop", "path": "shop.yaml", "base_url": "https://shop.example"}


def test_every_agent_gets_the_tools(tmp_path: Path) -> None:
    """Beside its own; limits and exceptions of the guard go to the runtime."""
    own = Agent("second", tools=[])
    changes = {
        "tools.openapi": [{**SHOP, "effects": {"createOrder": "write"}, "auth": {"bearer": "env:SHOP"}}],
        "tools.http_manifests": ["crm.yaml"],
        "tools.allow_hosts": ["127.0.0.1:8931", "*.corp.example"],
        "tools.limits": {"http_pages": 3},
    }
    made = deploy(tmp_path, changes, Agent("clerk"), own)
    for agent in made.agents:
        tools = {one.tool.name: one.tool for source in agent.tool_sources for one in source.known}
        assert sorted(tools) == ["find_customer", "note", "shop_createOrder", "shop_listOrders"]
        assert tools["shop_createOrder"].side_effects == "write"
        assert tools["note"].idempotent
    assert made.options.tool_limits == ToolLimits(http_pages=3)
    assert made.options.allow_hosts == ("127.0.0.1:8931", "*.corp.example")


@pytest.mark.parametrize(
    ("changes", "path", "text"),
    [
        ({**SHOP, "path": "none.yaml"}, "path", "there is no such file"),
        ({**SHOP, "select": ["listOrder"]}, "select", "did you mean 'listOrders'"),
        ({**SHOP, "base_url": ""}, "base_url", "names no server"),
        ({**SHOP, "headers": {"Authorization": "env:X"}}, "", "shows who calls"),
        ({**SHOP, "pagination": {"*": {"pages": 1}}}, "pagination", "there is no 'pages'"),
        ({**SHOP, "auth": {"api_key": "env:X"}}, "", "does not say where its key goes"),
    ],
)
def test_a_document_that_does_not_fit_is_a_finding(
    tmp_path: Path, changes: dict[str, Any], path: str, text: str
) -> None:
    """Each names its key, its place in the file and the fix, before anything starts."""
    [(found, reason)] = refused(tmp_path, {"tools.openapi": [changes]})
    assert found == f"tools.openapi[0].{path}".rstrip(".")
    assert text in reason


def test_a_manifest_that_is_wrong_is_a_finding(tmp_path: Path) -> None:
    """Also one that is not there, or of the name of another source."""
    [(path, reason)] = refused(tmp_path, {"tools.http_manifests": ["none.yaml"]})
    assert (path, "cannot be read" in reason) == ("tools.http_manifests[0]", True)
    changes = {"tools.http_manifests": ["crm.yaml"], "tools.openapi": [{**SHOP, "name": "crm"}]}
    [(path, reason)] = refused(tmp_path, changes)
    assert "two sources of tools are called crm" in reason


def test_a_header_that_is_written_in_place_is_no_secret() -> None:
    """A version in a header is not masked in results; what is named like a secret is."""
    from harborage.app.configured_tools import _header

    assert _header("Notion-Version", Secret("2022-06-28")) == "2022-06-28"
    for name, value in (("X-Api-Key", Secret("plain-key")), ("X-Own", Secret("env:OWN"))):
        assert _header(name, value) is value


def test_validate_reads_the_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pattern without an operation is found without a server."""
    (tmp_path / "shop.yaml").write_text(DOCUMENT)
    file = tmp_path / "harborage.yaml"
    file.write_bytes(text_of({"tools.openapi": [{**SHOP, "select": ["listOrder"]}]}))
    assert main(["validate", str(file)]) == 1
    assert "did you mean 'listOrders'" in capsys.readouterr().err
