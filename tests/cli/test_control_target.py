"""`harborage approve`, `reject`, `message` and `cancel`: what is said to a run from another terminal, up or not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harborage.app.agent_runtime import open_kept_runtime, recorded_agent
from harborage.cli.control_target import open_target
from harborage.cli.main import main
from harborage.identity import Identity
from harborage.runtime.host import Runtime
from harborage.state.storage import open_storage
from harborage.store import Page, PauseQuery, PauseRow, Status
from harborage.store.sqlite import SQLiteStore
from harborage.testing.clock import settle
from harborage.testing.planners import ScriptedPlanner
from tests.kit.stored_runs import row_of

AGENT = """
import json
from harborage import *
from harborage.app import Agent
from harborage.runtime.approval import AlwaysDeny


@tool(effects=SideEffect.WRITE)
async def publish(title: str) -> str:
    '''Publish.'''
    return f"published {title}"


def call(title):
    return CallTool("publish", json.dumps({"title": title}).encode())


class Words:
    async def next(self, run):
        steps, hint = run.trajectory.steps, run.trajectory.resume_hint
        if run.control.cancelled:
            return Finish(FinishReason.CANCELLED, "stopped")
        if run.control.user_messages:
            return Finish(FinishReason.GOAL, "heard: " + run.control.user_messages[0])
        if hint and hint.resume_payload.get("message"):
            return Finish(FinishReason.GOAL, "told: " + hint.resume_payload["message"])
        if steps:
            return Finish(FinishReason.GOAL, steps[-1].observation)
        if run.goal == "both":
            return CallParallel((call("one"), call("two")))
        if run.goal == "ask":
            return RequestPause(PauseReason.AWAIT_INPUT, {"question": "Which?"})
        return call("it")


agent = Agent(name="words", planner=Words(), tools=[publish], approvals={"publish": AlwaysDeny("public")})
"""

ME = Identity("local", "me", "cli-1")
URL = "sqlite:.harborage/harborage.db"
Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project with an agent."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARBORAGE_STORAGE", raising=False)
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


@pytest.fixture
def typed(project: Path, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Types a command; gives its exit code and what it printed."""

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def waiting_run(project: Path, goal: str, questions: int = 1) -> str:
    """A run that waits with so many questions, and that no worker executes."""

    async def make() -> str:
        async with await open_storage(URL) as storage:
            with recorded_agent("agent.py", project) as agent:
                async with open_kept_runtime(agent, storage, "agent.py#1") as runtime:
                    run = await runtime.start(goal, who=ME)
                    while len(await run.waiting()) < questions:
                        await settle()
                    return run.id

    return asyncio.run(make())


def token_of(run_id: str) -> str:
    """The token of the one question that waits."""

    async def look() -> str:
        async with open_target(URL, run_id) as to:
            return to.only_question("approve").token

    return asyncio.run(look())


def carried_on(project: Path, run_id: str) -> tuple[Status, object]:
    """The run's status after a worker has resumed it, and its answer."""

    async def carry() -> tuple[Status, object]:
        async with await open_storage(URL) as storage:
            with recorded_agent("agent.py", project) as agent:
                async with open_kept_runtime(agent, storage, "agent.py#1") as runtime:
                    finish = await (await runtime.run(run_id, who=ME)).finished()
            return (await row_of(storage.store, run_id)).status, finish.payload

    return asyncio.run(carry())


def test_an_approval_waits_for_the_worker_that_resumes_the_run(project: Path, typed: Typed) -> None:
    """It is written while nothing is up, and makes the call when the run is resumed."""
    run_id = waiting_run(project, "publish")
    code, out, err = typed("approve", token_of(run_id), "--reason", "fine")
    assert (code, err) == (0, "")
    assert out == (
        f'approved: publish(title="it"); no worker is running it; continue with: harborage resume {run_id}\n'
    )
    assert carried_on(project, run_id) == (Status.COMPLETE, "published it")
    assert typed("approve", run_id)[0] == 2


def test_an_approval_is_remembered_from_another_terminal(project: Path, typed: Typed) -> None:
    """For the run or for always, as a record that the runtime lists; any other word is wrong use."""
    run_id = waiting_run(project, "publish")
    token = token_of(run_id)
    code, out, err = typed("approve", token, "--remember", "forever")
    assert (code, out, err) == (2, "", "harborage: --remember: 'forever' is neither run nor always\n")
    assert typed("approve", token, "--remember", "always")[0] == 0
    assert carried_on(project, run_id) == (Status.COMPLETE, "published it")

    async def remembered() -> list[tuple[str, str]]:
        async with await open_storage(URL) as storage, Runtime(planner=ScriptedPlanner([]), storage=storage) as runtime:
            return [(one.tool, str(one.remember)) for one in await runtime.grants.list(who=ME)]

    assert asyncio.run(remembered()) == [("publish", "always")]


def test_a_question_that_was_not_shown_is_named_whole(project: Path, typed: Typed) -> None:
    """Where there is no terminal, neither a run nor the beginning of a token can stand for what will be approved."""
    run_id = waiting_run(project, "publish")
    token = token_of(run_id)
    for word in (run_id, run_id[:6], token[:-1], token[:3]):
        for command in (("approve", word), ("reject", word)):
            code, out, err = typed(*command)
            assert (code, out) == (2, ""), command
            assert f"by its whole token: harborage {command[0]} {token}" in err
    assert typed("approve", token)[0] == 0


def test_a_whole_token_is_all_that_is_looked_for(project: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many questions are open, the one that is named is read, and no other."""
    token = token_of(waiting_run(project, "publish"))
    asked: list[PauseQuery] = []
    pauses = SQLiteStore.pauses

    async def noted(self: SQLiteStore, query: PauseQuery) -> Page[PauseRow]:
        asked.append(query)
        return await pauses(self, query)

    monkeypatch.setattr(SQLiteStore, "pauses", noted)
    assert typed("approve", token)[0] == 0
    assert {query.tokens for query in asked} == {(token,)}
    assert len(asked) == 2  # what is asked, and whether it is settled by then


def test_of_two_answers_the_second_is_refused(project: Path, typed: Typed) -> None:
    """Before the run continues, and after: the second caller exits with 1, and the first answer counts."""
    run_id = waiting_run(project, "publish")
    token = token_of(run_id)
    assert typed("approve", token)[0] == 0
    for command in ("approve", "reject"):
        code, out, err = typed(command, token)
        assert (code, out) == (1, ""), command
        assert 'publish(title="it") was already answered: approve by me at ' in err
        assert "1 item will end without you:\n  approval" in typed("doctor")[1]
    assert carried_on(project, run_id) == (Status.COMPLETE, "published it")
    code, _, err = typed("reject", token)
    assert (code, "was already answered: approve by me at " in err) == (1, True)


def test_an_approval_can_change_the_arguments(project: Path, typed: Typed) -> None:
    """They are a JSON object; anything else is refused, and nothing is sent."""
    run_id = waiting_run(project, "publish")
    code, _, err = typed("approve", token_of(run_id), "--args", "[1]")
    assert (code, "--args: arguments are a JSON object" in err) == (2, True)
    assert typed("approve", token_of(run_id), "--args", '{"title": "that"}')[0] == 0
    assert carried_on(project, run_id)[1] == "published that"


def test_the_arguments_that_will_be_used_are_printed_and_others_than_the_tool_takes_are_refused(
    project: Path, typed: Typed
) -> None:
    """Also while no worker executes the run: nothing is used up, the question stays open."""
    run_id = waiting_run(project, "one")
    token = token_of(run_id)
    for wrong, why in (('{"title": 5}', "title"), ("{}", "title"), ("[1]", "JSON object"), ('"x"', "JSON object")):
        code, out, err = typed("approve", token, "--args", wrong)
        assert (code, out) == (2, ""), wrong
        assert why in err, (wrong, err)
        assert token_of(run_id) == token
    code, out, _ = typed("approve", token, "--args", '{"title": "that"}')
    assert code == 0
    assert out.startswith('approved: publish(title="that");')
    assert carried_on(project, run_id) == (Status.COMPLETE, "published that")


def test_a_beginning_that_several_ids_have_means_the_run_that_goes_on(project: Path, typed: Typed) -> None:
    """What is over can take no answer; of two that could it is asked which."""
    over = waiting_run(project, "ask")
    assert typed("answer", token_of(over), "x")[0] == 0
    carried_on(project, over)
    run_id = waiting_run(project, "publish")
    assert typed("approve", token_of(run_id[:1]))[0] == 0
    assert carried_on(project, run_id)[1] == "published it"
    for _ in range(2):
        waiting_run(project, "ask")
    code, _, err = typed("answer", run_id[:1], "x")
    assert (code, "2 questions are open; answer one by its token: " in err) == (2, True)


def test_a_refusal_keeps_the_call_from_being_made(project: Path, typed: Typed) -> None:
    """The planner gets the reason."""
    run_id = waiting_run(project, "publish")
    code, out, _ = typed("reject", token_of(run_id), "--reason", "too early")
    assert (code, out.startswith('rejected: publish(title="it"); ')) == (0, True)
    assert "too early" in str(carried_on(project, run_id)[1])


def test_of_several_questions_one_is_named(project: Path, typed: Typed) -> None:
    """They are listed with the commands that answer them; a token names one of them."""
    run_id = waiting_run(project, "both", questions=2)
    code, _, err = typed("approve", run_id)
    assert code == 2
    assert err.startswith("harborage: 2 questions are open; answer one by its token: ")
    tokens = [words.split()[0].rstrip(";") for words in err.split("harborage approve ")[1:]]
    assert len(tokens) == 2
    assert typed("approve", tokens[0])[0] == 0
    assert typed("reject", tokens[1])[0] == 0
    said = str(carried_on(project, run_id)[1])
    assert said.count("published") == 1


def test_a_message_answers_a_run_that_asks(project: Path, typed: Typed) -> None:
    """No worker needs to run."""
    run_id = waiting_run(project, "ask")
    code, out, _ = typed("message", run_id, "the", "second")
    assert (code, out.startswith('answered: await_input: {"question":"Which?"}; no worker')) == (0, True)
    assert carried_on(project, run_id)[1] == "told: the second"


def test_of_two_messages_to_one_question_the_second_is_no_answer(project: Path, typed: Typed) -> None:
    """Before the run goes on: it is said, with exit code 1, and the run gets the first alone."""
    run_id = waiting_run(project, "ask")
    assert typed("message", run_id, "the", "second")[0] == 0
    code, out, err = typed("message", run_id, "the", "third")
    assert (code, out) == (1, "")
    assert "was already answered" in err
    assert carried_on(project, run_id)[1] == "told: the second"


def test_an_answer_is_for_what_was_asked(project: Path, typed: Typed) -> None:
    """Words answer a run that asks, and nothing else; a call that needs a yes or a no is left alone."""
    run_id = waiting_run(project, "ask")
    code, _, err = typed("answer", run_id, "--done")
    assert (code, "only an interrupted call has a result; answer with text: harborage answer " in err) == (2, True)
    assert typed("answer", token_of(run_id), "the", "first")[1].startswith("answered: await_input: ")
    assert carried_on(project, run_id)[1] == "told: the first"
    run_id = waiting_run(project, "publish")
    code, _, err = typed("answer", run_id, "yes")
    assert (code, 'publish(title="it") needs approval, not an answer: harborage approve ' in err) == (2, True)


def test_a_message_does_not_answer_a_call(project: Path, typed: Typed) -> None:
    """The call waits on; the planner sees the message at its next step."""
    run_id = waiting_run(project, "publish")
    assert typed("message", run_id, "hello")[1].startswith(f"message sent to run {run_id}; ")
    assert typed("approve", token_of(run_id))[0] == 0
    assert carried_on(project, run_id)[1] == "heard: hello"


def test_a_run_is_cancelled(project: Path, typed: Typed) -> None:
    """At its next boundary, or with --now at once; afterwards it takes nothing more."""
    run_id = waiting_run(project, "ask")
    assert typed("cancel", run_id, "--now")[1].startswith(f"cancelling run {run_id}; ")
    assert carried_on(project, run_id)[0] is Status.FAILED
    code, _, err = typed("cancel", run_id)
    assert code == 2
    assert (
        f"run {run_id} has ended (cancelled); start another from any of its steps: harborage fork {run_id} --at STEP"
        in err
    )
    assert typed("message", run_id, "x")[0] == 2


@pytest.mark.parametrize("words", [("approve", "x"), ("reject", "x"), ("cancel", "x"), ("message", "x", "y")])
def test_what_names_no_run_is_wrong_use(project: Path, typed: Typed, words: tuple[str, ...]) -> None:
    """Without a database, and without such a run; nothing is made by asking."""
    code, _, err = typed(*words)
    assert code == 2
    assert "there is no database .harborage/harborage.db; the first 'harborage run' creates it" in err
    assert not (project / ".harborage").exists()
    waiting_run(project, "ask")
    code, _, err = typed(*words)
    assert (code, "harborage: no run 'x' in " in err) == (2, True)


def test_nothing_to_say_is_wrong_use(typed: Typed) -> None:
    """A message needs words."""
    code, _, err = typed("message", "x")
    assert (code, "no message; example: harborage message RUN" in err) == (2, True)


def test_doctor_says_what_waits_and_on_whom(project: Path, typed: Typed) -> None:
    """Code 1 as long as a person is waited for, 0 once nothing is."""
    run_id = waiting_run(project, "ask")
    code, out, _ = typed("doctor")
    assert code == 1
    assert out.startswith("✓ database  .harborage/harborage.db: it answers")
    assert " TEXT, or approve, or reject" in out
    output = json.loads(typed("doctor", "--json")[1])
    assert {one["kind"] for one in output["waits"] if one["needs_person"]} == {"pause", "run"}
    typed("message", run_id, "x")
    carried_on(project, run_id)
    code, out, _ = typed("doctor")
    assert code == 0
    assert "orphan" not in out


def test_doctor_finds_no_database(typed: Typed) -> None:
    """And makes none."""
    assert typed("doctor")[0] == 2


def test_doctor_reports_a_damaged_database(project: Path, typed: Typed) -> None:
    """With what to do about it, and code 1."""
    (project / ".harborage").mkdir()
    (project / ".harborage" / "harborage.db").write_bytes(b"no database" * 100)
    code, out, _ = typed("doctor")
    assert (code, out.startswith("✗ database  ")) == (1, True)
    assert json.loads(typed("doctor", "--json")[1])["findings"][0]["is_ok"] is False
