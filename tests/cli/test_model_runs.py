"""A run with a model on the command line: the question, the answer and what is shown between them, and refusals of a
model."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harborage.llm import ToolCallStructured
from harborage.testing.conformance.llm_bench import Answer, Break, Failure, Refusal
from tests.kit.llm_server import LLMServer

Start = Callable[..., Any]
GPT = ("--model", "openai:gpt-5")


class Provider:
    """A model server that runs beside the test, and the environment of a command that uses it."""

    def __init__(self, server: LLMServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self._loop = loop
        self.env = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": server.base_url()}

    def until_asked(self) -> None:
        """Wait until the model is asked."""
        asked = self.server.until(lambda server: bool(server.requests), "a request")
        asyncio.run_coroutine_threadsafe(asked, self._loop).result()


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A model server on loopback, in a thread of its own."""
    loop, server = asyncio.new_event_loop(), LLMServer()
    loop.run_until_complete(server.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield Provider(server, loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(server.aclose())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def writes(path: str, content: str, **more: Any) -> ToolCallStructured:
    """A call that writes a file."""
    return ToolCallStructured("call-1", "write_file", json.dumps({"path": path, "content": content, **more}).encode())


# ── What is seen ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_answer_is_streamed_and_then_written_once(terminal: Start, provider: Provider) -> None:
    """While the model writes its words are on the screen; at the end the answer stands there once."""
    provider.server.script(Answer(reasoning="Let me think.", content="It is forty-two.", broken=Break.STALLED, after=5))
    screen = terminal(*GPT, target="What is it?", **provider.env)
    screen.expect(" · openai:gpt-5")
    screen.expect("It is f")
    screen.type("\x03")
    screen.expect("the model's answer is dropped")
    assert screen.end() == 130
    provider.server.script(Answer(reasoning="Let me think.", content="It is forty-two."))
    screen = terminal(*GPT, target="What is it?", **provider.env)
    screen.expect("∴ 1  Let me think.")
    screen.expect("✓ complete")
    assert screen.end() == 0
    assert "“" not in screen.text
    assert screen.text.partition("✓ complete")[2].count("It is forty-two.") == 1


def test_a_cancel_hangs_up_on_the_model(piped: Start, provider: Provider) -> None:
    """One Ctrl-C ends a run whose model is silent: the command does not wait for the answer."""
    provider.server.script(Answer(content="It is", broken=Break.STALLED))
    run = piped(*GPT, target="What is it?", **provider.env)
    run.read_until("run   ")
    provider.until_asked()
    run.interrupt()
    assert run.end() == 130
    assert run.out == ""


def test_a_write_shows_what_it_would_change(terminal: Start, provider: Provider, tmp_path: Path) -> None:
    """The model's remark, the question with the difference, the call and its result follow each other."""
    (tmp_path / "notes.md").write_text("# Notes\n\nold\n")
    call = writes("notes.md", "# Notes\n\nnew\n", overwrite=True)
    provider.server.script(Answer(content="I bring it up to date.", calls=[call]), "Done.")
    screen = terminal(*GPT, target="Update the notes", **provider.env)
    for text in ("I bring it up to date.", "? write_file needs your approval", "-old", "+new", "y yes"):
        screen.expect(text)
    screen.type("y\r")
    screen.expect('1  write_file(path="notes.md"')
    screen.expect("approved by you")
    screen.expect("Done.")
    assert screen.end() == 0
    assert (tmp_path / "notes.md").read_text() == "# Notes\n\nnew\n"


def test_a_call_that_cannot_be_made_is_not_asked_about(piped: Start, provider: Provider) -> None:
    """Arguments that do not fit go back to the model; a person is asked about what can happen."""
    wrong = ToolCallStructured("call-1", "write_file", b'{"path": "a.md", "text": "x"}')
    provider.server.script(Answer(calls=[wrong]), "I could not.")
    run = piped(*GPT, target="Write it", **provider.env)
    assert run.end() == 0
    assert "✗ write_file: " in run.err
    assert "approval" not in run.err
    assert "text" in str(provider.server.requests[1].body["messages"][-1])


def test_a_repeated_call_is_shown_as_a_line(piped: Start, provider: Provider) -> None:
    """What the library logs stands among the lines of the run."""
    provider.server.script(Refusal(failure=Failure.OVERLOADED, retry_after="0"), "Fine.")
    run = piped(*GPT, target="Well?", **provider.env)
    assert run.end() == 0
    assert "! openai: ProviderUnavailableError; retrying in 0.0 s (1 of 2)" in run.err
    assert run.out == "Fine.\n"


def test_a_run_whose_provider_is_down_is_left_and_resumed(piped: Start, in_pipe: Start, provider: Provider) -> None:
    """Without a terminal the command ends and says how to continue; list, show and doctor say why it waits."""
    # The last one asks for a wait that outlasts the commands below, however slow the machine is.
    refusals = [Refusal(failure=Failure.OVERLOADED, retry_after=seconds) for seconds in ("0", "0", "600")]
    provider.server.script(*refusals, "Fine again.")
    first = piped(*GPT, target="Well?", **provider.env)
    assert first.end() == 5
    assert first.err.count("! interrupted: provider unavailable") == 1  # as it happens
    *_, last = first.err.splitlines()
    assert last.startswith("harborage: interrupted: provider unavailable: openai")  # and at the end, with the way on
    assert "harborage resume" in last
    listed = in_pipe("runs", "list", "--status", "interrupted", "--json")
    assert listed.end() == 0
    row = json.loads(listed.out)
    assert row["status"] == "interrupted"
    assert row["reason"].startswith("interrupted: provider unavailable")
    assert row["wake_at"]
    shown = in_pipe("runs", "show", row["run_id"])
    assert shown.end() == 0
    assert "interrupted: interrupted: provider unavailable" not in shown.out
    assert "interrupted: provider unavailable" in shown.out
    doctor = in_pipe("doctor")
    doctor.end()
    assert f"harborage resume {row['run_id']} tries now" in doctor.out + doctor.err
    again = in_pipe("resume", row["run_id"], **provider.env)
    assert again.end() == 0
    assert again.out == "Fine again.\n"
    assert len(provider.server.requests) == 4


# ── What a model refuses ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "env", "says"),
    [
        ("openai:gpt-5", {"OPENAI_API_KEY": ""}, "set the environment variable OPENAI_API_KEY"),
        ("openai:gpt-5", {"OPENAI_BASE_URL": "nowhere"}, "'nowhere' is none; set llm.base_url"),
        ("gpt-5", {}, "write openai:gpt-5"),
        ("nobody:gpt-5", {}, "there is no provider 'nobody'; known are anthropic, "),
        ("cassette:", {}, "write cassette:FILE.json"),
        ("script:none.json", {}, "cannot read the script none.json"),
        ("local:none.gguf", {}, "none.gguf is not there"),
    ],
)
def test_what_is_wrong_before_a_model_is_asked_is_code_2(
    piped: Start, provider: Provider, model: str, env: dict[str, str], says: str
) -> None:
    """One line that names the setting, no traceback, nothing sent."""
    run = piped("--model", model, target="Well?", **{**provider.env, **env})
    assert run.end() == 2
    (line,) = run.err.splitlines()
    assert says in line
    assert provider.server.requests == []


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (Failure.BAD_KEY, "check the key in OPENAI_API_KEY"),
        (Failure.UNKNOWN_MODEL, "check the model name 'gpt-5'"),
        (Failure.NO_CREDIT, "exceeded your current quota"),
        (Failure.CONTEXT_OVERFLOW, "maximum context length"),
    ],
)
def test_a_refusal_of_a_provider_is_shown_once(piped: Start, provider: Provider, failure: Failure, says: str) -> None:
    """The last line says what to do, in the provider's words and ours, and needs no traceback."""
    provider.server.otherwise = Refusal(failure=failure)
    run = piped(*GPT, target="Well?", **provider.env)
    assert run.end() == 1
    assert run.err.count(says) == 1
    last = run.err.splitlines()[-1]
    assert last.startswith("harborage: the run failed: openai: status 4")
    assert says in last
    assert "--debug" not in last


def test_a_provider_that_is_not_there_is_named_with_its_setting(piped: Start) -> None:
    """Where no server listens the variable that names the address is in the text."""
    run = piped(*GPT, target="Well?", OPENAI_API_KEY="k", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert run.end() == 5  # it is kept, and goes on when the provider is there
    assert "no connection to http://127.0.0.1:9/v1" in run.err
    assert "check llm.base_url (OPENAI_BASE_URL), and the network" in run.err


def test_a_goal_that_does_not_fit_is_refused_at_once(piped: Start, provider: Provider) -> None:
    """A question that is larger than the model's window is not sent, nor is a summary of nothing."""
    run = piped("--model", "openai:gpt-4", target="word " * 12_000, **provider.env)
    assert run.end() == 1
    assert "does not fit: the window is 8192" in run.err
    assert "shorten the request" in run.err
    assert provider.server.requests == []


# ── What is attached ────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_are_attached(piped: Start, provider: Provider, tmp_path: Path) -> None:
    """`--attach` may be repeated: a picture is sent, a text is shown by its name, and the header lists both."""
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 50)
    (tmp_path / "b.md").write_text("# B")
    provider.server.script("A picture and a text.")
    words = ("--attach", "a.png", "--attach", "b.md")
    run = piped(*GPT, *words, target="What is this?", **provider.env)
    assert run.end() == 0
    assert "file   a.png image/png, 58 B" in run.err
    assert "file   b.md text/markdown, 3 B" in run.err
    sent = str(provider.server.requests[0].body["messages"])
    assert "data:image/png;base64," in sent
    assert "Attached file b.md" in sent


@pytest.mark.parametrize("name", ["gone.png", "fake.png"])
def test_a_file_that_cannot_be_attached_costs_nothing(
    piped: Start, provider: Provider, tmp_path: Path, name: str
) -> None:
    """It is code 2 before the model is asked, and the line names the file."""
    (tmp_path / "fake.png").write_text("<html>")
    run = piped(*GPT, "--attach", name, target="What is this?", **provider.env)
    assert run.end() == 2
    assert run.err.startswith(f"harborage: cannot attach {name}: ")
    assert provider.server.requests == []
