"""`harborage acp` as a process that an editor starts; the editor is the client of the protocol's own library."""

from __future__ import annotations

import asyncio
import base64
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from harborage.cli import main as command_line
from harborage.cli.main import main
from tests.cli.conftest import DEADLINE_S, environment
from tests.kit import forked

acp = pytest.importorskip("acp")

pytestmark = pytest.mark.anyio

AGENT = '''
    import asyncio
    from harborage import Agent, CallTool, Finish, FinishReason, RequestPause, PauseReason, tool

    print("the agent's file is read")

    @tool(effects="write", approval="always")
    async def order(item: str) -> str:
        """Order something."""
        return f"ordered {item}"

    @tool(effects="read")
    async def look(place: str) -> dict:
        """Look somewhere."""
        print("a tool prints")
        return {"found": place}

    @tool(effects="read")
    async def linger() -> str:
        """Take for ever."""
        await asyncio.Event().wait()

    class Clerk:
        async def next(self, run):
            steps, hint = run.trajectory.steps, run.trajectory.resume_hint
            word, _, rest = run.goal.partition(" ")
            if hint and hint.resume_payload.get("message"):
                return Finish(FinishReason.GOAL, "told: " + hint.resume_payload["message"])
            match word:
                case "order" if not steps:
                    return CallTool("order", item=rest)
                case "look" if not steps:
                    return CallTool("look", place=rest)
                case "linger":
                    return CallTool("linger")
                case "ask":
                    return RequestPause(PauseReason.AWAIT_INPUT, {"question": "Which version?"})
                case "lost":
                    return Finish(FinishReason.NO_PATH)
                case "count":
                    return Finish(FinishReason.GOAL, f"{len(run.input_artifacts or ())} files")
            last = steps[-1] if steps else None
            return Finish(FinishReason.GOAL, "done" if last else run.goal)

    agent = Agent("clerk", planner=Clerk(), tools=[order, look, linger])
'''
MODELLED = """
    from harborage import Agent

    agent = Agent("echo", model="mock:echo")
"""


class Editor:
    """The client's side: keeps what it is told, and answers requests for permission with `choose`."""

    def __init__(self, choose: str = "allow_once") -> None:
        self.told: list[Any] = []
        self.asked: list[Any] = []
        self.choose = choose
        self.agent: Any = None
        self.process: Any = None
        self._changed = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        """The connection is made by the test."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Keep an update."""
        self.told.append(update)
        self._changed.set()

    async def request_permission(self, options: Any, session_id: str, tool_call: Any, **_: Any) -> Any:
        """Answer, or wait for ever if nothing is to be chosen."""
        self.asked.append((tool_call, [one.option_id for one in options]))
        self._changed.set()
        if not self.choose:
            await asyncio.Event().wait()
        outcome = acp.schema.AllowedOutcome(outcome="selected", option_id=self.choose)
        return acp.schema.RequestPermissionResponse(outcome=outcome)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something that it was told makes it so."""
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    def of(self, kind: str) -> list[Any]:
        """The updates of a kind."""
        return [one for one in self.told if one.session_update == kind]

    @property
    def text(self) -> str:
        """What the agent said."""
        return "".join(one.content.text for one in self.of("agent_message_chunk"))

    async def prompt(self, session: str, *parts: Any) -> Any:
        """Send a prompt, and return the answer to it."""
        blocks = [acp.text_block(one) if isinstance(one, str) else one for one in parts]
        async with asyncio.timeout(DEADLINE_S):
            return await self.agent.prompt(session_id=session, prompt=blocks)


@asynccontextmanager
async def editing(folder: Path, choose: str = "allow_once", *, file: str = "agent.py") -> AsyncIterator[Editor]:
    """An editor that has started the command in the folder, and has introduced itself."""
    editor = Editor(choose)
    words = ["acp", file, "--storage", "sqlite:runs.db", "--user", "ada"]
    options = {"limit": 2**24, "shutdown_timeout": DEADLINE_S}
    async with acp.spawn_agent_process(
        editor, *forked.command_line(*words), cwd=folder, env=environment(), transport_kwargs=options
    ) as (editor.agent, editor.process):
        drain = asyncio.create_task(editor.process.stderr.read())
        async with asyncio.timeout(DEADLINE_S):
            said = await editor.agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        assert said.protocol_version == acp.PROTOCOL_VERSION
        assert said.agent_capabilities.load_session
        assert said.agent_capabilities.prompt_capabilities.image
        yield editor
    assert editor.process.returncode == 0, (await drain).decode()
    await drain


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the agents."""
    (tmp_path / "agent.py").write_text(dedent(AGENT), "utf-8")
    (tmp_path / "modelled.py").write_text(dedent(MODELLED), "utf-8")
    return tmp_path


async def opened(editor: Editor, folder: Path) -> str:
    """A new session."""
    async with asyncio.timeout(DEADLINE_S):
        return str((await editor.agent.new_session(cwd=str(folder), mcp_servers=[])).session_id)


async def test_a_prompt_is_answered_and_its_calls_are_shown(folder: Path) -> None:
    """The editor sees the call with its kind, arguments and result, and the answer; what tools print stays away."""
    async with editing(folder) as editor:
        session = await opened(editor, folder)
        assert (await editor.prompt(session, "look here")).stop_reason == "end_turn"
        (begun,) = editor.of("tool_call")
        assert (begun.title, begun.kind, begun.raw_input) == ("look", "read", {"place": "here"})
        done = editor.of("tool_call_update")[-1]
        assert (done.tool_call_id, done.status, done.raw_output) == (begun.tool_call_id, "completed", {"found": "here"})
        assert editor.text == "done"
        assert editor.asked == []


async def test_what_a_model_writes_is_streamed_once(folder: Path) -> None:
    """The pieces of the model's answer are one message, which is not told again at the end; its tokens are counted."""
    async with editing(folder, file="modelled.py") as editor:
        session = await opened(editor, folder)
        answer = await editor.prompt(session, "Say something about the tides, please")
        assert answer.stop_reason == "end_turn"
        assert answer.usage.total_tokens > 0
        chunks = editor.of("agent_message_chunk")
        assert "tides" in editor.text
        assert editor.text.count("tides") == 1
        assert len({one.message_id for one in chunks}) == 1


@pytest.mark.parametrize(
    ("choice", "status", "output"),
    [
        ("allow_once", "completed", "ordered tea"),
        ("allow_run", "completed", "ordered tea"),
        ("allow_always", "completed", "ordered tea"),
        ("reject", "failed", "rejected in the editor"),
    ],
)
async def test_a_call_that_needs_approval_is_asked_about(folder: Path, choice: str, status: str, output: str) -> None:
    """The editor is asked once, with the call; it is made or not as the person chooses."""
    async with editing(folder, choice) as editor:
        session = await opened(editor, folder)
        assert (await editor.prompt(session, "order tea")).stop_reason == "end_turn"
        ((call, options),) = editor.asked
        assert options == ["allow_once", "allow_run", "allow_always", "reject"]
        assert (call.title, call.raw_input) == ("order", {"item": "tea"})
        (begun,) = editor.of("tool_call")
        assert (begun.tool_call_id, begun.status, begun.kind) == (call.tool_call_id, "pending", "edit")
        done = editor.of("tool_call_update")[-1]
        assert (done.tool_call_id, done.status, done.raw_output) == (call.tool_call_id, status, output)


async def test_what_was_always_allowed_is_not_asked_again(folder: Path) -> None:
    """The same call of a later run is made without a question."""
    async with editing(folder, "allow_always") as editor:
        session = await opened(editor, folder)
        await editor.prompt(session, "order tea")
        await editor.prompt(session, "order tea")
        assert len(editor.asked) == 1


async def test_a_cancel_ends_the_call_in_flight(folder: Path) -> None:
    """A prompt that is cancelled ends with that reason, and the session takes another one."""
    async with editing(folder) as editor:
        session = await opened(editor, folder)
        going = asyncio.create_task(editor.prompt(session, "linger"))
        await editor.until(lambda: bool(editor.of("tool_call")))
        with pytest.raises(acp.RequestError):
            await editor.prompt(session, "look here")
        await editor.agent.cancel(session_id=session)
        assert (await going).stop_reason == "cancelled"
        assert (await editor.prompt(session, "look here")).stop_reason == "end_turn"


async def test_a_cancel_withdraws_a_request_for_permission(folder: Path) -> None:
    """A prompt whose call waits for approval ends when it is cancelled, and the call is not made."""
    async with editing(folder, "") as editor:
        session = await opened(editor, folder)
        going = asyncio.create_task(editor.prompt(session, "order tea"))
        await editor.until(lambda: bool(editor.asked))
        await editor.agent.cancel(session_id=session)
        assert (await going).stop_reason == "cancelled"
        assert [one.status for one in editor.of("tool_call_update") if one.status == "completed"] == []


async def test_permission_that_cannot_be_given_is_asked_for_again(folder: Path) -> None:
    """An answer that is none ends the turn with how to approve; the next prompt asks again, and is then answered."""
    async with editing(folder, "nonsense") as editor:
        session = await opened(editor, folder)
        assert (await editor.prompt(session, "order tea")).stop_reason == "end_turn"
        assert "harborage approve" in editor.text
        editor.choose = "allow_once"
        assert (await editor.prompt(session, "look here")).stop_reason == "end_turn"
        assert [one[0].raw_input for one in editor.asked] == [{"item": "tea"}, {"item": "tea"}]
        outputs = [one.raw_output for one in editor.of("tool_call_update") if one.status == "completed"]
        assert outputs == ["ordered tea", {"found": "here"}]


async def test_a_question_is_a_message_that_the_next_prompt_answers(folder: Path) -> None:
    """The turn ends with the question, and the answer goes to the run that asked."""
    async with editing(folder) as editor:
        session = await opened(editor, folder)
        assert (await editor.prompt(session, "ask")).stop_reason == "end_turn"
        assert editor.text == "Which version?"
        assert (await editor.prompt(session, "two")).stop_reason == "end_turn"
        assert editor.text == "Which version?told: two"


async def test_files_go_with_a_prompt(folder: Path) -> None:
    """Pictures and files of a prompt are artifacts of its run; sound is refused, and so is a prompt without words."""
    pixel = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
    blob = acp.embedded_blob_resource("file:///a/notes.bin", base64.b64encode(b"notes").decode())
    async with editing(folder) as editor:
        session = await opened(editor, folder)
        picture = acp.schema.ImageContentBlock(type="image", data=pixel, mime_type="image/png")
        await editor.prompt(session, "count", picture, acp.resource_block(blob))
        assert editor.text == "2 files"
        for parts in ([acp.audio_block(pixel, "audio/wav"), "count"], [picture]):
            with pytest.raises(acp.RequestError):
                await editor.prompt(session, *parts)


async def test_a_run_that_does_not_reach_its_goal_says_so(folder: Path) -> None:
    """The editor is told why it ended."""
    async with editing(folder) as editor:
        session = await opened(editor, folder)
        assert (await editor.prompt(session, "lost")).stop_reason == "end_turn"
        assert "before it reached its goal" in editor.text


async def test_a_session_is_loaded_after_a_restart(folder: Path) -> None:
    """A new process tells what was said and called; the call that still waited is asked about with the next prompt."""
    async with editing(folder) as editor:
        session = await opened(editor, folder)
        await editor.prompt(session, "look here")
        editor.choose = ""
        going = asyncio.create_task(editor.prompt(session, "order tea"))
        await editor.until(lambda: bool(editor.asked))
        editor.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            assert await editor.process.wait() == 0
        with pytest.raises((ConnectionError, acp.RequestError)):
            await going
    async with editing(folder) as editor:
        async with asyncio.timeout(DEADLINE_S):
            await editor.agent.load_session(cwd=str(folder), session_id=session, mcp_servers=[])
        await editor.until(lambda: len(editor.of("user_message_chunk")) == 2)
        assert [one.content.text for one in editor.of("user_message_chunk")] == ["look here", "order tea"]
        assert editor.of("tool_call")[0].raw_input == {"place": "here"}
        assert editor.of("tool_call_update")[0].raw_output == {"found": "here"}
        assert editor.text == "done"
        assert (await editor.prompt(session, "look there")).stop_reason == "end_turn"
        assert [one[0].raw_input for one in editor.asked] == [{"item": "tea"}]
        assert editor.of("tool_call_update")[-1].raw_output == {"found": "there"}
        with pytest.raises(acp.RequestError):
            await editor.agent.load_session(cwd=str(folder), session_id="nowhere", mcp_servers=[])


def test_without_pipes_it_refuses(folder: Path) -> None:
    """Started by hand, with nothing to read, it ends at once with 2 and says who starts it."""
    ended = subprocess.run(
        forked.command_line("acp", "agent.py", "--storage", "memory:"),
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 2
    assert "an editor starts this command" in ended.stderr
    assert ended.stdout == ""


def test_without_its_library_the_extra_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with 1, and one line that says what to install."""
    assert command_line.COMMANDS["acp"][0] == "harborage.cli.acp:acp"
    monkeypatch.setitem(sys.modules, "acp.schema", None)
    monkeypatch.chdir(folder)
    assert main(["acp", "agent.py", "--storage", "memory:"]) == 1
    assert "pip install 'harborage[acp]'" in capsys.readouterr().err
