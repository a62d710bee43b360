"""Release notes from the git history of the folder you stand in: an agent that is useful as it is and needs no model.

    harborage run examples/release_notes.py "Draft the release notes since v1.2 into NOTES.md"

It reads with four tools at once, counts changed lines in a background task, drafts, and asks before it writes the file.
`title: …`, `skip chores`, `since v1.1`, `into FILE` and `overwrite` are obeyed in the goal, in a message while it runs,
and as the reason of a no; any other message goes into the notes. From top to bottom: the wish, the tools, the plan.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from harborage import AwaitTask, CallContext, CallParallel, CallTool, Decision, Finish, FinishReason, HarborageError
from harborage.app import Agent, AgentNotReadyError
from harborage.artifacts import ArtifactScope
from harborage.planner import ParallelObservation, RunContext, SpawnSpec, SpawnTask, parallel_observation
from harborage.runtime.approval import AlwaysDeny
from harborage.tools import SideEffect, ToolOptions, ToolPolicy, tool

# ── What was asked ──────────────────────────────────────────────────────────────────────────────────────────────────


class Wish(msgspec.Struct, frozen=True):
    """What the person wants, so far. An empty `since` means the last tag."""

    since: str = ""
    path: str = "RELEASE_NOTES.md"
    title: str = ""
    skip: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    overwrite: bool = False


ORDER = re.compile(
    r"(?i)\b(?:since (?P<since>\S+)|into (?P<path>\S+)|skip (?P<skip>\w+)|title:(?P<title>.+)|(?P<overwrite>overwrite))"
)


def wish_of(run: RunContext) -> Wish:
    """The goal, which a redirect may have changed, and on top of it what the user said while the run went on."""
    wish = Wish()
    for found in ORDER.finditer(run.goal):
        wish = obeyed(wish, found)
    for said in run.trajectory.steering_inputs if run.trajectory else ():
        if said.kind == "user_message":
            text = str(said.payload["message"]).strip()
            order = ORDER.fullmatch(text)
            wish = obeyed(wish, order) if order else msgspec.structs.replace(wish, notes=(*wish.notes, text))
    return wish


def obeyed(wish: Wish, order: re.Match[str]) -> Wish:
    """The wish with one order carried out; the group that matched is the field."""
    field = str(order.lastgroup)
    said = order[field].strip(" .,;")
    several = {"overwrite": True, "skip": tuple(dict.fromkeys([*wish.skip, said]))}
    return msgspec.structs.replace(wish, **{field: several.get(field, said)})


# ── The tools: typed functions. Schemas, checks, timeouts and events are the runtime's ──────────────────────────────

# What git refuses once it refuses again, so nothing is retried.
READ = ToolOptions(effects=SideEffect.READ, policy=ToolPolicy(timeout_ms=20_000, retry_on=()))
PLAIN = ("--literal-pathspecs", "-c", "core.quotePath=false", "-c", "color.ui=false", "-c", "log.showSignature=false")
COUNTS = ("--no-merges", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")
MOST_COMMITS = 100  # of one line each: a result that is small enough to be handed on by value
PAGE_CHARS = 256 << 10
LONGEST_NOTES = 4000  # characters; an approver may edit strings of up to 4,096
Counts: TypeAlias = dict[str, int]


class NotesError(HarborageError):
    """The history cannot be read, or the notes cannot be written."""


async def git(*args: str, most_bytes: int = 4 << 20) -> str:
    """What git prints, up to `most_bytes` of it. No shell, and no git left running when nobody waits any more."""
    process = await asyncio.create_subprocess_exec("git", *PLAIN, *args, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    printed = bytearray()
    try:
        while len(printed) < most_bytes and (piece := await process.stdout.read(most_bytes - len(printed))):
            printed += piece
    finally:
        if not process.stdout.at_eof():
            process.kill()
        _, complaint = await process.communicate()
    if process.returncode and len(printed) < most_bytes:
        raise NotesError(plain(complaint.decode("utf-8", "replace"), 300) or f"git {args[0]} failed")
    return printed.decode("utf-8", "replace")


def plain(text: str, most: int = 90) -> str:
    """One printable line: commit messages and file names may hold anything, escape codes of terminals included."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


async def range_of(since: str) -> str:
    """The commits after `since`, or after the last tag, as git wants to be told; without a tag all there are."""
    wanted = ("rev-parse", "--verify", f"{since}^{{commit}}") if since else ("describe", "--tags", "--abbrev=0")
    try:
        found = await git(*wanted)
    except NotesError as error:
        if since:
            raise NotesError(f"this history has no {since!r}; name a tag, a branch or a commit") from error
        return "HEAD"
    return f"{since or found.strip()}..HEAD"


@tool(**READ)
async def reach(since: str = "") -> str:
    """How far back the notes reach, in words."""
    base = (await range_of(since)).rpartition("..")[0]
    is_shallow = (await git("rev-parse", "--is-shallow-repository")).strip() == "true"
    return f"since {base}" if base else "as far back as this shallow clone goes" if is_shallow else "so far"


@tool(**READ)
async def commits(since: str = "") -> dict[str, str]:
    """The subjects of the commits after `since` by their ids, newest first."""
    found = await git("log", "-z", "--no-merges", f"-{MOST_COMMITS}", "--format=%h %s", await range_of(since))
    return {sha: plain(subject) for sha, _, subject in (row.partition(" ") for row in found.split("\0")) if sha}


@tool(**READ)
async def contributors(since: str = "") -> Counts:
    """Who made the commits after `since`, and how many; the busiest first."""
    rows = (await git("shortlog", "-sn", "--no-merges", await range_of(since))).splitlines()[:500]
    return {plain(name): int(count) for count, _, name in (row.partition("\t") for row in rows)}


@tool(**READ)
async def busiest_files(since: str = "") -> Counts:
    """The ten files with the most changed lines after `since`."""
    return dict(counted(await git("log", *COUNTS, "--format=", await range_of(since))).most_common(10))


def counted(log: str, name: Callable[[str], str] = plain) -> Counter[str]:
    """Changed lines under the name of each path, wherever git counts them; binary files have no count."""
    total: Counter[str] = Counter()
    for line in log.split("\n"):
        row = line.split("\t", 2)
        if len(row) == 3 and row[0].isdecimal() and row[1].isdecimal():
            total[name(row[2])] += int(row[0]) + int(row[1])
    return total


@tool(**READ)
async def patch_log(since: str = "") -> str:
    """Every patch after `since`, newest first, each with its counts of changed lines."""
    return await git("log", "--patch", *COUNTS, "--format=commit %h", await range_of(since))


@tool(**READ)
async def count_areas(call: CallContext, log: str, start: int = 0, by_ref: bool = False) -> tuple[Counts, int | None]:
    """Changed lines by folder in one page of a patch log, as text or as an artifact, and where the next starts."""
    if by_ref and call.artifacts is not None:
        kept = await call.artifacts.get(ArtifactScope.of(call.who), log)
        log = msgspec.json.decode(kept or b"", type=str)  # a tool's result is kept as the JSON it was
    end = log.rfind("\n", start, start + PAGE_CHARS) + 1 or start + PAGE_CHARS
    areas = counted(log[start:end], lambda path: plain("/".join(path.split("/")[:-1][:2])) or "top folder")
    return dict(areas.most_common(100)), end if end < len(log) else None


SECTIONS = {
    "Breaking changes": "",
    "Added": "feat feature add adds added allow allows implement implements introduce introduces new support supports",
    "Changed": "perf refactor change changes improve improves make makes move moves rename rework simplify update use",
    "Fixed": "fix fixes fixed avoid avoids correct corrects handle handles hotfix prevent prevents repair",
    "Removed": "remove removes removed delete deletes deprecate drop drops",
    "Docs": "docs doc document documents documentation readme",
    "Chores": "chore build bump bumps ci deps format lint release style test tests upgrade",
    "Other changes": "",
}
SECTION_OF = {word: section for section, words in SECTIONS.items() for word in words.split()}
PREFIXED = re.compile(r"(?P<kind>\w+)(?:\((?P<scope>[^)]*)\))?(?P<breaking>!)?:\s+(?P<text>.+)")


def placed(subject: str) -> tuple[str, str]:
    """The section of a commit and its line: by its prefix, such as `fix(cli)!: …`, else by its first verb."""
    parts = PREFIXED.fullmatch(subject)
    kind, text = (parts["kind"].lower(), parts["text"]) if parts else ("", subject)
    section = SECTION_OF.get(kind) or SECTION_OF.get(text.partition(" ")[0].lower(), "Other changes")
    if parts and kind in SECTION_OF:
        subject = f"{parts['scope']}: {text}" if parts["scope"] else text
    return "Breaking changes" if parts and parts["breaking"] else section, subject


@tool(effects=SideEffect.PURE)
def draft(reach: str, commits: dict[str, str], people: Counts, files: Counts, areas: Counts, wish: Wish) -> str:
    """The notes in Markdown: commits by section, each said once, then what they changed most and who made them."""
    lists: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for sha, subject in commits.items():
        section, line = placed(subject)
        if not any(section.lower().startswith(word.lower().rstrip("s")) for word in wish.skip):
            lists[section].setdefault(re.sub(r"\s*\(#\d+\)$|\.$", "", line).lower(), f"{line} ({sha})")
    lists["Biggest changes"] = {path: f"{path}: {count} lines" for path, count in files.items()}
    lists["By area"] = {area: f"{area}: {count} lines" for area, count in Counter(areas).most_common(5)}
    lists["Thanks to"] = {name: f"{name} ({count})" for name, count in people.items()}
    total = sum(people.values())
    older = f", of which the newest {len(commits)} are here" if total > len(commits) else ""
    head = [f"# {wish.title or f'Changes {reach}'}", f"Commits {reach}: {total}{older}.", *wish.notes]
    texts = ["\n\n".join([*head, *sections(lists, most)]) + "\n" for most in (MOST_COMMITS, 40, 15, 5)]
    return next((text for text in texts if len(text) <= LONGEST_NOTES), texts[-1])


def sections(lists: dict[str, dict[str, str]], most: int) -> Iterator[str]:
    """Each list that is not empty under its heading, with at most so many lines."""
    for heading, lines in lists.items():
        shown = list(lines.values())[:most] + ([f"… and {len(lines) - most} more"] if len(lines) > most else [])
        if shown:
            yield f"## {heading}\n\n" + "\n".join(f"- {line}" for line in shown)


async def target_problem(path: str, overwrite: bool = False) -> str:
    """Why the notes cannot go into `path`; empty when they can."""
    is_there = os.access(path, os.F_OK)
    place = Path(path) if is_there else Path(path).parent
    if not os.access(place, os.W_OK):
        return f"{place} is missing or read-only; name a file in another folder"
    if is_there and not overwrite and await git("status", "--porcelain", "--", path):
        return f"{path} has changes that are not committed; commit them, name another file, or say overwrite"
    return ""


check_target = tool(target_problem, name="check_target", **READ)


@tool(effects=SideEffect.WRITE)
async def write_notes(path: str, text: str, overwrite: bool = False) -> str:
    """Write the notes to a file, in place of what it held."""
    if problem := await target_problem(path, overwrite):  # looked at again: approvals take time and may change the path
        raise NotesError(problem)
    size = await asyncio.to_thread(Path(path).write_bytes, text.encode())
    return f"{path} ({size} bytes)"


# ── The plan: written as if each decision were carried out at once ──────────────────────────────────────────────────

Story: TypeAlias = Generator[Decision, Any, None]  # is sent what came of each decision, or thrown a NotesError
AREAS = "Count the changed lines by area"


class ReleaseNotesPlanner:
    """Tells the story of a run up to the first decision that was not carried out yet: the next one.

    It keeps nothing, so it serves every run. What is said later makes only those decisions anew that depend on it.
    """

    async def next(self, run: RunContext) -> Decision:
        steps = run.trajectory.steps if run.trajectory else []
        if run.control.cancelled:
            return Finish(FinishReason.CANCELLED, "Stopped.")
        written = [step.observation for step in steps if getattr(step.action, "tool", "") == "write_notes"]
        if written and isinstance(written[-1], str):
            return Finish(FinishReason.GOAL, f"Wrote {written[-1]}.")
        story = (areas_story if run.goal.startswith(AREAS) else notes_story)(wish_of(run))
        try:
            decision = next(story)
            while seen := [step.observation for step in steps if step.action == decision]:
                decision = told(story, seen[-1])
        except NotesError as error:
            return Finish(FinishReason.NO_PATH, str(error))
        return decision


def told(story: Story, seen: Any) -> Decision:
    """The story's next decision, once it knows what came of the last one."""
    match parallel_observation(seen) or seen:
        case ParallelObservation(branches):
            errors = [branch.error for branch in branches if branch.error]
            seen = [branch.value for branch in branches]
        case {"error": str(error)}:
            errors = [error]
        case _:
            errors = []
    return story.throw(NotesError(errors[0].rpartition(" invoke: ")[2])) if errors else story.send(seen)


def call(name: str, **args: Any) -> CallTool:
    """The decision to call a tool."""
    return CallTool(name, msgspec.json.encode(args))


def notes_story(wish: Wish) -> Story:
    """Read four things at once, count in the background, draft, and write what was approved."""
    names = ("reach", "commits", "contributors", "busiest_files")
    reach, commits, people, files = yield CallParallel(tuple(call(name, since=wish.since) for name in names))
    if not commits:
        yield Finish(FinishReason.GOAL, f"Nothing to tell: there are no commits {reach}.")
    counting = yield SpawnTask(spec=SpawnSpec(query=f"{AREAS} since {wish.since}" if wish.since else AREAS))
    problem = yield call("check_target", path=wish.path, overwrite=wish.overwrite)
    counted = yield AwaitTask(counting["task_id"])
    areas = msgspec.json.decode(counted["result"]["answer"]) if counted["status"] == "complete" else {}
    text = yield call("draft", reach=reach, commits=commits, people=people, files=files, areas=areas, wish=wish)
    if problem:
        yield Finish(FinishReason.CONSTRAINTS_CONFLICT, f"Nothing was written: {problem}.\n\n{text}")
    try:
        yield call("write_notes", path=wish.path, text=text, overwrite=wish.overwrite)
    except NotesError as error:
        order = ORDER.fullmatch(str(error).partition(" was rejected: ")[2])  # no, but …
        if order and (better := obeyed(wish, order)) != wish:
            yield from notes_story(better)
        how = FinishReason.GOAL if "was rejected" in str(error) else FinishReason.CONSTRAINTS_CONFLICT
        yield Finish(how, f"Nothing was written: {error}.\n\n{text}")


def areas_story(wish: Wish) -> Story:
    """Read the patches and count them page by page; what is too large to be shown comes back as an artifact."""
    log = yield call("patch_log", since=wish.since)
    source = {"log": log} if isinstance(log, str) else {"log": log["artifact_ref"], "by_ref": True}
    areas, start = Counter[str](), 0
    while start is not None:
        page, start = yield call("count_areas", start=start, **source)
        areas.update(page)
    yield Finish(FinishReason.GOAL, msgspec.json.encode(areas).decode())


def check() -> None:
    """Say at once, and in git's own words, why there is no history here."""
    try:
        found = subprocess.run(["git", "log", "-1"], capture_output=True, text=True, errors="replace", check=False)
    except FileNotFoundError:
        raise AgentNotReadyError("git is not installed; this agent reads the history with it") from None
    if found.returncode:
        why = plain(found.stderr, 300)
        raise AgentNotReadyError(f"no history in {Path.cwd()} ({why}); start this agent in a clone that has commits")


agent = Agent(
    name="release-notes",
    description="Drafts release notes from the git history of this folder",
    planner=ReleaseNotesPlanner(),
    tools=[reach, commits, contributors, busiest_files, patch_log, count_areas, draft, check_target, write_notes],
    approvals={"write_notes": AlwaysDeny("read the notes before they replace a file")},
    check=check,
)
