"""The release notes example at work, on real git histories in folders of their own."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harborage import EventType, Finish, FinishReason, Identity, Run
from harborage.app import AgentNotReadyError, load_agent, open_runtime
from harborage.artifacts import ArtifactRef, ArtifactScope
from harborage.events import DecisionPayload, Event, TaskSpawnedPayload, ToolApprovalRequestedPayload

pytestmark = pytest.mark.anyio

ADA = Identity("acme", "ada", "notes")
AGENT = load_agent(str(Path(__file__).resolve().parents[2] / "examples" / "release_notes.py"))
EXAMPLE: Any = sys.modules["harborage_target_release_notes"]
DRAFT = "Draft the release notes"

Answer = Callable[[Run, ToolApprovalRequestedPayload], Awaitable[object]]


class Clone:
    """A git repository in a folder, with a history that a test writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *args: str, author: str = "Ada") -> str:
        who = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in _person(author)}
        done = subprocess.run(["git", *args], cwd=self.path, env=os.environ | who, capture_output=True, check=True)
        return done.stdout.decode()

    def commit(self, message: str, *, author: str = "Ada", **files: str) -> None:
        """Commit these files (`src__one` is `src/one`); without any, nothing changes."""
        for name, text in files.items():
            file = self.path / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "--allow-empty-message", "-m", message, author=author)


def _person(name: str) -> list[tuple[str, str]]:
    return [("NAME", name), ("EMAIL", f"{name.lower()}@example.org")]


class Told(msgspec.Struct, frozen=True):
    """What a run gave: its finish, its events, what it asked for, and the artifacts of its session."""

    finish: Finish
    events: list[Event]
    asked: list[dict[str, Any]]
    artifacts: list[ArtifactRef]

    @property
    def answer(self) -> str:
        return str(self.finish.payload)

    def decisions(self) -> list[str]:
        """The kinds of the decisions of the run itself, in order."""
        run_id = self.events[-1].payload.task_id  # type: ignore[union-attr]
        return [
            event.payload.decision_kind
            for event in self.events
            if isinstance(event.payload, DecisionPayload) and event.identity.run_id == run_id
        ]


async def yes(run: Run, asked: ToolApprovalRequestedPayload) -> None:
    """Approve as it is."""
    await run.approve(asked.pause_token)


async def no(run: Run, asked: ToolApprovalRequestedPayload) -> None:
    """Refuse."""
    await run.reject("not today", token=asked.pause_token)


async def published(
    goal: str = DRAFT, answer: Answer = yes, *, at_once: Callable[[Run], Awaitable[object]] | None = None
) -> Told:
    """Run the agent towards `goal`; `answer` settles each approval, `at_once` is done before the first step."""
    events: list[Event] = []
    asked: list[dict[str, Any]] = []
    async with open_runtime(AGENT) as runtime:
        run = await runtime.start(goal, who=ADA)
        if at_once is not None:
            await at_once(run)
        async for event in run.events():
            events.append(event)
            if isinstance(event.payload, ToolApprovalRequestedPayload):
                asked.append(event.payload.args_summary["args"])
                await answer(run, event.payload)
        return Told(await run.finished(), events, asked, await runtime.artifacts.list(ArtifactScope.of(ADA)))


@pytest.fixture(autouse=True)
def _own_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the configuration of the user who runs it."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    """A small history with one release, in the working folder."""
    clone = Clone(tmp_path / "clone")
    clone.commit("feat: begin", src__core__begin="1\n")
    clone.git("tag", "v1.0")
    clone.commit("feat(core): read files", src__core__read="1\n2\n3\n")
    clone.commit("Fix a crash on empty files (#7)", author="Bob", src__core__read="1\n2\n")
    clone.commit("chore: bump the pins", pins="a\n")
    monkeypatch.chdir(clone.path)
    return clone


# ── What a person gets ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_approved_draft_is_written(clone: Clone) -> None:
    """The file holds the very text that was shown, with commits in their sections and everybody thanked."""
    run = await published()
    written = (clone.path / "RELEASE_NOTES.md").read_text()
    assert run.finish.reason is FinishReason.GOAL
    assert run.answer.startswith("Wrote RELEASE_NOTES.md")
    assert [asked["text"] for asked in run.asked] == [written]
    assert written.startswith("# Changes since v1.0\n")
    headings = [line for line in written.splitlines() if line.startswith("## ")]
    assert headings == [
        f"## {name}" for name in ("Added", "Fixed", "Chores", "Biggest changes", "By area", "Thanks to")
    ]
    assert "- core: read files (" in written
    assert "- Ada (2)\n- Bob (1)\n" in written
    assert "begin" not in written.partition("## Biggest")[0]


async def test_a_refused_draft_is_in_the_answer(clone: Clone) -> None:
    """A no is a fine end: the answer says that nothing was written, why, and what would have been."""
    run = await published(answer=no)
    assert run.finish.reason is FinishReason.GOAL
    assert run.answer.startswith("Nothing was written: the call of 'write_notes' was rejected: not today.")
    assert run.asked[0]["text"] in run.answer
    assert clone.git("status", "--porcelain") == ""


async def test_an_approver_may_edit_the_call(clone: Clone) -> None:
    """What runs is the edited call: another file, another text."""

    async def edited(run: Run, asked: ToolApprovalRequestedPayload) -> None:
        await run.approve(asked.pause_token, args={"path": "OTHER.md", "text": "short\n"})

    run = await published(answer=edited)
    assert run.answer == "Wrote OTHER.md (6 bytes)."
    assert (clone.path / "OTHER.md").read_text() == "short\n"
    assert not (clone.path / "RELEASE_NOTES.md").exists()


async def test_the_goal_says_since_what_and_into_which_file(clone: Clone) -> None:
    """`since` and `into` in the goal are obeyed, a closing full stop is not part of the name."""
    clone.git("tag", "v1.1", "HEAD~1")
    run = await published("Draft the notes since v1.1, into NOTES.md.")
    assert (clone.path / "NOTES.md").read_text().startswith("# Changes since v1.1\n")
    assert "read files" not in run.asked[0]["text"]


async def test_without_a_tag_the_notes_have_every_commit(clone: Clone) -> None:
    """The notes of a history without a release begin with its first commit."""
    clone.git("tag", "-d", "v1.0")
    run = await published(answer=no)
    assert run.asked[0]["text"].startswith("# Changes so far\n\nCommits so far: 4.\n")


async def test_a_shallow_clone_is_listed_as_far_as_it_goes(
    clone: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notes of a clone that is cut short say so."""
    clone.git("clone", "-q", "--depth", "2", "--no-tags", clone.path.as_uri(), str(tmp_path / "shallow"))
    monkeypatch.chdir(tmp_path / "shallow")
    run = await published(answer=no)
    assert "Commits as far back as this shallow clone goes: 2." in run.asked[0]["text"]


async def test_nothing_new_ends_well(clone: Clone) -> None:
    """When nothing was committed since the last tag, the run's answer says so; it asks no person and spawns nothing."""
    clone.git("tag", "v2.0")
    run = await published()
    assert run.finish == Finish(FinishReason.GOAL, "Nothing to tell: there are no commits since v2.0.")
    assert run.decisions() == ["CallParallel", "Finish"]


# ── What the person says meanwhile ──────────────────────────────────────────────────────────────────────────────────


async def test_messages_are_obeyed_or_noted(clone: Clone) -> None:
    """Orders change the notes; any other line goes into them."""

    async def speak(run: Run) -> None:
        for text in ("title: Big day.", "skip chores", "into DAY.md", "Thanks for waiting!"):
            await run.message(text)

    await published(at_once=speak)
    written = (clone.path / "DAY.md").read_text()
    assert written.startswith("# Big day\n")
    assert "## Chores" not in written
    assert "\n\nThanks for waiting!\n\n" in written


async def test_a_message_makes_only_what_depends_on_it_anew(clone: Clone) -> None:
    """A title that comes while the call waits is drafted and asked for again, without reading the history again."""

    async def second_thoughts(run: Run, asked: ToolApprovalRequestedPayload) -> None:
        if "Second try" in asked.args_summary["args"]["text"]:
            await yes(run, asked)
            return
        await run.message("title: Second try")
        await no(run, asked)

    run = await published(answer=second_thoughts)
    assert len(run.asked) == 2
    assert (clone.path / "RELEASE_NOTES.md").read_text().startswith("# Second try\n")
    assert run.decisions().count("CallParallel") == 1


async def test_a_no_may_say_how(clone: Clone) -> None:
    """An order as the reason of a refusal is obeyed and asked for again; said twice, it is a no like any other."""

    async def picky(run: Run, asked: ToolApprovalRequestedPayload) -> None:
        await run.reject("skip chores", token=asked.pause_token)

    run = await published(answer=picky)
    assert ["## Chores" in asked["text"] for asked in run.asked] == [True, False]
    assert run.answer.startswith("Nothing was written: the call of 'write_notes' was rejected: skip chores.")
    assert "## Chores" not in run.answer


async def test_a_redirect_changes_the_goal(clone: Clone) -> None:
    """After a redirect the history is read again from where the new goal says."""
    clone.git("tag", "v1.1", "HEAD~1")

    async def redirect(run: Run, asked: ToolApprovalRequestedPayload) -> None:
        if asked.args_summary["args"]["path"] == "ALL.md":
            await yes(run, asked)
            return
        await run.redirect("Release notes since v1.0 into ALL.md")
        await no(run, asked)

    run = await published(answer=redirect)
    assert "read files" in (clone.path / "ALL.md").read_text()
    assert run.decisions().count("CallParallel") == 2


async def test_a_cancel_is_heeded(clone: Clone) -> None:
    """A soft cancel ends the run at its next step, with nothing written."""
    run = await published(at_once=lambda run: run.cancel())
    assert run.finish.reason is FinishReason.CANCELLED
    assert not run.asked


# ── How it works ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_history_is_read_by_four_tools_at_once(clone: Clone) -> None:
    """One decision reads; all four calls have begun before the first is done."""
    run = await published()
    assert run.decisions() == ["CallParallel", "SpawnTask", "CallTool", "AwaitTask", "CallTool", "CallTool", "Finish"]
    first = [event.type for event in run.events if event.type in (EventType.TOOL_INVOKED, EventType.TOOL_COMPLETED)]
    assert first[:4] == [EventType.TOOL_INVOKED] * 4


async def test_areas_are_counted_by_a_background_task(clone: Clone) -> None:
    """The run spawns one task, awaits it, and its counts are in the notes."""
    run = await published(answer=no)
    spawned = [event.payload for event in run.events if isinstance(event.payload, TaskSpawnedPayload)]
    assert [str(payload.kind) for payload in spawned] == ["foreground", "background"]
    assert spawned[1].parent_task_id == spawned[0].task_id
    assert "## By area\n\n- src/core: 4 lines\n- top folder: 1 lines\n" in run.asked[0]["text"]


async def test_a_heavy_patch_log_is_kept_and_read_back_in_pages(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log over 32 KiB goes to the artifact store; the pages of it give the counts that git gives."""
    monkeypatch.setattr(EXAMPLE, "PAGE_CHARS", 10_000)
    for number in range(4):
        clone.commit(f"feat: part {number}", **{f"src__part{number}__words": f"some words {number}\n" * 1000})
    run = await published(answer=no)
    (log,) = run.artifacts
    assert log.filename == "tool-result-patch_log.json"
    assert log.size_bytes > 32 * 1024
    pages = [event for event in run.events if getattr(event.payload, "tool_name", "") == "count_areas"]
    assert len(pages) > 2 * (log.size_bytes // 12_000)
    assert "- src/part3: 1000 lines\n" in run.asked[0]["text"]
    assert "- src/part0: 1000 lines\n" in run.asked[0]["text"]


async def test_a_small_patch_log_needs_no_artifact(clone: Clone) -> None:
    """What fits into a result is handed on by value."""
    assert not (await published(answer=no)).artifacts


async def test_one_planner_serves_runs_side_by_side(clone: Clone) -> None:
    """Two runs of one runtime at a time get each their own notes."""
    async with open_runtime(AGENT) as runtime:

        async def one(name: str) -> None:
            run = await runtime.start(f"Draft into {name}.md, title: {name}", who=ADA)
            async for event in run.events():
                if isinstance(event.payload, ToolApprovalRequestedPayload):
                    await yes(run, event.payload)

        await asyncio.gather(one("left"), one("right"))
    for name in ("left", "right"):
        assert (clone.path / f"{name}.md").read_text().startswith(f"# {name}\n")


# ── What can go wrong ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_folder_without_history_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a repository, and in one without commits, the agent says what is missing before a run starts."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path / "plain")
    with pytest.raises(AgentNotReadyError, match=r"plain \(fatal: not a git repository.*start this agent in a clone"):
        open_runtime(AGENT)
    monkeypatch.chdir(Clone(tmp_path / "fresh").path)
    with pytest.raises(AgentNotReadyError, match="does not have any commits yet"):
        open_runtime(AGENT)


async def test_without_git_the_agent_says_so(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git on the path the agent names it."""
    monkeypatch.setenv("PATH", str(clone.path))
    with pytest.raises(AgentNotReadyError, match="git is not installed"):
        open_runtime(AGENT)


@pytest.mark.parametrize("since", ["v9", "--output=pwned", "HEAD..v1.0"])
async def test_an_unknown_beginning_is_named(clone: Clone, since: str) -> None:
    """A `since` that is no revision of this history ends the run with its name; it never reaches git as an option."""
    run = await published(f"Draft since {since}")
    assert run.finish == Finish(
        FinishReason.NO_PATH, f"this history has no {since!r}; name a tag, a branch or a commit"
    )
    assert not (clone.path / "pwned").exists()


async def test_uncommitted_changes_are_not_overwritten(clone: Clone) -> None:
    """A target with changes that git does not hold is refused before anybody is asked; the draft is in the answer."""
    (clone.path / "RELEASE_NOTES.md").write_text("mine")
    run = await published()
    assert run.finish.reason is FinishReason.CONSTRAINTS_CONFLICT
    assert run.answer.startswith("Nothing was written: RELEASE_NOTES.md has changes that are not committed")
    assert "# Changes since v1.0" in run.answer
    assert not run.asked
    assert (clone.path / "RELEASE_NOTES.md").read_text() == "mine"


@pytest.mark.parametrize("goal", ["Draft, overwrite", DRAFT])
async def test_a_target_may_be_overwritten(clone: Clone, goal: str) -> None:
    """When the person says so, or when git holds what the file held."""
    (clone.path / "RELEASE_NOTES.md").write_text("old")
    if goal == DRAFT:
        clone.commit("docs: notes")
    assert (await published(goal)).answer.startswith("Wrote RELEASE_NOTES.md")
    assert (clone.path / "RELEASE_NOTES.md").read_text().startswith("# Changes since v1.0\n")


async def test_an_edited_target_is_looked_at_too(clone: Clone) -> None:
    """An approver who names a file with uncommitted changes loses nothing."""
    (clone.path / "mine.md").write_text("mine")

    async def edited(run: Run, asked: ToolApprovalRequestedPayload) -> None:
        await run.approve(asked.pause_token, args={"path": "mine.md", "text": "short"})

    run = await published(answer=edited)
    assert run.finish.reason is FinishReason.CONSTRAINTS_CONFLICT
    assert run.answer.startswith("Nothing was written: mine.md has changes that are not committed")
    assert (clone.path / "mine.md").read_text() == "mine"


async def test_a_read_only_folder_is_named(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be written to is refused before anybody is asked; so is one that is not there."""
    access = os.access
    # Permissions do not bind root, who runs tests in many containers; the kernel's answer is played.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    run = await published()
    assert run.answer.startswith("Nothing was written: . is missing or read-only; name a file in another folder.")
    assert run.finish.reason is FinishReason.CONSTRAINTS_CONFLICT
    monkeypatch.undo()
    monkeypatch.chdir(clone.path)
    run = await published("Draft into nowhere/NOTES.md")
    assert run.answer.startswith("Nothing was written: nowhere is missing or read-only")


async def test_a_write_that_fails_is_reported(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the disk, after the approval, is in the answer with the draft."""

    def fail(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", fail)
    run = await published()
    assert run.answer.startswith(
        "Nothing was written: OSError: [Errno 28] No space left on device: 'RELEASE_NOTES.md'."
    )
    assert run.asked[0]["text"] in run.answer


async def test_odd_commit_messages_are_harmless(clone: Clone) -> None:
    """Escape codes, shell and option look-alikes, a missing message and a very long one become one plain line each."""
    clone.commit("")
    for message in ("Add \x1b[31mred\x07 \u202etext", "--output=pwned", "$(touch pwned) `touch pwned`", "word " * 400):
        clone.commit(message, author="Zoë \x1b[2J")
    text = str((await published(answer=no)).asked[0]["text"])
    assert all(line.isprintable() and len(line) < 120 for line in text.splitlines())
    assert "- $(touch pwned) `touch pwned` (" in text
    assert not (clone.path / "pwned").exists()


async def test_a_long_history_makes_notes_that_can_still_be_edited(clone: Clone) -> None:
    """The draft stays short enough for an approver's edit, and says how much it leaves out."""
    for number in range(60):
        clone.commit(f"feat: add the {number}th thing with quite a long description of what it is good for")
    text = (await published(answer=no)).asked[0]["text"]
    assert len(text) <= 4000
    assert "- … and 21 more\n" in text
    assert "## Thanks to" in text


async def test_more_commits_than_fit_are_counted(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only the newest commits are listed, the notes say so and count all."""
    monkeypatch.setattr(EXAMPLE, "MOST_COMMITS", 2)
    text = (await published(answer=no)).asked[0]["text"]
    assert "Commits since v1.0: 3, of which the newest 2 are here." in text


async def test_git_is_stopped_when_enough_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A git that prints without end is read up to the bound and then ended."""
    endless = tmp_path / "git"
    endless.write_text("#!/bin/sh\nexec yes\n")
    endless.chmod(endless.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert await EXAMPLE.git("log", most_bytes=10_000) == "y\n" * 5_000


# ── The parts ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("subject", "section", "line"),
    [
        ("feat: add a door", "Added", "add a door"),
        ("feat(house): add a door", "Added", "house: add a door"),
        ("fix!: close it", "Breaking changes", "close it"),
        ("house!: new doors", "Breaking changes", "house!: new doors"),
        ("Fix the door", "Fixed", "Fix the door"),
        ("door: remove the old one", "Removed", "door: remove the old one"),
        ("Bump the pins", "Chores", "Bump the pins"),
        ("Release early", "Chores", "Release early"),
        ("Whatever", "Other changes", "Whatever"),
        ("", "Other changes", ""),
    ],
)
def test_a_commit_finds_its_section(subject: str, section: str, line: str) -> None:
    """By its conventional prefix, else by its first verb; a prefix that is no kind of change stays in the line."""
    assert EXAMPLE.placed(subject) == (section, line)


def test_a_change_is_listed_once() -> None:
    """Subjects that differ only in case, a full stop or a pull request's number are one line, the newest."""
    subjects = {"c": "Fix it (#9)", "b": "fix it.", "a": "Fix it"}
    text = EXAMPLE.draft.function(reach="so far", commits=subjects, people={}, files={}, areas={}, wish=EXAMPLE.Wish())
    assert [line for line in text.splitlines() if line.startswith("- ")] == ["- Fix it (#9) (c)"]


def test_the_tools_say_what_they_do() -> None:
    """Every tool but one only reads, and the one that writes is gated."""
    effects = {one.tool.name: str(one.tool.side_effects) for one in AGENT.tools}  # type: ignore[union-attr]
    assert [name for name, effect in effects.items() if effect not in ("read", "pure")] == list(AGENT.approvals or ())
    assert all(one.tool.description for one in AGENT.tools)  # type: ignore[union-attr]
    assert json.dumps(AGENT.tools[0].tool.args_schema)  # type: ignore[union-attr]
