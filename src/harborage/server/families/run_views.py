"""The history of a run as it travels: without secrets, and with large values cut to a preview."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from harborage import codec
from harborage.events import RedactionFailedError, Redactor
from harborage.llm import ChatMessage, TextPart
from harborage.planner import CallParallel, CallTool, Decision, decision_kind
from harborage.protocol.wire import runs as wire
from harborage.protocol.wire.common import NO_TIME, WireIdentity, time_or_none
from harborage.runtime.effects.heavy import is_kept_summary
from harborage.runtime.history.model import CallMade, ChildSpawned, ModelAsked, StepTaken, Totals
from harborage.runtime.history.render import render_decision, shorten
from harborage.runtime.history.usage import usage_of
from harborage.runtime.loop.outcome import call_id

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.history.asking import Ask
    from harborage.runtime.history.overview import ControlRow, Overview, StepRow, Wait

PREVIEW_CHARS: Final = 160
CUT_CHARS: Final = 256
_JSON: Final = "application/json"
_WITHHELD: Final = "(withheld: it could not be redacted)"


class Shown(msgspec.Struct, frozen=True):
    """A value as it is shown: itself, or what stands for it; and whether something in it was masked."""

    value: Any = UNSET
    cut: wire.CutValue | UnsetType = UNSET
    is_masked: bool = False

    @property
    def either(self) -> Any:
        """The value, or what stands for it."""
        return self.value if isinstance(self.cut, UnsetType) else self.cut


class RunViews:
    """Turns a run's history into answers. `side_effect` says what a tool of a name does."""

    def __init__(
        self, redactor: Redactor, *, heavy_bytes: int, side_effect: Callable[[str], str], model: str = ""
    ) -> None:
        self._redactor = redactor
        self._heavy_bytes = heavy_bytes
        self._side_effect = side_effect
        self._model = model

    # ── Values ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def clean(self, value: Any) -> Any:
        """Return a value without secrets, and never one that could not be redacted."""
        try:
            return self._redactor.redact(value)
        except RedactionFailedError:
            return _WITHHELD

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        return str(self.clean(text)) if text else text

    def show(self, value: Any) -> Shown:
        """Return a value as it may be shown."""
        plain = codec.to_plain(value)
        if is_kept_summary(plain):
            return self._kept(plain)
        clean = self.clean(plain)
        encoded = codec.encode(clean)
        is_masked = clean != plain
        if len(encoded) <= self._heavy_bytes:
            return Shown(clean, is_masked=is_masked)
        text = clean if isinstance(clean, str) else encoded.decode()
        return Shown(cut=wire.CutValue(preview=text[:CUT_CHARS], bytes=len(encoded)), is_masked=is_masked)

    def _kept(self, summary: dict[str, Any]) -> Shown:
        """What stands for a value that the artifact store has."""
        preview, size = str(summary["preview"]), int(summary.get("size_bytes", 0))
        shown = self.text(preview)
        reference = wire.ReferenceOf(id=str(summary["artifact_ref"]), mime=_JSON, size=size)
        cut = wire.CutValue(preview=shown[:CUT_CHARS], bytes=size, artifact_ref=reference)
        return Shown(cut=cut, is_masked=shown != preview)

    # ── The run ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def header(self, run: Overview) -> wire.RunHeader:
        """Return the run as a whole."""
        history, row = run.history, run.row
        request = history.request
        fork = wire.StepOf(id=request.forked_from, step=request.forked_at)
        own = request.limits if request.limits is not None and not request.limits_of else None
        return wire.RunHeader(
            id=history.run_id,
            identity=WireIdentity.of(history.who),
            goal=self.text(history.goal),
            agent_name=row.agent or request.agent,
            model=self._model,
            status=str(row.status),
            condition=run.condition or UNSET,
            error_class=history.error or UNSET,
            started_at=history.started_at,
            ended_at=time_or_none(history.ended_at),
            active_ms=_ms(run.active),
            rehearsal=request.is_rehearsal,
            forked_from=fork if request.forked_from else UNSET,
            parent=_parent(run) if row.parent else UNSET,
            limits=wire.RunLimits(
                steps=(own.steps if own is not None else None) or request.max_steps or UNSET,
                calls=_set(None if own is None else own.calls),
                tokens=_set(None if own is None else own.tokens),
                usd=_set(None if own is None else own.cost),
                seconds=_set(None if own is None else own.seconds),
            ),
            totals=_totals(history.totals),
        )

    def control(self, control: ControlRow) -> wire.ControlRow:
        """Return a control."""
        return wire.ControlRow(
            type=control.type,
            event_id=control.event_id,
            at=control.at,
            by=_by(control.by),
            outcome=str(control.outcome),
            err=control.error or UNSET,
            step=control.before_step or UNSET,
        )

    def step(self, row: StepRow, *, is_whole: bool = False) -> wire.StepRow:
        """Return a step; a whole one with the values of its calls."""
        step = row.step
        used = usage_of(() if step is None else step.asked)
        return wire.StepRow(
            step=row.number,
            status=str(row.status),
            decision=UNSET if step is None or step.decision is None else decision_kind(step.decision),
            preview="" if step is None else render_decision(step, clean=self.clean)[:PREVIEW_CHARS],
            started_at=row.started_at,
            decided_at=NO_TIME if step is None else step.decided_at,
            ended_at=NO_TIME if step is None or row.status in ("running", "waiting") else time_or_none(step.ended_at),
            latency_ms=0 if step is None else step.latency_ms,
            tokens=_tokens(used),
            usd=_usd(used),
            error=self._error_of(step),
            calls=[] if step is None else [self._call(step, call, is_whole=is_whole) for call in step.calls],
            children=[] if step is None else [self._child(one) for one in step.children if one.task_id],
            waits=[_wait(one) for one in row.waits],
        )

    def _error_of(self, step: StepTaken | None) -> wire.ErrorOf | UnsetType:
        if step is None or not (step.error or step.cut):
            return UNSET
        if step.cut:
            return wire.ErrorOf(class_="cut", message=step.cut)
        name, _, message = step.error.partition(": ")
        return wire.ErrorOf(class_=name, message=self.text(message))

    def _call(self, step: StepTaken, call: CallMade, *, is_whole: bool) -> wire.CallRow:
        seen = call.observation if call.seen is msgspec.UNSET else call.seen
        has_result = call.ended_at is not None and not call.error
        row = wire.CallRow(
            call_id=call_id(step.number, call.branch),
            tool=call.tool,
            branch=UNSET if call.branch is None else call.branch + 1,
            side_effect=self._side_effect(call.tool),
            status=str(call.status),
            attempts=call.attempts,
            key=call.key or UNSET,
            started_at=call.begun_at or step.decided_at,
            ended_at=time_or_none(call.ended_at),
            error=wire.ErrorOf(class_=str(call.status), message=self.text(call.error)) if call.error else UNSET,
            args_preview=shorten(_parsed(call.args), self.clean),
            result_preview=shorten(seen, self.clean) if has_result else UNSET,
        )
        return self._whole(row, call, has_result=has_result) if is_whole else row

    def _whole(self, row: wire.CallRow, call: CallMade, *, has_result: bool) -> wire.CallRow:
        args = self.show(_parsed(call.args))
        result = self.show(call.observation) if has_result else Shown()
        return msgspec.structs.replace(
            row,
            args=args.value,
            args_cut=args.cut,
            result=result.value,
            result_cut=result.cut,
            masked=args.is_masked or result.is_masked or UNSET,
        )

    def _child(self, child: ChildSpawned) -> wire.ChildRow:
        spec = child.spec
        return wire.ChildRow(
            id=child.task_id,
            kind=child.kind,
            agent_name=getattr(spec, "agent", ""),
            description=shorten(spec.description or spec.query, self.clean),
        )

    # ── One step ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def said(self, step: StepTaken) -> wire.Said:
        """Return what the planner decided, with the text beside it."""
        return wire.Said(
            decision="" if step.decision is None else decision_kind(step.decision),
            value={} if step.decision is None else self.show(readable(step.decision)).either,
            reasoning=self.text(step.reasoning) or UNSET,
            preamble=self.text(step.preamble) or UNSET,
        )

    def ask(self, ask: Ask, *, is_full: bool) -> wire.AskRow:
        """Return one call of the model; a full one with all messages and tools."""
        first = 0 if is_full else ask.unchanged
        answer, failure = ask.answer, ask.failure
        used = usage_of([ModelAsked(answer=answer)])
        tools = [
            wire.PromptTool(name=one.name, description=self.text(one.description), schema=self.clean(one.schema))
            for one in ask.prompt.tools
        ]
        return wire.AskRow(
            model=self._model,
            unchanged=first,
            messages=[self._message(one) for one in ask.prompt.messages[first:]],
            tools=tools if is_full or ask.has_new_tools else UNSET,
            settings=self.clean(codec.to_plain(ask.prompt.settings)),
            tokens=_tokens(used),
            usd=_usd(used),
            latency_ms=0 if answer is None else int(answer.usage.get("latency_ms", 0)),
            answer=UNSET if answer is None else self._answer(answer),
            error=UNSET if failure is None else wire.ErrorOf(class_=failure.kind, message=self.text(failure.message)),
        )

    def _answer(self, answer: Any) -> wire.ModelAnswer:
        return wire.ModelAnswer(
            content=self.text(answer.content) or UNSET,
            reasoning=self.text(answer.reasoning) or UNSET,
            tool_calls=[self._call_of_model(one) for one in answer.tool_calls],
            finish_reason=answer.finish_reason,
        )

    def _call_of_model(self, call: Any) -> wire.CallOfModel:
        return wire.CallOfModel(id=call.id, name=call.name, args=self.show(_parsed(_as_text(call.args))).either)

    def _message(self, message: ChatMessage) -> wire.PromptMessage:
        calls = [self._call_of_model(one) for one in message.tool_calls]
        content = message.content
        parts = [self._text_part(content.text)] if content.text else [self._part(one) for one in content.parts or ()]
        return wire.PromptMessage(
            role=str(message.role),
            name=message.name or UNSET,
            tool_call_id=message.tool_call_id or UNSET,
            parts=parts,
            tool_calls=calls or UNSET,
        )

    def _text_part(self, text: str) -> wire.MessagePart:
        shown = self.show(text)
        return wire.MessagePart(type="text", text=shown.value, cut=shown.cut)

    def _part(self, part: Any) -> wire.MessagePart:
        if isinstance(part, TextPart):
            return self._text_part(part.text)
        stub = part.artifact
        reference = UNSET if stub is None else wire.ReferenceOf(id=stub.ref, mime=stub.mime, size=stub.size_bytes)
        return wire.MessagePart(type=type(part).__name__.removesuffix("Part").lower(), artifact_ref=reference)


def readable(decision: Decision) -> dict[str, Any]:
    """Return a decision as plain data, with the arguments of its calls as JSON."""
    match decision:
        case CallTool():
            return {"tool": decision.tool, "args": _parsed(_as_text(decision.args)), "call_id": decision.call_id}
        case CallParallel():
            join = {} if decision.join is None else {"join": codec.to_plain(decision.join)}
            return {"branches": [readable(one) for one in decision.branches], **join}
        case _:
            plain: dict[str, Any] = codec.to_plain(decision)
            return {name: value for name, value in plain.items() if name != "type"}


def _parent(run: Overview) -> wire.StepOf:
    """The run that started this one, and the step in which it did: a child's key begins with them."""
    parent, _, step = run.row.key.partition("/")
    number = step.partition(".")[0]
    is_known = parent == run.row.parent and number.isdigit()
    return wire.StepOf(id=run.row.parent, step=int(number) if is_known else 0)


def _wait(wait: Wait) -> wire.WaitRow:
    return wire.WaitRow(
        reason=wait.reason,
        token=wait.token or UNSET,
        call_id=wait.call or UNSET,
        opened_at=wait.opened_at,
        settled_at=time_or_none(wait.settled_at),
        decision=wait.decision or UNSET,
        by=_by(wait.by),
        deadline=UNSET if wait.deadline is None else wait.deadline,
        default=wait.default or UNSET,
    )


def _by(who: Identity | None) -> WireIdentity | UnsetType:
    return UNSET if who is None else WireIdentity.of(who)


def _totals(totals: Totals) -> wire.RunTotals:
    return wire.RunTotals(
        steps=totals.steps,
        tool_calls=totals.tool_calls,
        model_calls=totals.model_calls,
        prompt_tokens=totals.prompt_tokens,
        completion_tokens=totals.completion_tokens,
        reasoning_tokens=totals.reasoning_tokens,
        cached_tokens=totals.cached_tokens,
        usd=_usd(totals),
    )


def _tokens(used: Totals) -> wire.Tokens:
    return wire.Tokens(
        prompt=used.prompt_tokens,
        completion=used.completion_tokens,
        reasoning=used.reasoning_tokens,
        cached=used.cached_tokens,
    )


def _usd(used: Totals) -> float:
    return used.cost.get("USD", 0.0)


def _ms(span: timedelta) -> int:
    return int(span.total_seconds() * 1000)


def _set(value: Any) -> Any:
    return UNSET if value is None else value


def _as_text(args: bytes | str) -> str:
    return args.decode("utf-8", "replace") if isinstance(args, bytes) else args


def _parsed(args: str) -> Any:
    try:
        return codec.decode(args) if args else {}
    except (msgspec.DecodeError, RecursionError):
        return args
