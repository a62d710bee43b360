"""The conversation between a person and a run: shows questions, sends answers and controls.

Acts on the run through its handle and writes to the screen. `answers` parses typed lines, `questions` renders
questions. Without a terminal a kept run is left waiting for its answers; those of any other are rejected.
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
    Acted,
    Answer,
    Approve,
    Cancel,
    Cost,
    Edit,
    Empty,
    Help,
    Inject,
    Invalid,
    Leave,
    Message,
    Mode,
    ParsedLine,
    Pause,
    Prioritize,
    Redirect,
    Reject,
    Resume,
    Retry,
    Show,
    Waiting,
    parse_arguments,
    parse_line,
)
from harborage.cli.folding import layout
from harborage.cli.handles import LENGTH
from harborage.cli.journal_view import View, run_of
from harborage.cli.keyboard import EditorError, edit_text, editor_command
from harborage.cli.pane import is_long
from harborage.cli.questions import (
    Question,
    QuestionQueue,
    is_approval,
    is_interrupted_call,
    pane_of,
    question_of,
    render_reminder,
    render_scrolled,
    render_with_keys,
    shown_args,
)
from harborage.cli.rows import Row
from harborage.cli.text import compact, one_line, plural, pretty, wrapped
from harborage.cli.view import current_activity, render_totals
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
    from harborage.cli.block import Folds
    from harborage.cli.keyboard import Keyboard
    from harborage.cli.screen import Screen
    from harborage.clock import Clock
    from harborage.identity import Quadruple
    from harborage.runtime.host import Runtime
    from harborage.runtime.run import Run

_ANSWERS = frozenset({"APPROVE", "REJECT", "RESUME"})
_AT_MODEL = frozenset({"thinking", "writing"})
_NO_TERMINAL = "there is no terminal to ask a person in"


class Conversation:
    """The conversation about one run and its tasks.

    `approves` approves whatever needs approval, `rejects` rejects it; other questions are still asked. `previews` show
    what a call would change. `has_model` says that the planner asks a model, whose answer a cancel need not wait for.
    `leave` leaves a kept run. `folds` are the steps of a run that is shown in few lines. `refused` are the subjects of
    the calls that were rejected without asking a person.
    """

    def __init__(
        self,
        runtime: Runtime,
        run: Run,
        view: View,
        *,
        screen: Screen,
        queue: QuestionQueue,
        keyboard: Keyboard | None,
        approves: bool,
        rejects: bool = False,
        clock: Clock,
        previews: Mapping[str, Preview] = MappingProxyType({}),
        has_model: bool = False,
        leave: Callable[[], None] | None = None,
        folds: Folds | None = None,
    ) -> None:
        self.is_editor_open = False
        self.refused: list[str] = []
        self._runtime = runtime
        self._run = run
        self._view = view
        self._screen = screen
        self._queue = queue
        self._keyboard = keyboard
        self._approves = approves
        self._rejects = rejects
        self._unasked: dict[str, Question] = {}
        self._clock = clock
        self._previews = previews
        self._has_model = has_model
        self._leave = leave
        self._folds = folds
        self._drafts: dict[str, str] = {}
        self._sent: dict[str, Question] = {}
        self._unsent = ""

    @property
    def unasked(self) -> list[Question]:
        """The open questions of a kept run that no person at this terminal can be asked."""
        return list(self._unasked.values())

    async def handle_event(self, event: Event) -> None:
        """Open and close questions as events of pauses and approvals come."""
        try:
            await self._handle_event(event)
        except HarborageError as error:
            self._say(f"failed: {error}", "red")

    async def _handle_event(self, event: Event) -> None:
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
                await self.reload_questions()
            case _:
                pass

    async def handle_line(self, line: str, token: str) -> None:
        """Act on a line that was typed while the question of this token was shown; "" when none was.

        A line that was finished before a question could be read never answers it.
        """
        question = self._queue.current
        if token != self._queue.token:
            await self._handle_late(line, token)
            return
        shown, schema = (None, None) if question is None else (question.args, question.args_schema)
        typed = parse_line(line, self._queue.mode, shown, schema)
        is_kept_in_view = self._folds is not None and isinstance(typed, Message)
        if not is_kept_in_view and self._keyboard is not None and not self._keyboard.is_echoing and typed != Empty():
            self._show(Text.assemble(("› ", "cyan"), one_line(line, 1000)))
        try:
            await self._act(typed, question, line)
        except HarborageError as error:
            self._say(f"failed: {error}", "red")

    async def _handle_late(self, line: str, token: str) -> None:
        if token:
            self._say(f"that question is closed; not sent: {line}", "yellow")
            return
        try:
            await self._act(parse_line(line, Mode.FREE), None, line)
        except HarborageError as error:
            self._say(f"failed: {error}", "red")

    async def cancel(self, *, is_hard: bool) -> None:
        """Cancel the run, and say what happens now."""
        if is_hard:
            self._say("cancelling now; Ctrl-C again leaves without waiting", "yellow")
        elif self._has_model and current_activity(self._view)[0] in _AT_MODEL and not len(self._queue):
            is_hard = True  # only the model is at work, and its answer would be dropped
            self._say("cancelling now; the model's answer is dropped", "yellow")
        elif self._view.main.pause_reason:
            self._say("cancelling the paused run", "yellow")
        else:
            first = "the open question is withdrawn, " if len(self._queue) else ""
            self._say(f"cancelling: {first}the planner gets one more step; Ctrl-C again stops it now", "yellow")
        try:
            await self._run.cancel(hard=is_hard)
        except HarborageError as error:
            self._say(f"failed: {error}", "red")

    async def _open(self, token: str, who: Quadruple, announced: ToolApprovalRequestedPayload | None) -> None:
        pause = await self._runtime.pauses.status(token, who=who)
        # The pause of a call that needs approval opens before answers are accepted; an event announces when they are.
        if not pause.is_paused or (announced is None and is_approval(pause)):
            return
        label = "" if who.run_id == self._run.id else run_of(self._view, who.run_id).label
        question = question_of(pause, label)
        if question is not None and self._queue.has_seen(question.token):
            return  # a resumed run announces its question again
        if question is not None and announced is not None:
            args = shown_args(announced.args_summary)
            question = msgspec.structs.replace(question, args=args, change=await self._change(question.tool, args))
        if question is not None:
            await self._ask(question)

    async def _change(self, tool: str, args: Any) -> Change | None:
        preview = self._previews.get(tool)
        if preview is None or not isinstance(args, Mapping) or self._keyboard is None:
            return None
        try:
            return await preview(args)
        except Exception as error:  # noqa: BLE001 - shown; the question has all that the answer is about
            self._say(f"the change cannot be shown: {error}", "yellow")
            return None

    async def reload_questions(self, unrelated: AbstractSet[str] = frozenset()) -> None:
        """Show the open questions whose events were dropped, or published before this process subscribed.

        `unrelated` are other runs of the session.
        """
        page = await self._runtime.pauses.list(PauseFilter(sessions=(self._run.who.session_id,)), who=self._run.who)
        for pause in reversed(page.rows):
            if pause.identity.run_id in unrelated:
                continue
            seen = run_of(self._view, pause.identity.run_id)
            if not (is_approval(pause) or is_interrupted_call(pause)):
                seen.pause_reason = str(pause.reason)
            question = question_of(pause, seen.label)
            if question is not None and not self._queue.has_seen(question.token):
                change = await self._change(question.tool, question.args) if is_approval(pause) else None
                await self._ask(msgspec.structs.replace(question, change=change))

    async def _ask(self, question: Question) -> None:
        if self._approves and question.takes_yes_or_no:
            await self._send_answer(question, Approve("by --yes"))
        elif self._rejects and question.takes_yes_or_no:
            await self._reject_unasked(question, "by --no")
        elif self._keyboard is None and self._leave is not None:
            self._unasked[question.token] = question
        elif self._keyboard is None:
            await self._reject_unasked(question, _NO_TERMINAL)
        elif self._queue.add(question):
            self._show_question(question)
        else:
            self._say(f"{plural(len(self._queue), 'question')} open; answer this one first", "yellow")

    async def _reject_unasked(self, question: Question, why: str) -> None:
        if self._queue.has_seen(question.token):
            return
        self._queue.close(question.token)
        if not question.is_interrupted:
            self.refused.append(question.subject)
        if self._keyboard is None and not self._rejects:
            self._show(Text(f"harborage: {_unasked_text(question)}", style="yellow"))
        await self._send_answer(question, Reject(why))

    async def _offer_again(self, who: Quadruple, code: str) -> None:
        """Show the questions of a run again whose answers from here were not counted."""
        for question in [one for one in self._sent.values() if one.run_id == who.run_id]:
            if not (await self._runtime.pauses.status(question.token, who=who)).is_paused:
                continue
            del self._sent[question.token]
            why = "the tool does not take these arguments" if code == "payload_invalid" else code.replace("_", " ")
            self._say(f"your answer was not counted: {why}", "yellow")
            if self._queue.reopen(question):
                self._show_question(question)

    def _close(self, token: str) -> None:
        self._unasked.pop(token, None)
        question, pane = self._queue.current, self._queue.pane
        if not self._queue.close(token):
            return
        if pane is not None and question is not None:
            self._show(*render_scrolled(question, pane, self._screen.width))
        self._show_next()

    def _show_next(self) -> None:
        question = self._queue.current
        if question is not None:
            self._show_question(question)
        elif self._keyboard is not None:
            self._keyboard.editor.fill(self._unsent)
            self._unsent = ""

    def _show_question(self, question: Question) -> None:
        """Show a question; what the person was typing then is no part of the answer, and is kept for later."""
        if self._keyboard is not None and self._keyboard.editor.text:
            self._unsent = self._keyboard.editor.text
            self._keyboard.editor.fill("")
        now = self._clock.now()
        lines = render_with_keys(question, now, self._screen.width)
        if self._keyboard is not None and is_long(lines, self._screen.height):
            self._queue.pane = pane_of(question, now)
        else:
            self._show(*lines)

    async def _act(self, typed: ParsedLine, question: Question | None, line: str) -> None:
        match typed:
            case Message(text):
                await self._run.message(text)
                if self._folds is not None:
                    self._folds.sent.append(text)
            case Show(step):
                self._show_steps(step)
            case Cost():
                self._say(render_totals(self._view, self._seconds()))
            case Waiting():
                self._list_waiting()
            case Pause():
                await self._run.pause()
                self._say("pausing at its next step")
            case Resume():
                await self._run.resume()
            case Cancel(is_hard):
                await self.cancel(is_hard=is_hard)
            case Leave() if self._leave is not None:
                self._leave()
            case Leave():
                self._say("this run is not kept, so leaving would lose it; /cancel ends it", "yellow")
            case Redirect(goal):
                await self._run.redirect(goal)
            case Inject(context):
                await self._run.inject(context)
            case Prioritize(priority):
                await self._run.prioritize(priority)
            case Help():
                self._help()
            case Invalid(message):
                self._say(message, "yellow")
                if self._queue.is_editing and self._keyboard is not None:
                    self._keyboard.editor.fill(line)
            case Empty():
                self._ask_again(question)
            case Edit():
                await self._edit(question)
            case Approve(args=None) if self._queue.pane is not None and not self._queue.pane.is_read:
                self._say(self._queue.pane.unread, "yellow")
            case Approve() | Reject() | Answer() | Retry() | Acted():
                if question is not None:
                    await self._send_answer(question, typed)
            case _ as unreachable:
                assert_never(unreachable)

    async def _send_answer(self, question: Question, answer: Approve | Reject | Answer | Retry | Acted) -> None:
        """Send an answer to the run that waits for it, and show the next question."""
        run = self._run
        if question.run_id != run.id:
            run = await self._runtime.run(question.run_id, who=run.who.identity)
        token = question.token
        match answer:
            case Approve(reason, args, remember):
                await run.approve(token, reason=reason, args=args, remember=remember)
            case Reject(reason):
                await run.reject(reason, token=token)
            case Answer(message):
                if misfit := question.misfit(message):
                    self._say(misfit, "yellow")
                    return
                await run.resume({"token": token, "message": message})
            case Retry():
                await run.approve(token)
            case Acted(result):
                await run.resume({"token": token, "acted": True, "result": result})
            case _ as unreachable:
                assert_never(unreachable)
        if self._keyboard is not None and not self._approves:
            self._sent[question.token] = question
        self._close(question.token)

    def _ask_again(self, question: Question | None) -> None:
        self._queue.is_editing = False
        if question is not None and self._queue.pane is None:
            self._show(*render_reminder(question, self._screen.width))

    async def _edit(self, question: Question | None) -> None:
        if question is None or self._keyboard is None:
            return
        command = editor_command(os.environ)
        if command:
            await self._edit_outside(question, self._keyboard, command)
            return
        self._queue.is_editing = True
        self._keyboard.editor.fill(compact(question.args))
        self._say("edit the arguments and press Enter; an empty line keeps them")

    async def _edit_outside(self, question: Question, keyboard: Keyboard, command: list[str]) -> None:
        before = self._drafts.get(question.token) or pretty(question.args)
        self.is_editor_open = True
        try:
            with keyboard.suspended() as stdin, self._screen.suspended():
                after = await edit_text(command, before, suffix=".json", stdin=stdin)
        except EditorError as error:
            self._say(str(error), "red")
            self._ask_again(question)
            return
        finally:
            self.is_editor_open = False
        self._drafts[question.token] = after
        answer = parse_arguments(after, question.args, question.args_schema)
        if isinstance(answer, Approve):
            await self._send_answer(question, answer)
        else:
            self._say(answer.message, "yellow")
            self._ask_again(question)

    def _show_steps(self, step: str) -> None:
        """Print the steps that have ended once more, or one of them."""
        ended = [] if self._folds is None else self._folds.ended
        found = [row for row in ended if isinstance(row, Row) and (not step or row.tag.split(".")[0] == step)]
        if not found:
            self._say(f"no step {step} has ended here" if step else "no step has ended here", "yellow")
        self._show(*layout(found, self._screen.width))
        if step and found:
            self._say(f"in full: harborage runs show {self._run.id[-LENGTH:]}/{step}")

    def _list_waiting(self) -> None:
        questions = [*self._queue]
        needs = "needs" if len(questions) == 1 else "need"
        self._say(
            f"{plural(len(questions), 'item')} of this run {needs} a person" if questions else "nothing needs you"
        )
        self._show(*(Text(f"  {one.subject}{_label(one)}  {one.command}") for one in questions))

    def _seconds(self) -> float:
        began = self._view.main.began
        return 0.0 if began is None else (self._clock.now() - began).total_seconds()

    def _help(self) -> None:
        width = max(len(what) for what, _ in HELP)
        for what, does in HELP:
            first, *more = wrapped(does, max(16, self._screen.width - width - 4))
            self._show(Text.assemble("  ", (f"{what:{width}}", "cyan"), f"  {first}"))
            self._show(*(Text(f"{'':{width + 4}}{row}") for row in more))

    def _say(self, text: str, style: str = "blue") -> None:
        self._show(Text.assemble(("» ", style), one_line(text, 1000)))

    def _show(self, *lines: Text) -> None:
        self._screen.show(lines, is_urgent=True)


def _unasked_text(question: Question) -> str:
    """What happens to a question that no person can be asked, and what to do about it."""
    subject = f"{question.subject}{_label(question)}"
    if question.is_interrupted:
        return f"{subject} may have acted; {_NO_TERMINAL}, so its outcome stays unknown; run in a terminal"
    what = "needs your approval" if question.tool else "waits for an answer"
    way = "run in a terminal, or with --yes" if question.takes_yes_or_no else "run in a terminal"
    return f"{subject} {what}; {_NO_TERMINAL}, so it was rejected; {way}"


def _label(question: Question) -> str:
    return f" ({question.label})" if question.label else ""
