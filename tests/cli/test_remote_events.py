"""`events`, `tasks`, `inspect`, `topology`, and the names that scripts of the original use."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import pytest

from harborage.client import RemoteRun
from tests.cli.conftest import COMMAND
from tests.cli.test_remote_commands import Typed, host, typed  # noqa: F401 - fixtures
from tests.kit.remote_host import Host
from tests.kit.sockets import WITHIN_S
from tests.kit.tables import each_row
from tests.kit.wire import ADA

pytestmark = pytest.mark.anyio
WHO = ("--tenant", ADA.tenant_id, "--user", ADA.user_id, "--session", ADA.session_id)


async def finished(host: Host, goal: str = "nothing") -> RemoteRun[Any]:  # noqa: F811
    """A run that has ended."""
    run = await host.remote.start("support", goal, who=ADA)
    async with asyncio.timeout(WITHIN_S):
        if goal == "refund":
            await (await run.wait_pending()).approve()
        await run.finished()
    return run


async def test_events_that_are_kept_are_shown(host: Host, typed: Typed) -> None:  # noqa: F811
    """One a line, narrowed by run, kind and number; as JSON what the server sends."""
    run = await finished(host)
    code, out, err = await typed("events", run.id)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].split()[2] == "task.completed"
    code, out, _ = await typed("events", run.id, "--json", "--type", "task.started", "--type", "task.completed")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["type"] for line in lines] == ["task.started", "task.completed"]
    assert lines[1]["payload"] == {"TaskID": run.id}
    code, out, _ = await typed("events", run.id, "--json", "--after", str(lines[0]["sequence"]))
    assert [json.loads(line)["sequence"] for line in out.splitlines()][-1] == lines[1]["sequence"]


async def test_events_are_followed_until_ctrl_c(host: Host) -> None:  # noqa: F811
    """A second process watches a run that begins later; Ctrl-C ends it with 130."""
    words = ["events", "--follow", "--json", "--type", "task.completed", "--after", "0"]
    # A shell lets what it runs in the background ignore Ctrl-C, and the tests may be that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", COMMAND, *words, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
        )
    finally:
        signal.signal(signal.SIGINT, before)
    async with asyncio.timeout(WITHIN_S):
        run = await finished(host)
        assert process.stdout is not None
        assert json.loads(await process.stdout.readline())["payload"] == {"TaskID": run.id}
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130


async def test_tasks_are_listed(host: Host, typed: Typed) -> None:  # noqa: F811
    """The newest first; as JSON a line each."""
    runs = [await finished(host), await finished(host)]
    code, out, _ = await typed("tasks")
    assert [line.split()[0] for line in out.splitlines()] == [run.id for run in reversed(runs)]
    code, out, _ = await typed("tasks", "--json", "--status", "failed")
    assert (code, out) == (0, "")


async def test_a_run_is_inspected(host: Host, typed: Typed) -> None:  # noqa: F811
    """Event by event; one that the server does not know is an error."""
    run = await finished(host)
    code, out, _ = await typed("inspect", run.id, "--json")
    found = json.loads(out)
    assert (code, found["run_id"], found["steps"][-1]["type"]) == (0, run.id, "task.completed")
    code, out, err = await typed("inspect-runs", "nope", *WHO, "--json")
    assert (code, out, json.loads(err)["code"]) == (1, "", "run_not_found")
    code, out, _ = await typed("inspect-runs", *WHO, "--json")
    assert [(one["run_id"], one["status"]) for one in json.loads(out)] == [(run.id, "complete")]


async def test_the_tree_of_a_run_is_shown(host: Host, typed: Typed) -> None:  # noqa: F811
    """Its calls and approvals in order."""
    run = await finished(host, "refund")
    code, out, _ = await typed("topology", run.id)
    lines = out.splitlines()
    assert (code, lines[0], lines[2]) == (0, f"run {run.id}", "source: events.synthesised")
    assert any(line.startswith("[tool    ] refund [ok]") for line in lines)
    assert any(line.startswith("[approval] refund") for line in lines)
    code, out, _ = await typed("inspect-topology", run.id, "--json", "--width", "20")
    assert (code, json.loads(out)["run_id"]) == (0, run.id)


@each_row(
    "words, code",
    [
        (["inspect-events", "--bind", "nope", *WHO], "bind_invalid"),
        (["inspect-events", "--tenant", "acme"], "identity_incomplete"),
        (["inspect-runs", "--bind", "127.0.0.1:1", *WHO], "stream_failed"),
        (["inspect-topology", "x", "--bind", "nope"], "inspect_topology_bind_invalid"),
        (["inspect-topology"], "inspect_topology_run_id_missing"),
        (["inspect-topology", "x", "--width", "19"], "inspect_topology_width_invalid"),
        (["inspect-topology", "x", "--idle-timeout", "0.2s"], "inspect_topology_run_not_found"),
    ],
)
async def test_errors_have_codes_that_scripts_know(words: list[str], code: str, host: Host, typed: Typed) -> None:  # noqa: F811
    """Exit code 1; one line for people, an object with --json."""
    found = await typed(*words, "--json")
    assert (found[0], found[1], json.loads(found[2])["code"]) == (1, "", code)
    found = await typed(*words)
    assert found[0] == 1
    assert found[2].startswith(f"Error: harborage {words[0]}: ")
    assert found[2].count("\n") == 1


async def test_without_a_token_the_code_says_so(
    host: Host,  # noqa: F811
    typed: Typed,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    """Each command has its own code for it."""
    monkeypatch.delenv("HARBORAGE_TOKEN")
    monkeypatch.setenv("HOME", str(tmp_path))
    for words, code in (
        (["inspect-events", *WHO], "auth_required"),
        (["topology", "x"], "inspect_topology_auth_missing"),
    ):
        assert json.loads((await typed(*words, "--json"))[2])["code"] == code
