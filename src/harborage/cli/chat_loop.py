"""A conversation in the terminal: a prompt for each message, and the run that answers it as a session of its own.

What was said is in the memory of the conversation, so one that was left, or that a kill cut, goes on in a new process.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
from rich.text import Text

from harborage.app import Agent, assistant, load_agent
from harborage.app.attachments import read_attachment
from harborage.app.project import Origin, remember_started
from harborage.cli.conversations import Exchange, Talk, find_talk, said_before_last, spent_in, without_last
from harborage.cli.execution import error_ending, exit_after_grace, make_importable, show_run, signed_in_user
from harborage.cli.open_session import SessionOptions
from harborage.cli.output import Output, OutputLostError, Style
from harborage.cli.pending import pending
from harborage.cli.prompt import MessageEditor, read_message, read_piped_message
from harborage.cli.status import CANCELLED, REACHED, WAITING, WRONG_USE
from harborage.cli.storage import WrongUseError, artifacts_folder, is_memory
from harborage.cli.text import count, money, one_line, plural, wrapped
from harborage.errors import HarborageError
from harborage.identity import Identity
from harborage.ids import new_id

if TYPE_CHECKING:
    from harborage.cli.keyboard import LineEditor
    from harborage.store import RunRow

_SHOWN: Final = 3
_SHORT: Final = 6
_COMMANDS: Final = (
    ("/attach FILE", "give the next message a file"),
    ("/model NAME", "ask another model from the next message on"),
    ("/resume [SESSION]", "go on with the last conversation, or with a named one"),
    ("/new", "begin a new conversation"),
    ("/undo", "take the last message and its answer back; what its calls did stays done"),
    ("/copy", "copy the last answer to the clipboard of the terminal"),
    ("/show", "show what was said in this conversation"),
    ("/pending", "list what waits for you"),
    ("/cost", "say what this conversation has cost"),
    ("@FILE", "in a message: give it the file; Tab completes its name"),
    ("/exit", "leave; the conversation is kept (also Ctrl-D)"),
    ("/help", "show this"),
)
_NAMES: Final = tuple(what.split()[0] for what, _ in _COMMANDS if what.startswith("/"))


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `harborage chat`; `goes_on` takes the last conversation with the agent."""

    target: str
    storage: str
    session: str = ""
    goes_on: bool = False
    model: str = ""
    approves: bool = False
    user: str = ""


def hold_chat(options: ChatOptions, style: Style) -> int:
    """Talk with the agent until the person leaves, or standard input ends; returns the exit code."""
    output = Output(style)
    try:
        if is_memory(options.storage):
            raise WrongUseError("a conversation must be kept; name another --storage than memory:")
        loop = ChatLoop(_agent(options.target), options, output, style)
        code = loop.hold()
        if loop.was_cancelled:
            exit_after_grace(output)  # a call that was cancelled may keep its thread
        return code
    except OutputLostError as error:
        return output.report_lost(error)
    except Exception as error:  # noqa: BLE001 - an agent's file may raise anything; it becomes one line
        return output.finish(error_ending(error, WRONG_USE, style))


def _agent(target: str) -> Agent:
    if not target:
        return assistant(Path.cwd())
    make_importable(target)
    return load_agent(target)


class ChatLoop:
    """The messages of a person and the answers of `agent`, in turn."""

    def __init__(self, agent: Agent, options: ChatOptions, output: Output, style: Style) -> None:
        self._agent = agent
        self._options = options
        self._output = output
        self._style = style
        self._user = options.user or signed_in_user()
        self._model = options.model
        self._files: list[Path] = []
        self._editor = MessageEditor()
        self._editor.on_key = complete_file
        self._queued: list[str] = []
        self._base: tuple[Exchange, ...] = ()
        self._talk = Talk(session="")
        self.was_cancelled = False

    def hold(self) -> int:
        """Hold the conversation; returns the exit code.

        Raises:
            HarborageError: there is no conversation to go on with.
        """
        remember_started(self._options.target, Path.cwd())
        self._take(self._find(self._options.session, is_new=not self._options.goes_on))
        code = REACHED
        while code == REACHED:
            if self._talk.live is not None:  # an answer that was cut, or that another terminal waits for, comes first
                code = self._answer("", self._talk.live)
                self._talk = msgspec.structs.replace(self._talk, live=None)
                continue
            text = self._read()
            if text is None:
                return REACHED
            if text.startswith("/") and not text.startswith("//"):
                try:
                    if self._command(text):
                        return REACHED
                except HarborageError as error:
                    self._say(str(error))
                continue
            if text.strip():
                code = self._answer(text.removeprefix("/") if text.startswith("//") else text, None)
        return code

    def _find(self, session: str, *, is_new: bool) -> Talk:
        """The conversation of this name, a new one, or the last one.

        Raises:
            WrongUseError: there is no last one.
        """
        if is_new and not session:
            return Talk(session=f"s-{new_id()[-_SHORT:].lower()}")
        found = asyncio.run(find_talk(self._options.storage, self._user, self._options.target, session))
        if found is None:
            raise WrongUseError("there is no conversation here to go on with; without --continue a new one begins")
        return found

    def _take(self, talk: Talk) -> None:
        """Go on with a conversation: say which, and show its last exchanges."""
        self._talk, self._base = talk, ()
        self._editor.recall_from([one.message for one in talk.said])
        since = f"{plural(len(talk.said), 'message')}" if talk.said or talk.live is not None else "new"
        self._say(f"{one_line(self._agent.name)} · session {one_line(talk.session)}, {since} · /help")
        self._show_said(talk.said[-_SHOWN:], earlier=len(talk.said[:-_SHOWN]))

    def _show_said(self, said: Sequence[Exchange], *, earlier: int = 0) -> None:
        if earlier:
            self._say(f"  {plural(earlier, 'earlier message')}: /show")
        for one in said:
            self._say(f"› {one_line(one.message, 1000)}")
            self._say(one.answer)

    def _read(self) -> str | None:
        """The next message, first one that was queued; None when there is none any more."""
        if self._queued:
            queued = self._queued.pop(0)
            self._say(f"› {one_line(queued, 1000)}")
            return queued
        if not self._output.can_ask:
            return read_piped_message()
        files = f" · with {', '.join(path.name for path in self._files)}" if self._files else ""
        hint = f"Enter sends · Alt-Enter new line · /help{files}"
        terminal = self._output.terminal()
        with asyncio.Runner() as runner:
            text = runner.run(read_message(terminal, self._editor, hint))
        if text is not None and text.strip() and not terminal.is_echoing:
            self._say("\n".join(f"{'› ' if not at else '  '}{row}" for at, row in enumerate(text.split("\n"))))
        return text

    def _answer(self, text: str, record: RunRow | None) -> int:
        """Show the run that answers; 0 also for an answer that failed or was cancelled while a person is there."""
        talk, target = self._talk, self._options.target
        origin = Origin(target=target, mark=f"session-{quote(talk.session, safe='')}", folder=str(Path.cwd()))
        options = SessionOptions(
            goal=text or (record.about if record is not None else ""),
            who=Identity("local", self._user, talk.session) if record is None else record.who,
            storage=self._options.storage,
            artifacts=artifacts_folder(self._options.storage, Path.cwd()),
            origin=origin if record is None else Origin.of(record.agent).whole,
            model=self._model,
            attached=(*self._files, *mentioned_files(text)),
            approves=self._options.approves,
            record=record,
            is_message=True,
            messages=talk.before if record is None else (),
        )
        code, run_id = show_run(self._agent, options, self._output, self._style, queued=self._queued)
        self.was_cancelled = self.was_cancelled or code == CANCELLED
        if run_id:
            self._files = []
        if code == WAITING or not self._output.can_ask:
            return code
        return REACHED

    def _command(self, text: str) -> bool:
        """Do what a line with a slash says; True when it leaves.

        Raises:
            HarborageError: a file, or a conversation, is not there.
        """
        name, _, rest = text.partition(" ")
        rest = rest.strip()
        match name:
            case "/exit" | "/quit":
                return True
            case "/help":
                self._help()
            case "/new":
                self._take(self._find("", is_new=True))
            case "/resume":
                self._take(self._find(rest, is_new=False))
            case "/show":
                self._take_again()
            case "/undo":
                self._undo()
            case "/copy":
                self._copy()
            case "/pending":
                pending(storage=self._options.storage)
            case "/cost":
                self._cost()
            case "/model" if rest:
                self._model = rest
                self._say(f"model {one_line(rest)} from the next message on")
            case "/attach" if rest:
                path = Path(os.path.expanduser(rest))
                read_attachment(path)  # what cannot be attached is refused now
                self._files.append(path)
                self._say(f"+ {one_line(path.name)}, goes with the next message")
            case "/attach" | "/model":
                self._say(f"{name} needs a {'file' if name == '/attach' else 'name'}; example: {dict(_EXAMPLES)[name]}")
            case _:
                near = get_close_matches(name, _NAMES, n=1)
                hint = f"did you mean {near[0]}?" if near else "all: /help; // begins a text with a slash"
                self._say(f"no command {one_line(name)} ({hint})")
        return False

    def _undo(self) -> None:
        """Go on in a conversation without the last exchange, whose message is offered again."""
        here, said = self._said()
        if not said:
            self._say("nothing was said so far")
            return
        if here:
            before = asyncio.run(said_before_last(self._options.storage, self._user, self._talk.session))
        else:
            before = without_last(self._talk.before)
        last, session = said[-1], f"s-{new_id()[-_SHORT:].lower()}"
        self._talk, self._base = Talk(session=session, before=before), said[:-1]
        self._say(f"undone: {one_line(last.message)} · session {session}; what its calls did stays done")
        self._editor.fill(last.message)

    def _copy(self) -> None:
        """Put the last answer into the clipboard, by the sequence that terminals have for that."""
        _, said = self._said()
        write = self._output.terminal().write
        if not said or write is None:
            self._say("nothing was said so far")
            return
        answer = said[-1].answer
        write(f"\x1b]52;c;{b64encode(answer.encode()).decode()}\x07")
        self._say(f"copied {plural(len(answer), 'character')}, if the terminal lets programs do so")

    def _said(self) -> tuple[bool, tuple[Exchange, ...]]:
        """Whether anything was said in this session, and all that was said in the conversation."""
        talk = asyncio.run(find_talk(self._options.storage, self._user, self._options.target, self._talk.session))
        here = () if talk is None else talk.said
        return bool(here), (*self._base, *here)

    def _cost(self) -> None:
        runs, tokens, cost = asyncio.run(spent_in(self._options.storage, self._user, self._talk.session))
        paid = f" · {money(cost)}" if money(cost) else ""
        self._say(f"{plural(runs, 'run')} · {count(tokens)} tokens{paid}")

    def _take_again(self) -> None:
        _, said = self._said()
        if not said:
            self._say("nothing was said so far")
        self._show_said(said)

    def _help(self) -> None:
        width = max(len(what) for what, _ in _COMMANDS)
        for what, does in _COMMANDS:
            self._say(f"  {what:{width}}  {does}")
        self._say("  While it answers, what you type is sent to the agent; /help then lists how else to steer it.")

    def _say(self, text: str) -> None:
        """Write lines beside the answers, wrapped by words."""
        screen = self._output.notes()
        screen.show([Text(row.rstrip()) for line in text.split("\n") for row in wrapped(line, max(20, screen.width))])


def mentioned_files(text: str) -> list[Path]:
    """Return the files that a message names by `@FILE`; what is no file stays a word."""
    names = (word[1:].rstrip(".,;:!?)") for word in text.split() if word.startswith("@") and len(word) > 1)
    paths = (Path(os.path.expanduser(name)) for name in dict.fromkeys(names) if name)
    return [path for path in paths if path.is_file()]


def complete_file(editor: LineEditor, key: str) -> bool:
    """Complete the name of a file behind an @ when Tab is pressed, as far as it is clear; False for any other key."""
    start = editor.text.rfind(" ", 0, editor.cursor) + 1
    word = editor.text[start : editor.cursor].rpartition("\n")[2]
    if key != "\t" or not word.startswith("@"):
        return False
    folder, _, begun = word[1:].rpartition("/")
    try:
        there = [*Path(os.path.expanduser(folder or ".")).iterdir()]
    except OSError:
        return True
    names = [f"{path.name}{'/' if path.is_dir() else ''}" for path in there if path.name.startswith(begun)]
    shown = [name for name in names if begun or not name.startswith(".")]
    if shown:
        rest = _common_start(shown)[len(begun) :]
        text, at = editor.text, editor.cursor
        editor.fill(f"{text[:at]}{rest}{text[at:]}")
        editor.cursor = at + len(rest)
    return True


def _common_start(names: Sequence[str]) -> str:
    """The characters with which all names begin."""
    least, most = min(names), max(names)
    same = next((at for at, char in enumerate(least) if most[at] != char), len(least))
    return least[:same]


_EXAMPLES: Final = (("/attach", "/attach receipt.png"), ("/model", "/model openai:gpt-5"))
