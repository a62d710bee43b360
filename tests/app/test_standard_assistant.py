"""An agent described for the runtime: approvals and previews; and the standard assistant: what it asks about first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harborage.app import Change, assistant, file_preview
from harborage.identity import Quadruple
from harborage.runtime.approval import ApprovalPolicy, ApprovalRequest

pytestmark = pytest.mark.anyio


async def test_a_file_that_is_there_is_compared(tmp_path: Path) -> None:
    """The text as it is and as it would be; without `overwrite` the tool will refuse, which is said."""
    (tmp_path / "a.md").write_text("old\n")
    preview = file_preview(tmp_path)
    assert await preview({"path": "a.md", "content": "new\n", "overwrite": True}) == Change("content", "old\n", "new\n")
    change = await preview({"path": "a.md", "content": "new\n"})
    assert change is not None
    assert "`overwrite` is not set" in change.objection


@pytest.mark.parametrize(
    "args",
    [
        {"path": "new.md", "content": "x"},
        {"path": "../out.md", "content": "x"},
        {"path": "binary", "content": "x"},
        {"path": "large", "content": "x"},
        {"path": "folder", "content": "x"},
        {"path": "link", "content": "x"},
        {"path": 1, "content": "x"},
        {"path": "a.md"},
        {},
    ],
    ids=str,
)
async def test_what_cannot_be_compared_is_not(tmp_path: Path, args: dict[str, Any]) -> None:
    """New files, files outside, no text, very large ones and odd arguments have no preview, and are no error."""
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (tmp_path / "out.md").write_text("secret")
    (root / "link").symlink_to(tmp_path / "out.md")
    (root / "a.md").write_text("a")
    (root / "binary").write_bytes(b"\xff\xfe")
    (root / "large").write_bytes(b"x" * 300_000)
    assert await file_preview(root)(args) is None


def test_the_assistant_previews_every_call_that_changes_a_file(tmp_path: Path) -> None:
    """What a person is asked about can be judged by what it changes; reading and fetching change nothing."""
    agent = assistant(tmp_path)
    changing = {one.tool.name for one in agent.tools if one.tool.side_effects not in {"read", "pure"}}
    assert set(agent.previews) == changing & set(agent.approvals or ()) == {"write_file"}


WHO = Quadruple("t", "u", "s", "r")


@pytest.fixture
def policies(tmp_path: Path) -> Mapping[str, ApprovalPolicy]:
    found = assistant(tmp_path).approvals
    assert isinstance(found, Mapping)
    return found


def asks(policies: Mapping[str, ApprovalPolicy], tool: str, **args: Any) -> bool:
    """Whether a call of that tool is put to a person, with a reason."""
    if tool not in policies:
        return False
    answer = policies[tool](ApprovalRequest(tool=tool, args=msgspec.json.encode(args), identity=WHO))
    assert isinstance(answer, tuple)
    assert bool(answer[1]) == answer[0], "a person who is asked is told why, and only then"
    return answer[0]


def test_it_asks_before_it_changes_reads_secrets_or_sends(policies: Mapping[str, ApprovalPolicy]) -> None:
    """A text that it reads may want it to; looking around in the folder is free."""
    asked = {
        (tool, str(args)): asks(policies, tool, **args)
        for tool, args in (
            ("write_file", {"path": "a.txt", "content": "x"}),
            ("read_file", {"path": ".env"}),
            ("read_file", {"path": "deep/.ssh/id_ed25519", "offset": 0}),
            ("http_get", {"url": "https://example.com/?q=secret"}),
        )
    }
    assert all(asked.values()), asked
    for tool, args in (("read_file", {"path": "README.md"}), ("list_files", {}), ("calculator", {"expression": "1"})):
        assert not asks(policies, tool, **args), tool


def test_arguments_that_cannot_be_read_are_left_to_the_tool(policies: Mapping[str, ApprovalPolicy]) -> None:
    """The tool refuses them itself, so no person is asked about a call that cannot be made."""
    for args in (b"", b"[", b"[1]", b'{"path": 7}'):
        answer = policies["read_file"](ApprovalRequest(tool="read_file", args=args, identity=WHO))
        assert answer == (False, ""), args


def test_every_tool_that_it_asks_about_is_one_of_its_own(tmp_path: Path) -> None:
    """A name misspelt there would ask about nothing."""
    agent = assistant(tmp_path)
    assert isinstance(agent.approvals, Mapping)
    assert set(agent.approvals) <= {one.tool.name for one in agent.tools}
