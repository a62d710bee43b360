"""What a server has recorded of a run, read and repeated over the wire."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harborage.client import RemoteError
from harborage.client.history import _write
from harborage.errors import InvalidOptionError
from harborage.protocol.wire.runs import FreezeAnswer, FrozenFile
from harborage.runtime.durable.engine import RunNotFoundError
from tests.kit.remote_host import Host
from tests.kit.sockets import WITHIN_S
from tests.kit.wire import ADA, BEN

pytestmark = pytest.mark.anyio


async def test_the_steps_of_a_run_are_read(host: Host) -> None:
    """Each with its calls, and the controls that were sent; one step has whole values."""
    run = await host.remote.start("support", "refund", who=ADA)
    async with asyncio.timeout(WITHIN_S):
        await (await run.wait_pending()).approve()
        await run.finished()
    found = await run.history()
    assert (found.run.id, found.run.status, found.more) == (run.id, "complete", False)
    assert [(call.tool, call.status) for step in found.steps for call in step.calls] == [("refund", "done")]
    assert [control.type.lower() for control in found.controls] == ["approve"]
    step = await run.step(1)
    assert step.step.calls[0].args == {"order": "7", "euros": 12}


async def test_a_record_that_is_not_there_is_an_error(host: Host) -> None:
    """Of an unknown run, of another user's, and of a step that there is not."""
    run = await host.remote.start("support", "nothing", who=ADA)
    async with asyncio.timeout(WITHIN_S):
        await run.finished()
    with pytest.raises(RunNotFoundError):
        await host.remote.get("unknown", who=ADA).history()
    with pytest.raises(RunNotFoundError):
        await (await host.client(BEN)).get(run.id, who=BEN).history()
    with pytest.raises(RemoteError) as caught:
        await run.step(99)
    assert caught.value.code == "invalid_request"
    with pytest.raises(InvalidOptionError):
        await run.step(0)


def test_files_of_a_test_stay_in_their_folder(tmp_path: Path) -> None:
    """A server that names a place elsewhere is refused before anything is written."""
    folder = tmp_path / "tests"
    good = FrozenFile(path="runs/a.json", content="{}")
    _write(FreezeAnswer(name="a", files=[good]), folder)
    assert (folder / "runs" / "a.json").read_text() == "{}"
    bad = [FrozenFile(path="b.json", content=""), FrozenFile(path="../x", content="")]
    with pytest.raises(InvalidOptionError, match="path"):
        _write(FreezeAnswer(name="a", files=bad), folder)
    assert not (folder / "b.json").exists()
