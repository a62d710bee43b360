"""The commands with `--url`: they find, show and steer runs of a server as they do those of a database."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from harborage.cli.main import main
from harborage.client import RemoteRun
from harborage.events import EventType
from harborage.identity import Identity
from tests.cli.conftest import COMMAND
from tests.kit.remote_host import Host, open_host
from tests.kit.served import token_of
from tests.kit.sockets import WITHIN_S
from tests.kit.tables import each_row
from tests.kit.wire import ADA, BEN

pytestmark = pytest.mark.anyio
Typed = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    """The server; the environment names it, and Ada's token."""
    async with open_host(tmp_path) as opened:
        monkeypatch.setenv("HARBORAGE_URL", opened.url)
        monkeypatch.setenv("HARBORAGE_TOKEN", token_of(ADA))
        monkeypatch.delenv("HARBORAGE_STORAGE", raising=False)
        yield opened


@pytest.fixture
def typed(host: Host, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Types a command; gives its exit code and what it printed."""

    async def call(*words: str) -> tuple[int, str, str]:
        async with asyncio.timeout(WITHIN_S):
            code = await asyncio.to_thread(main, list(words))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


async def asking(host: Host) -> RemoteRun[Any]:
    """A run that waits for the approval of its call."""
    run = await host.remote.start("support", "refund", who=ADA)
    async with asyncio.timeout(WITHIN_S):
        await run.wait_pending()
    return run


async def lingering(host: Host, who: Identity = ADA) -> RemoteRun[Any]:
    """A run whose call goes on until it is cancelled."""
    run = await (await host.client(who)).start("support", "linger", who=who)
    async with asyncio.timeout(WITHIN_S), aclosing(run.events()) as events:
        async for event in events:
            if event.type == EventType.TOOL_INVOKED:
                break
    return run


async def fates(run: RemoteRun[Any], event_id: str) -> list[str]:
    """What became of a control."""
    async with asyncio.timeout(WITHIN_S):
        return [
            str(event.type)
            async for event in run.events()
            if event.type in (EventType.CONTROL_APPLIED, EventType.CONTROL_REJECTED)
            and getattr(event.payload, "event_id", "") == event_id
        ]


async def test_runs_are_listed(host: Host, typed: Typed) -> None:
    """What waits first, as of a database; another user's runs are not there."""
    run = await asking(host)
    done = await host.remote.start("clerk", "typed", who=Identity(ADA.tenant_id, ADA.user_id, "other"))
    async with asyncio.timeout(WITHIN_S):
        await done.finished()
    await (await host.client(BEN)).start("support", "nothing", who=BEN)
    code, out, err = await typed("runs", "list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:]] == [run.id[-6:], done.id[-6:]]
    assert "waiting" in out
    assert "approve refund" in out
    code, out, _ = await typed("runs", "list", "--json", "--status", "complete")
    (row,) = [json.loads(line) for line in out.splitlines()]
    assert (code, row["run_id"], row["status"], row["session"]) == (0, done.id, "complete", "other")


async def test_one_run_is_shown(host: Host, typed: Typed) -> None:
    """By its handle, and as JSON."""
    run = await host.remote.start("support", "nothing", who=ADA)
    async with asyncio.timeout(WITHIN_S):
        await run.finished()
    code, out, _ = await typed("runs", "show", run.id[-6:].lower())
    assert code == 0
    assert run.id in out
    assert "complete" in out
    code, out, _ = await typed("runs", "show", run.id, "--json")
    assert run.id in json.dumps(json.loads(out))
    assert (await typed("runs", "show", "ZZZZZZ"))[0] == 2


async def test_what_is_pending_is_listed_and_answered(host: Host, typed: Typed) -> None:
    """A token from the list answers the question; a second answer says that it came too late."""
    run = await asking(host)
    code, out, _ = await typed("pending", "--json", "--check")
    assert code == 5
    question = json.loads(out)
    assert (question["run_id"], question["tool"], question["agent"]) == (run.id, "refund", "support")
    code, out, err = await typed("approve", question["token"], "--args", '{"euros": 5}')
    assert (code, err) == (0, "")
    assert out.startswith("approved: refund(")
    async with asyncio.timeout(WITHIN_S):
        assert (await run.finished()).payload == "It is done."
    code, _, err = await typed("reject", question["token"])
    assert code == 1
    assert "was already answered: approve by ada" in err
    assert await typed("pending", "--check") == (0, "", "nothing needs you\n")


async def test_a_run_is_cancelled_from_another_process(host: Host) -> None:
    """A second process steers a run of the server; one event tells what became of it."""
    run = await lingering(host)
    words = ["steer", run.id[-6:], "cancel", "--hard", "--json"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", COMMAND, *words, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    async with asyncio.timeout(WITHIN_S):
        out, _ = await process.communicate()
        fate = json.loads(out)
        assert (process.returncode, fate["control"], fate["fate"]) == (0, "cancel", "applied")
        assert await fates(run, fate["event_id"]) == ["control.applied"]


@each_row(
    "words",
    [
        ["message", "RUN", "hurry", "up"],
        ["pause", "RUN"],
        ["redirect", "RUN", "something", "else"],
        ["inject", "RUN", '{"note": 1}'],
        ["steer", "RUN", "user_message", "hurry"],
        ["steer", "RUN", "inject_context", "--payload", '{"a": [1]}'],
        ["steer", "RUN", "resume"],
        ["cancel", "RUN", "--now"],
    ],
)
async def test_each_control_is_sent(words: list[str], host: Host, typed: Typed) -> None:
    """Every command of steering reaches the run."""
    run = await lingering(host)
    code, out, err = await typed(*(run.id if word == "RUN" else word for word in words))
    assert (code, err) == (0, "")
    assert run.id in out
    if words[0] != "cancel":
        await run.cancel(hard=True)
    async with asyncio.timeout(WITHIN_S):
        received = [event.payload async for event in run.events() if event.type == EventType.CONTROL_RECEIVED]
    assert received


async def test_a_priority_takes_a_scope(host: Host, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the server refuses; an admin's token may."""
    run = await lingering(host)
    code, _, err = await typed("prioritize", run.id, "5")
    assert code == 1
    assert "scope" in err
    monkeypatch.setenv("HARBORAGE_TOKEN", token_of(ADA, "admin"))
    code, out, _ = await typed("prioritize", run.id, "5")
    assert (code, run.id in out) == (0, True)
    await run.cancel(hard=True)


@each_row(
    "words, code, text",
    [
        (["cancel", "ZZZZZZ"], 2, "no run 'ZZZZZZ' at http"),
        (["steer", "last", "redirect"], 2, "redirect needs a text"),
        (["steer", "last", "pause", "now"], 2, "takes no text"),
        (["steer", "last", "cancel", "--payload", "[]"], 2, "a JSON object"),
        (["steer", "last", "pause", "--hard"], 2, "--hard is for cancel"),
        (["prioritize", "last", "many"], 2, "is no priority"),
        (["pending", "--url", "nonsense"], 2, "is no url of a server"),
        (["pending", "--url", "http://127.0.0.1:1", "--storage", "sqlite:x"], 2, "two places"),
    ],
)
async def test_wrong_use_is_one_line(words: list[str], code: int, text: str, host: Host, typed: Typed) -> None:
    """Nothing is sent, and the line says what to do instead."""
    found = await typed(*words)
    assert (found[0], found[1]) == (code, "")
    assert text in found[2]
    assert found[2].count("\n") == 1


async def test_a_dry_run_sends_nothing(host: Host, typed: Typed) -> None:
    """It names the control and the run."""
    run = await lingering(host)
    code, out, _ = await typed("redirect", run.id[-6:], "Only", "tea", "--dry-run")
    assert (code, out) == (0, f'would send redirect {{"goal":"Only tea"}} to run {run.id}\n')
    await run.cancel(hard=True)
    async with asyncio.timeout(WITHIN_S):
        received = [one async for one in run.events() if one.type == EventType.CONTROL_RECEIVED]
    assert len(received) == 1


async def test_without_a_token_one_line_says_so(
    host: Host, typed: Typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The token is an environment variable, else a file in the home folder."""
    monkeypatch.delenv("HARBORAGE_TOKEN")
    monkeypatch.delenv("HARBOR_TOKEN", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    code, _, err = await typed("runs", "list")
    assert code == 2
    assert err.startswith("harborage: no token for http")
    (tmp_path / ".harborage").mkdir()
    (tmp_path / ".harborage" / "token").write_text(f" {token_of(ADA)}\n")
    assert (await typed("runs", "list"))[0] == 0


async def test_a_run_of_a_server_is_replayed_and_compared_with_a_fork_of_it(host: Host, typed: Typed) -> None:
    """The server repeats it; what a fork here may be limited by does not travel, and is refused by name."""
    run = await host.remote.start("support", "Say hello", who=ADA)
    await run.result()
    code, out, err = await typed("replay", run.id)
    assert (code, err) == (0, "")
    assert out.startswith(f"run {run.id}: same as recorded: steps 1")
    code, out, _ = await typed("replay", run.id, "--json")
    assert (code, json.loads(out)["is_same"]) == (0, True)
    code, out, err = await typed("fork", run.id, "--at", "1", "--goal", "nothing", "--json")
    told = json.loads(out)
    assert (code, told["parent"], told["answer"], told["reason"]) == (0, run.id, "Nothing.", "goal")
    assert f"fork of {run.id} at step 1" in err
    assert (await host.runtime.run(told["run"], who=ADA)).id == told["run"]
    code, out, _ = await typed("fork", run.id, "--at", "1")
    assert code == 0
    for option in ("--cost", "--seconds"):
        code, _, err = await typed("fork", run.id, "--at", "1", option, "1")
        assert code == 2
        assert option in err
    code, _, err = await typed("fork", run.id, "--at", "7")
    assert code == 1
    assert "step" in err


async def test_a_run_of_a_server_is_frozen_here(host: Host, typed: Typed, tmp_path: Path) -> None:
    """Its files are written into a folder, and none that is there is overwritten unless it is said."""
    run = await host.remote.start("support", "Say hello", who=ADA)
    await run.result()
    folder = tmp_path / "frozen"
    code, out, _ = await typed("freeze", run.id, "--out", str(folder))
    assert code == 0
    written = [Path(line) for line in out.splitlines()]
    assert len(written) == 2
    assert all(path.is_relative_to(folder) and path.is_file() for path in written)
    code, _, err = await typed("freeze", run.id, "--out", str(folder))
    assert code == 2
    assert "--force" in err
    assert (await typed("freeze", run.id, "--out", str(folder), "--force"))[0] == 0


@pytest.mark.parametrize("command", ["doctor", "chat"])
async def test_what_cannot_ask_a_server_says_so(typed: Typed, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """By the name of the option or the variable that names one, and with the reason."""
    code, _, err = await typed(command)
    assert code == 2
    assert f"HARBORAGE_URL: {command} " in err
    code, _, err = await typed(command, "--url", "http://127.0.0.1:1")
    assert code == 2
    assert f"--url: {command} " in err
    assert "--storage" in err
