"""What a write would change, as far as it can be known before it happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harborage.app import Change, assistant, file_preview

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
