"""A server behind plain calls that block."""

from __future__ import annotations

import asyncio

import pytest

import harborage.sync
from harborage.events import TaskCompletedPayload
from harborage.runtime.durable.engine import RuntimeClosedError
from tests.kit.remote_host import Host, Receipt
from tests.kit.served import QUICK, token_of
from tests.kit.wire import ADA

pytestmark = pytest.mark.anyio


def use(url: str) -> None:
    """What a script does with a server."""
    with harborage.sync.connect(url, token=token_of(ADA), patience=QUICK) as remote:
        run = remote.start("clerk", "typed", output=Receipt)
        assert run.result().output == Receipt("7", 12)
        assert list(run.events())[-1].payload == TaskCompletedPayload(run.id)
        asked = remote.start("support", "refund")
        pending = asked.wait_pending()
        assert [one.token for one in remote.pending(who=ADA)] == [pending.token]
        pending.reject("no")
        assert asked.finished().payload == "It is done."
        assert {one.run_id for one in remote.runs(who=ADA)} == {run.id, asked.id}
        assert remote.session("support", who=ADA).send("nothing").output == "Nothing."
        assert remote.get(run.id, who=ADA).status() == remote.run(run.id, who=ADA).status()
    with pytest.raises(RuntimeClosedError):
        remote.start("support", "nothing")
    remote.close()


async def test_a_script_uses_a_server_without_an_event_loop(host: Host) -> None:
    """The same names as of the async client, each call waits."""
    await asyncio.to_thread(use, host.url)
