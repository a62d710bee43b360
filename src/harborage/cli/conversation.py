"""What is said between a person and a run: questions put and answered, lines acted upon, and what to do with nobody.

Acts on the run through its handle and writes to the screen. What a line means is decided in `answers`, what is asked
in `questions`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, assert_never

import msgspec
from rich.text import Text

from harborage.cli.answers import (
    HELP,
    Again,
    Allow,
    Answer,
    Cancel,
    Done,
    Edit,
    Go,
    Help,
    Inject,
    Leave,
    Mode,
    Nothing,
    Prioritize,
    Redirect,
    Refuse,
    Say,
    Stop,
    Typed,
    Wrong,
    edited,
    meaning,
)
from harborage.cli.keyboard import EditorError, edit_text, editor_command
from harborage.cli.questions import Desk, Question, announced_args, is_doubt, is_gate, put, put_again, question_of
from harborage.cli.text import compact, one_line, plural, pretty
from harborage.cli.view import doing
from harborage.cli.view_state import View, run_of
from harborage.errors import HarborageError
from harborage.events import (
    BusDroppedPayload,
    ControlLifecyclePayload,
    Event,
    PauseRequestedPayload,
    PauseResumedPayload,
    ToolApprovalRequestedPayload,
    ToolApprovedPayload,
    ToolRejectedPayload,
)
from harborage.runtime.pauses import PauseFilter

if TYPE_CHECKING:
    from harborage.app import Change, Preview
    from harborage.cli.keyboard import Keyboard
    from harborage.cli.screen import Screen
    from harborage.clock import Clock
    from harborage.identity import Quadruple
    from harborage.runtime.host import Run, Runtime

__all__ = ["Conversation"]

_ANSWERS = frozenset({"APPROVE", "REJECT", "RESUME"})
_ASKING = frozenset({"thinking", "writing"})
_NOBODY = "nobody could be asked: there was no terminal"


class Conversation:
    """The conversation about one run and its tasks. Without a keyboard nobody can be asked.

    `approves` answers yes to whatever a yes answers; what needs more than that is still asked. `previews` show what a
    call would change. `has_model` says that a model decides, whose answer need not be waited for. `leave` leaves a run
    that is kept. `unasked` is what was refused because there was no terminal to ask at.
    """

    def __init__(
        self,
        runtime: Runtime,
        run: Run,
        view: View,
        *,
        screen: Screen,
        desk: Desk,
        keyboard: Keyboard | None,
        approves: bool,
        clock: Clock,
        previews: Mapping[str, Preview] = MappingProxyType({}),
        has_model: bool = False,
        leave: Callable[[], None] | None = None,
    ) -> None:
        self.is_away = False
        self.unasked: list[str] = []
        self._runtime = runtime
        self._run = run
        self._view = view
        self._screen = screen
        self._desk = desk
        self._keyboard = keyboard
        self._approves = approves
        self._clock = clock
        self._previews = previews
        self._has_model = has_model
        self._leave = leave
        self._drafts: dict[str, str] = {}
        self._sent: dict[str, Question] = {}
        self._unsent = ""

    async def notice(self, event: Event) -> None:
        """Open and close questions as an event tells."""
        try:
            await self._notice(event)
        except HarborageError as error:
            self._say(f"not done: {error}", "red")

    async def _notice(self, event: Event) -> None:
        match event.payload:
            case ToolApprovalRequestedPayload(pause_token=token) as asked:
                await self._open(token, event.identity, asked)
            case PauseRequestedPayload(token=token):
                await self._open(token, event.identity, None)
            case (
                ToolApprovedPayload(pause_token=token)
                | ToolRejectedPayload(pause_token=token)
                | PauseResumedPayload(token=token)
            ):
                self._sent.pop(token, None)
                self._close(token)
            case ControlLifecyclePayload(outcome="failed", type=control, err=code) if control in _ANSWERS:
                await self._offer_again(event.identity, code)
            case BusDroppedPayload():
                await self.look_again()
            case _:
                pass

    async def hear(self, line: str, asked: str) -> None:
        """Act on a line that was typed while the question of token `asked` was put; '' when none was.

        A line that was finished before a question could be read never answers it.
        """
        question = self._desk.current
        if asked != self._desk.token:
            await self._hear_late(line, asked)
            return
        shown, schema = (None, None) if question is None else (question.args, question.args_schema)
        typed = meaning(line, self._desk.mode, shown, schema)
        if self._keyboard is not None and not self._keyboard.is_echoing and not isinstance(typed, Nothing):
            self._show(Text.assemble(("› ", "cyan"), one_line(line, 1000)))
        try:
            await self._act(typed, question, line)
        except HarborageError as error:
            self._say(f"not done: {error}", "red")

    async def _hear_late(self, line: str, asked: str) -> None:
        if asked:
            self._say(f"that question is closed; not sent: {line}", "yellow")
            return
        try:
            await self._act(meaning(line, Mode.FREE), None, line)
        except HarborageError as error:
            self._say(f"not done: {error}", "red")

    async def cancel(self, *, is_hard: bool) -> None:
        """End the run, and say what happens now."""
        if is_hard:
            self._say("stopping at once; Ctrl-C once more leaves without waiting", "yellow")
        elif self._has_model and doing(self._view)[0] in _ASKING and not len(self._desk):
            is_hard = True  # nothing is under way but an answer, which would be thrown away
            self._say("cancelling; what the model was about to say is dropped", "yellow")
        elif self._view.main.held:
            self._say("cancelling the parked run", "yellow")
        else:
            first = "the open question is taken back, " if len(self._desk) else ""
            self._say(f"cancelling: {first}the planner gets one more step; Ctrl-C again stops at once", "yellow")
        try:
            await self._run.cancel(hard=is_hard)
        except HarborageError as error:
            self._say(f"not done: {error}", "red")

    async def _open(self, token: str, who: Quadruple, announced: ToolApprovalRequestedPayload | None) -> None:
        pause = await self._runtime.pauses.status(token, who=who)
        # A gated call's pause is there before its gate can hear an answer; the gate says when it can.
        if not pause.is_paused or (announced is None and is_gate(pause)):
            return
        label = "" if who.run_id == self._run.id else run_of(self._view, who.run_id).label
        question = question_of(pause, label)
        if question is not None and self._desk.knows(question.token):
            return  # a run that comes back to where it waits asks again
        if question is not None and announced is not None:
            args = announced_args(announced.args_summary)
            question = msgspec.structs.replace(question, args=args, change=await self._change(question.tool, args))
        if question is not None:
            await self._ask(question)

    async def _change(self, tool: str, args: Any) -> Change | None:
        preview = self._previews.get(tool)
        if preview is None or not isinstance(args, Mapping) or self._keyboard is None:
            return None
        try:
            return await preview(args)
        except Exception as error:  # noqa: BLE001 - told; the question itself has all that is decided about
            self._say(f"what it would change cannot be shown: {error}", "yellow")
            return None

    async def look_again(self, strangers: AbstractSet[str] = frozenset()) -> None:
        """Ask the coordinator what is open: events that told of it were lost, or told before anybody listened here.

        `strangers` are runs of this session with which the conversation has nothing to do.
        """
        page = await self._runtime.pauses.list(PauseFilter(sessions=(self._run.who.session_id,)), who=self._run.who)
        for pause in reversed(page.rows):
            if pause.identity.run_id in strangers:
                continue
            seen = run_of(self._view, pause.identity.run_id)
            if not (is_gate(pause) or is_doubt(pause)):
                seen.held = str(pause.reason)
            question = question_of(pause, seen.label)
            if question is not None and not self._desk.knows(question.token):
                change = await self._change(question.tool, question.args) if is_gate(pause) else None
                await self._ask(msgspec.structs.replace(question, change=change))

    async def _ask(self, question: Question) -> None:
        if self._approves and question.wants_yes_or_no:
            await self._settle(question, Allow("by --yes"))
        elif self._keyboard is None:
            await self._turn_away(question)
        elif self._desk.add(question):
            self._put(question)
        else:
            self._say(f"{plural(len(self._desk), 'question')} open; this one first", "yellow")

    async def _turn_away(self, question: Question) -> None:
        if self._desk.knows(question.token):
            return
        self._desk.close(question.token)
        if not question.is_doubt:
            self.unasked.append(question.subject)
        self._show(Text(f"harborage: {_turned_away(question)}", style="yellow"))
        await self._settle(question, Refuse(_NOBODY))

    async def _offer_again(self, who: Quadruple, code: str) -> None:
        """Put the questions of a run again that were answered here with an answer that did not count."""
        for question in [one for one in self._sent.values() if one.run_id == who.run_id]:
            if not (await self._runtime.pauses.status(question.token, who=who)).is_paused:
                continue
            del self._sent[question.token]
            why = "the tool does not take these arguments" if code == "payload_invalid" else code.replace("_", " ")
            self._say(f"that answer did not count: {why}", "yellow")
            if self._desk.reopen(question):
                self._put(question)

    def _close(self, token: str) -> None:
        if self._desk.close(token):
            self._put_next()

    def _put_next(self) -> None:
        question = self._desk.current
        if question is not None:
            self._put(question)
        elif self._keyboard is not None:
            self._keyboard.editor.fill(self._unsent)
            self._unsent = ""

    def _put(self, question: Question) -> None:
        """Put a question; what somebody was typing when it came is no part of the answer, and waits."""
        if self._keyboard is not None and self._keyboard.editor.text:
            self._unsent = self._keyboard.editor.text
            self._keyboard.editor.fill("")
        self._show(*put(question, self._clock.now(), self._screen.width))

    async def _act(self, typed: Typed, question: Question | None, line: str) -> None:
        match typed:
            case Say(text):
                await self._run.message(text)
            case Stop():
                await self._run.pause()
                self._say("parks at its next step")
            case Go():
                await self._run.resume()
            case Cancel(is_hard):
                await self.cancel(is_hard=is_hard)
            case Leave() if self._leave is not None:
                self._leave()
            case Leave():
                self._say("this run is kept nowhere, so leaving would lose it; /cancel ends it", "yellow")
            case Redirect(goal):
                await self._run.redirect(goal)
            case Inject(context):
                await self._run.inject(context)
            case Prioritize(priority):
                await self._run.prioritize(priority)
            case Help():
                self._help()
            case Wrong(message):
                self._say(message, "yellow")
                if self._desk.is_editing and self._keyboard is not None:
                    self._keyboard.editor.fill(line)
            case Nothing():
                self._ask_again(question)
            case Edit():
                await self._edit(question)
            case Allow() | Refuse() | Answer() | Again() | Done():
                if question is not None:
                    await self._settle(question, typed)
            case _ as unreachable:
                assert_never(unreachable)

    async def _settle(self, question: Question, answer: Allow | Refuse | Answer | Again | Done) -> None:
        """Send an answer to the run that waits for it; the next question is put when this one is closed."""
        run = self._run
        if question.run_id != run.id:
            run = await self._runtime.run(question.run_id, who=run.who.identity)
        token = question.token if question.tool else ""
        match answer:
            case Allow(reason, args):
                await run.approve(token, reason=reason, args=args)
            case Refuse(reason):
                await run.reject(token, reason=reason)
            case Answer(message):
                await run.resume({"message": message})
            case Again():
                await run.approve(token)
            case Done(result):
                await run.resume({"token": token, "acted": True, "result": result})
            case _ as unreachable:
                assert_never(unreachable)
        if self._keyboard is not None and not self._approves:
            self._sent[question.token] = question
        self._close(question.token)

    def _ask_again(self, question: Question | None) -> None:
        self._desk.is_editing = False
        if question is not None:
            self._show(*put_again(question, self._screen.width))

    async def _edit(self, question: Question | None) -> None:
        if question is None or self._keyboard is None:
            return
        command = editor_command(os.environ)
        if command:
            await self._edit_outside(question, self._keyboard, command)
            return
        self._desk.is_editing = True
        self._keyboard.editor.fill(compact(question.args))
        self._say("change the arguments and press Return; an empty line leaves them as they are")

    async def _edit_outside(self, question: Question, keyboard: Keyboard, command: list[str]) -> None:
        before = self._drafts.get(question.token) or pretty(question.args)
        self.is_away = True
        try:
            with keyboard.suspended() as stdin, self._screen.suspended():
                after = await edit_text(command, before, suffix=".json", stdin=stdin)
        except EditorError as error:
            self._say(str(error), "red")
            self._ask_again(question)
            return
        finally:
            self.is_away = False
        self._drafts[question.token] = after
        answer = edited(after, question.args, question.args_schema)
        if isinstance(answer, Allow):
            await self._settle(question, answer)
        else:
            self._say(answer.message, "yellow")
            self._ask_again(question)

    def _help(self) -> None:
        width = max(len(what) for what, _ in HELP)
        self._show(*(Text.assemble("  ", (f"{what:{width}}", "cyan"), f"  {does}") for what, does in HELP))

    def _say(self, text: str, style: str = "blue") -> None:
        self._show(Text.assemble(("» ", style), one_line(text, 1000)))

    def _show(self, *lines: Text) -> None:
        self._screen.show(lines, is_urgent=True)


def _turned_away(question: Question) -> str:
    """What becomes of a question where nobody sits, and what to do about that."""
    whose, way = f"{question.subject}{_whose(question)}", "run it in a terminal"
    if question.is_doubt:
        return f"nobody knows what became of {whose}, and nobody can be asked here: left unknown; {way}"
    if question.wants_yes_or_no:
        way = f"{way}, or with --yes"
    what = "needs your approval" if question.tool else "waits for an answer"
    return f"{whose} {what}, and nobody can be asked here: refused; {way}"


def _whose(question: Question) -> str:
    return f" ({question.label})" if question.label else ""
