import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { approvePayload, answerPayload, mayClick, rejectPayload } from "../../model/approval/answers.ts";
import { exactLines, rowOffer, type RowOffer } from "../../model/approval/exact.ts";
import { isMaskedValue } from "../../model/approval/patch.ts";
import { activeTime, argsPreview, callNote } from "../../model/bars/rows.ts";
import { conversationOf, type ConversationItem } from "../../model/conversation.ts";
import { isEnd } from "../../model/events/run-state.ts";
import type { ChildRef, ControlView, PauseView, RunView, ToolCall } from "../../model/events/views.ts";
import { controlName, fateOf } from "../../model/fates.ts";
import { formatCount, formatDuration, formatMoney } from "../../model/formats.ts";
import { isObject, type Json } from "../../model/json.ts";
import { callState, openPauses, stateOfRun } from "../../model/status.ts";
import { parsePartialJson } from "../../model/text/partial-json.ts";
import { Button, ButtonLink } from "../../parts/button.tsx";
import { Facts } from "../../parts/figures.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { Icon } from "../../parts/icon.tsx";
import { Moment } from "../../parts/moments.tsx";
import { FoldedText, GrowingMarkdown, Markdown, Value } from "../../parts/rich.tsx";
import { now } from "../../shell/clock.ts";
import type { Conversation } from "./source.ts";

/** What a person asked, and what the agent did and said of it. */
export function Turn({ run, talk, user }: { run: RunView; talk: Conversation; user: string }) {
  const said = conversationOf(run);
  const words = said.items.filter((item) => item.kind === "reasoning");
  const lines = linesOf(run, said.items);
  return (
    <>
      {run.goal && (
        <article class="turn is-mine" aria-label={`${user} asks`}>
          <div class="turn-head">
            <b>{user}</b> <Moment at={run.spawnedAt} />
          </div>
          <div class="turn-asked plain-text">{run.goal}</div>
        </article>
      )}
      <article class="turn" data-run={run.id} data-status={stateOfRun(run).word.toLowerCase()} aria-label={`${run.agent || "agent"} answers`}>
        <TurnHead run={run} />
        {words.map((item) => item.kind === "reasoning" && <Reasoning key={item.id} text={item.text} isOpen={item.isOpen} step={words.length > 1 ? item.step : 0} />)}
        {lines.length > 0 && (
          <ul class="turn-lines">
            {lines.map((item) => (
              <Line key={item.id} item={item} run={run} talk={talk} />
            ))}
          </ul>
        )}
        <Said text={said.answer} isGrowing={said.isAnswering} />
        <Ending run={run} isSilent={!said.answer && lines.length === 0} />
      </article>
    </>
  );
}

/** Lines but for the reasoning, which folds above them; a pause for a call stands in that call's own line. */
function linesOf(run: RunView, items: readonly ConversationItem[]): ConversationItem[] {
  const calls = new Set(run.steps.flatMap((step) => step.calls.map((call) => call.id)));
  return items.filter((item) => {
    if (item.kind === "reasoning" || item.kind === "end") return false;
    return item.kind !== "pause" || (item.pause.settledAt === null && !calls.has(item.pause.callId));
  });
}

function TurnHead({ run }: { run: RunView }) {
  const hasEnded = isEnd(run.status);
  const at = hasEnded ? (run.endedAt ?? now.peek()) : now.value;
  const took = formatDuration(activeTime(run, at));
  const state = stateOfRun(run);
  const step = run.steps.at(-1)?.number;
  const facts = hasEnded
    ? [run.startedAt !== null && took, run.tokens.total > 0 && `${formatCount(run.tokens.total)} tokens`, run.usd > 0 && formatMoney(run.usd)]
    : [run.status === "running" && openPauses(run).length === 0 ? `working for ${took}` : state.word.toLowerCase() + (state.on ? `: ${state.on}` : ""), step && `step ${step}`];
  return (
    <div class="turn-head">
      {!hasEnded && <Glyph name={state.glyph} label={state.word} />}
      <b>{run.agent || "agent"}</b> <Moment at={run.startedAt} />
      {facts.filter(Boolean).map((fact) => (
        <span key={String(fact)}>· {fact}</span>
      ))}
      <a class="link turn-open" href={`/tasks/${encodeURIComponent(run.id)}?session=${encodeURIComponent(run.identity.session)}`}>
        Open run
      </a>
    </div>
  );
}

function Reasoning({ text, isOpen, step }: { text: string; isOpen: boolean; step: number }) {
  const [isUnfolded, unfold] = useState(false);
  return (
    <div class="turn-reasoning">
      <button type="button" class="turn-fold" aria-expanded={isUnfolded} onClick={() => unfold(!isUnfolded)}>
        <Icon name={isUnfolded ? "down" : "right"} small />
        <span class="whole">{isOpen ? "Reasons" : "Reasoned"}{step ? ` in step ${step}` : ""}</span>
        {!isUnfolded && <span class="faint cut">{text.slice(isOpen ? -120 : 0).slice(0, 120)}</span>}
      </button>
      {isUnfolded && <p class="plain-text soft turn-thought">{text}</p>}
    </div>
  );
}

function Line({ item, run, talk }: { item: ConversationItem; run: RunView; talk: Conversation }) {
  switch (item.kind) {
    case "text":
      return (
        <li class="turn-said">
          <Markdown text={item.text} />
        </li>
      );
    case "call":
      return <CallLine call={item.call} run={run} talk={talk} />;
    case "child":
      return <ChildLine child={item.child} talk={talk} />;
    case "control":
      return <ControlLine control={item.control} text={talk.said.get(item.control.eventId)} isWaiting={openPauses(run).length > 0} />;
    case "pause":
      return <PauseLine pause={item.pause} run={run} talk={talk} />;
    case "reasoning":
    case "end":
      return null;
  }
}

/** A line that opens under itself: glyph, name, what it is about, and what came of it. */
function Unfolding(props: { glyph: ComponentChildren; name: string; about: string; end: ComponentChildren; children: ComponentChildren }) {
  const [isOpen, open] = useState(false);
  return (
    <>
      <div class="line">
        <button type="button" class="line-button" aria-expanded={isOpen} onClick={() => open(!isOpen)}>
          {props.glyph}
          <code class="line-name">{props.name}</code>
          <code class="faint cut">{props.about}</code>
        </button>
        <span class="line-end">{props.end}</span>
      </div>
      {isOpen && <div class="line-inside">{props.children}</div>}
    </>
  );
}

function CallLine({ call, run, talk }: { call: ToolCall; run: RunView; talk: Conversation }) {
  const state = callState(call.status);
  const pause = openPauses(run).find((one) => one.callId === call.id || (one.token !== "" && one.token === call.pauseToken));
  const offer = pause?.reason === "approval_required" ? offerOf(pause, call) : null;
  const took = call.startedAt !== null && call.endedAt !== null ? formatDuration(call.endedAt - call.startedAt) : "";
  const isBad = call.status === "failed" || call.status === "unknown";
  const end = pause ? (
    <Answers key={pause.token} pause={pause} offer={offer} call={call} run={run} talk={talk} />
  ) : isBad ? (
    <span class={`is-${state.tone} cut`}>{callNote(call)}</span>
  ) : call.status === "open" && call.startedAt !== null ? (
    formatDuration(Math.max(0, now.value - call.startedAt))
  ) : (
    took || state.word
  );
  return (
    <li data-call={call.tool} data-state={call.status}>
      <Unfolding glyph={<Glyph name={state.glyph} label={state.word} />} name={call.tool} about={offer?.kind === "approve" ? "" : argsPreview(call)} end={end}>
        <CallParts call={call} />
      </Unfolding>
      {offer?.kind === "approve" && <code class="line-exact">{offer.text}</code>}
    </li>
  );
}

/** The exact arguments that a person answers for: where they are offered, they stand in full, and are what is approved. */
function offerOf(pause: PauseView, call: ToolCall): RowOffer {
  const args = pause.args ?? call.args;
  return rowOffer({ args, isCut: Boolean(pause.argsCut ?? call.argsCut), isMasked: pause.isMasked || call.isMasked || isMaskedValue(args) });
}

function CallParts({ call }: { call: ToolCall }) {
  return (
    <dl class="line-parts">
      <dt>Arguments</dt>
      <dd>{call.args !== undefined ? <FoldedText text={exactLines(call.args)} /> : <span class="faint">{call.argsCut?.preview || "not told by this runtime"}</span>}</dd>
      {call.error && (
        <>
          <dt>Error</dt>
          <dd class="is-failed">
            <code>{call.error.class}</code>
            {call.error.message && `: ${call.error.message}`}
          </dd>
        </>
      )}
      {(call.result !== undefined || call.resultCut) && (
        <>
          <dt>Result</dt>
          <dd>{call.result !== undefined ? <Value value={call.result} /> : <FoldedText text={call.resultCut?.preview ?? ""} />}</dd>
        </>
      )}
    </dl>
  );
}

/** Approve stands here only where the exact arguments do; else the page of the call has them. */
function Answers({ pause, offer, call, run, talk }: { pause: PauseView; offer: RowOffer | null; call: ToolCall; run: RunView; talk: Conversation }) {
  const [sent, say] = useState(false);
  const [shownAt] = useState(Date.now);
  const link = `/inbox/${encodeURIComponent(pause.token)}`;
  if (sent) return <span>Sent</span>;
  const answer = (verb: "approve" | "reject") => {
    if (!mayClick(shownAt, Date.now())) return;
    say(true);
    void talk.send(run.id, verb, verb === "approve" ? approvePayload(pause.token) : rejectPayload(pause.token));
  };
  if (offer?.kind !== "approve") {
    return (
      <ButtonLink small href={link}>
        {pause.reason === "approval_required" ? "Review" : "Resolve"}
      </ButtonLink>
    );
  }
  return (
    <>
      <Button small icon="check" label={`Approve ${call.tool}`} onClick={() => answer("approve")}>
        Approve
      </Button>
      <Button small kind="quiet" label={`Reject ${call.tool}`} onClick={() => answer("reject")}>
        Reject
      </Button>
    </>
  );
}

function PauseLine({ pause, run, talk }: { pause: PauseView; run: RunView; talk: Conversation }) {
  const [text, write] = useState("");
  const [sent, say] = useState(false);
  const isQuestion = pause.reason === "await_input";
  const link = `/inbox/${encodeURIComponent(pause.token)}`;
  return (
    <li data-pause={pause.reason}>
      <div class="line">
        <span class="line-button">
          <Glyph name={isQuestion ? "question" : "waiting"} label="Waits" />
          <span>{pause.why || (isQuestion ? "The agent asks for an answer" : `Waits: ${pause.reason.replaceAll("_", " ")}`)}</span>
        </span>
        <span class="line-end">
          {sent ? (
            "Sent"
          ) : (
            <ButtonLink small href={link}>
              {isQuestion ? "Open" : "Review"}
            </ButtonLink>
          )}
        </span>
      </div>
      {isQuestion && !sent && (
        <form
          class="line-answer"
          onSubmit={(event) => {
            event.preventDefault();
            if (!text.trim()) return;
            say(true);
            void talk.send(run.id, "resume", answerPayload(pause.token, text.trim()));
          }}
        >
          <input class="input" aria-label="Answer" value={text} onInput={(event) => write(event.currentTarget.value)} />
          <Button type="submit" why={text.trim() ? undefined : "Write an answer first"}>
            Answer
          </Button>
        </form>
      )}
    </li>
  );
}

function ChildLine({ child, talk }: { child: ChildRef; talk: Conversation }) {
  const run = talk.childOf(child.id);
  const state = run && stateOfRun(run);
  const isBackground = child.kind === "background";
  const time = run?.startedAt != null ? formatDuration(Math.max(0, (run.endedAt ?? now.value) - run.startedAt)) : "";
  const calls = run?.steps.flatMap((step) => step.calls) ?? [];
  const said = run && isEnd(run.status) && run.answer;
  return (
    <li data-child={child.id}>
      <div class="line">
        <a class="line-button" href={`/tasks/${encodeURIComponent(child.id)}?session=${encodeURIComponent(talk.session)}`}>
          <Glyph name={state?.glyph ?? "pending"} label={state?.word ?? "Pending"} />
          <code class="line-name">{run?.agent || child.agent || "child run"}</code>
          <span class="faint cut">{run?.goal || child.description}</span>
        </a>
        <span class="line-end">{[time, isBackground && "in the background"].filter(Boolean).join(", ")}</span>
      </div>
      {run && calls.length > 0 && (
        <ul class="turn-lines">
          {calls.map((call) => (
            <CallLine key={`${call.step}/${call.id}`} call={call} run={run} talk={talk} />
          ))}
        </ul>
      )}
      {said && <p class="soft small cut">{said}</p>}
    </li>
  );
}

function ControlLine({ control, text, isWaiting }: { control: ControlView; text: string | undefined; isWaiting: boolean }) {
  const fate = fateOf(control, isWaiting);
  const who = control.sentAt !== null ? "You" : control.by?.user || "Somebody";
  return (
    <li data-control={control.type} data-fate={control.outcome}>
      <div class="line">
        <span class="line-button">
          <Glyph name={fate.glyph} label={fate.text} />
          <span class="cut">
            {who}: <b>{text ?? controlName(control.type)}</b>
          </span>
        </span>
        <span class={fate.tone === "failed" ? "line-end is-failed" : "line-end"}>{fate.text}</span>
      </div>
    </li>
  );
}

/** The answer: typed ones as names and values, all others as Markdown. Nothing of it is ever markup. */
function Said({ text, isGrowing }: { text: string; isGrowing: boolean }) {
  if (!text) return null;
  const typed = typedAnswer(text);
  if (typed) return <TypedAnswer value={typed} />;
  return <div class="turn-answer">{isGrowing ? <GrowingMarkdown text={text} /> : <Markdown text={text} />}</div>;
}

/** The object that an answer is, or is becoming; null for an answer in words. */
export function typedAnswer(text: string): Record<string, Json> | null {
  if (!text.trimStart().startsWith("{")) return null;
  const value = parsePartialJson(text);
  return isObject(value) && Object.keys(value).length > 0 ? (value as Record<string, Json>) : null;
}

export function TypedAnswer({ value }: { value: Record<string, Json> }) {
  return (
    <div class="turn-typed">
      <Facts label="Answer" rows={Object.entries(value).map(([name, one]) => [name, <Value key={name} value={one} />] as const)} />
    </div>
  );
}

function Ending({ run, isSilent }: { run: RunView; isSilent: boolean }) {
  const link = `/tasks/${encodeURIComponent(run.id)}?session=${encodeURIComponent(run.identity.session)}`;
  if (run.status === "failed" || run.status === "cancelled") {
    const state = stateOfRun(run);
    return (
      <p class={`turn-end is-${state.tone}`} role="status">
        <Glyph name={state.glyph} />
        {state.word}
        {run.errorClass && run.errorClass !== "cancelled" && (
          <>
            {": "}
            <code>{run.errorClass}</code>
          </>
        )}
        <a class="link" href={link}>
          What happened
        </a>
      </p>
    );
  }
  return isSilent && !isEnd(run.status) ? <p class="faint small">{run.status === "pending" ? "Waits for a worker…" : "Thinks…"}</p> : null;
}
