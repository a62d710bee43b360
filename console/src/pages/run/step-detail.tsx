import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";

import { exactLines } from "../../model/approval/exact.ts";
import { activeStepTime } from "../../model/bars/rows.ts";
import { sawOfAsk, type Message, type SawLine } from "../../model/compare/messages.ts";
import { isObject, isSameJson, type Json, type JsonObject } from "../../model/json.ts";
import type { CutValue, Moment as MomentOf, StepView, ToolCall, Wait } from "../../model/events/views.ts";
import { cutText, formatBytes, formatDuration, formatExact, formatMoney, formatPercent, plural } from "../../model/formats.ts";
import { callState, stepTitle } from "../../model/status.ts";
import { Button } from "../../parts/button.tsx";
import { Tag } from "../../parts/figures.tsx";
import { Glyph, type GlyphName } from "../../parts/glyph.tsx";
import { Icon } from "../../parts/icon.tsx";
import { Moment } from "../../parts/moments.tsx";
import { FoldedText, Text, Value } from "../../parts/rich.tsx";
import { PartFailure } from "../../parts/states.tsx";
import { now } from "../../shell/clock.ts";
import { call } from "../../wire/client.ts";
import { asWireError, type WireError } from "../../wire/error.ts";
import { useCall } from "../../wire/resource.ts";
import { hasCapability } from "../../wire/runtime.ts";
import type { AskRow, StepAnswer } from "../../wire/types.ts";
import type { Chosen } from "./rail.tsx";

interface DetailProps {
  chosen: Chosen;
  session: string;
  at: MomentOf | null;
  isDiff: boolean;
  effectsOf: (tool: string) => string;
}

/** A step: what the planner saw, what it said, what came of it. In the present tense while it goes on. */
export function StepDetail(props: DetailProps) {
  const { chosen, session, at, isDiff } = props;
  const step = chosen.run.steps.find((one) => one.number === chosen.step);
  const canRead = hasCapability("run_history");
  // Asked again when the step has come further.
  const stage = step ? `${step.decidedAt ?? ""} ${step.endedAt ?? ""} ${step.calls.map((one) => one.status).join()}` : "";
  const body = useMemo(() => ({ id: chosen.run.id, step: chosen.step, ...(isDiff ? {} : { full: true }) }), [chosen.run.id, chosen.step, isDiff, stage]);
  const [record, reload] = useCall("runs.step", body, { session, when: canRead && step !== undefined });
  const [isExact, exact] = useState(false);
  if (!step) return <p class="rail-none">{at === null ? "There is no such step." : "This step had not begun then."}</p>;
  const answer = record.state === "ready" ? (record.data as StepAnswer) : null;
  // What the record says is of the whole step: at an earlier moment only what had happened is shown.
  const hasDecided = step.decidedAt !== null;
  const isOver = step.endedAt !== null;
  return (
    <>
      {canRead && record.state === "failed" && <PartFailure noun="What it saw" error={record.error} onRetry={reload} />}
      {answer?.saw && hasDecided && <Saw asks={answer.saw.asks} isDiff={isDiff} number={step.number} />}
      <Said step={step} answer={hasDecided ? answer : null} isExact={isExact} onExact={() => exact(!isExact)} {...props} />
      <Got step={step} answer={answer} isOver={isOver} isExact={isExact} session={session} callId={chosen.callId} />
      {step.decision === "Finish" && isOver && chosen.run.answer !== null && (
        <Section title="Answer">
          <Text text={chosen.run.answer} />
        </Section>
      )}
    </>
  );
}

function Section({ title, note, children }: { title: string; note?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <section class="section step-part">
      <h3>
        {title}
        {note && <span class="part-note">{note}</span>}
      </h3>
      {children}
    </section>
  );
}

function Fold({ title, note, more, children }: { title: ComponentChildren; note?: string; more?: string; children: ComponentChildren }) {
  const [isOpen, open] = useState(false);
  return (
    <>
      <button type="button" class="fold-line" aria-expanded={isOpen} onClick={() => open(!isOpen)}>
        <Icon name={isOpen ? "down" : "right"} small />
        <span class="whole">{title}</span>
        {note && !isOpen && <span class="cut faint">{note}</span>}
        <span class="grow" />
        {more && <span class="faint whole">{more}</span>}
      </button>
      {isOpen && children}
    </>
  );
}

// ── Saw ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

function Saw({ asks, isDiff, number }: { asks: readonly AskRow[]; isDiff: boolean; number: number }) {
  const last = asks.at(-1);
  if (!last) return null;
  const { prompt = 0, cached = 0 } = last.tokens ?? {};
  const share = last.window_tokens ? formatPercent(prompt / last.window_tokens) : "";
  const note = [prompt ? `${formatExact(prompt)} tokens` : "", cached ? `${formatExact(cached)} cached` : "", share ? `${share} of window` : ""].filter(Boolean).join(" · ");
  return (
    <Section title="Saw" note={note}>
      {asks.map((ask, at) => (
        <div key={at}>
          {asks.length > 1 && <p class="faint small">{at === 0 ? "First try" : `Try ${at + 1}`}{ask.error?.class && `: ${ask.error.class}`}</p>}
          {sawOfAsk(ask as never).map((line, index) => (
            <SawRow key={index} line={line} isDiff={isDiff} number={number} />
          ))}
          {(ask.tools?.length ?? 0) > 0 && (
            <Fold title={plural(ask.tools.length, "tool")} note={ask.tools.map((tool) => tool.name).join(", ")}>
              <ul class="tool-list">
                {ask.tools.map((tool) => (
                  <li key={tool.name}>
                    <code>{tool.name}</code> <span class="soft">{cutText(tool.description, 200)}</span>
                  </li>
                ))}
              </ul>
            </Fold>
          )}
        </div>
      ))}
    </Section>
  );
}

function SawRow({ line, isDiff, number }: { line: SawLine; isDiff: boolean; number: number }) {
  const [isOpen, open] = useState(false);
  if (line.kind === "unchanged") {
    return (
      <p class="fold-line is-still">
        <span>{`${plural(line.count, "message")} as in step ${number - 1}`}</span>
        <span class="grow" />
        {line.tokens !== null && <span class="faint">{formatExact(line.tokens)}</span>}
      </p>
    );
  }
  const message = line.message;
  const text = textOf(message);
  const isNew = isDiff && number > 1;
  return (
    <>
      <button type="button" class={`message ${isNew ? (line.kind === "new" ? "is-new" : "is-gone") : ""}`} aria-expanded={isOpen} onClick={() => open(!isOpen)}>
        <span class="sign">{isNew ? (line.kind === "new" ? "+" : "−") : ""}</span>
        <span class="soft">{message.role}</span>
        <span class="cut">{cutText(text, 300)}</span>
        <span class="number faint">{message.tokens ? formatExact(message.tokens) : ""}</span>
      </button>
      {isOpen && <MessageBody message={message} />}
    </>
  );
}

function textOf(message: Message): string {
  const parts = message.parts.map((part) => part.text ?? part.cut?.preview ?? (part.artifact_ref ? `${part.type} ${part.artifact_ref.id}` : part.type));
  const calls = (message.tool_calls ?? []).map((one) => `${one.name}(${JSON.stringify(one.args)})`);
  return [message.name ? `${message.name}: ` : "", ...parts, ...calls].join(" ").trim();
}

function MessageBody({ message }: { message: Message }) {
  return (
    <div class="message-body">
      {message.parts.map((part, at) =>
        part.text !== undefined ? <Text key={at} text={part.text} /> : <p key={at} class="soft">{part.cut ? `${part.cut.preview}… (${formatBytes(part.cut.bytes)})` : part.type}</p>,
      )}
      {(message.tool_calls ?? []).map((one) => (
        <div key={one.id}>
          <code>{one.name}</code>
          <FoldedText text={exactLines(one.args)} />
        </div>
      ))}
    </div>
  );
}

// ── Said ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

const EFFECT_WORDS: Readonly<Record<string, string>> = { read: "reads", pure: "computes", write: "writes", external: "acts outside", stateful: "keeps state" };

function Said(props: DetailProps & { step: StepView; answer: StepAnswer | null; isExact: boolean; onExact: () => void }) {
  const { step, answer, isExact } = props;
  const said = answer?.said;
  const reasoning = said?.reasoning || step.reasoning;
  const text = said?.preamble || step.text;
  const model = step.modelCalls.at(-1);
  const out = step.modelCalls.reduce((sum, one) => sum + one.tokens.completion, 0);
  const usd = step.modelCalls.reduce((sum, one) => sum + one.usd, 0);
  const latency = model ? model.latencyMs : step.decidedAt !== null ? step.decidedAt - step.startedAt : null;
  const note = [latency === null ? "" : formatDuration(latency), out ? `${formatExact(out)} tokens` : "", usd ? formatMoney(usd, "step") : ""].filter(Boolean).join(" · ");
  const isGoing = step.decidedAt === null && step.endedAt === null;
  const value = said?.value as Json | undefined;
  return (
    <Section title={isGoing ? "Says" : "Said"} note={note}>
      {reasoning && (
        <Fold title="Reasoning" note={cutText(reasoning, 200)} more={`${formatExact(reasoning.length)} characters`}>
          <div class="reasoning">
            <Text text={reasoning} isStreaming={isGoing} />
          </div>
        </Fold>
      )}
      {text && step.decision !== "Finish" && <Text text={text} isStreaming={isGoing} />}
      {isGoing && !text && <p class="soft small">The planner decides.</p>}
      {step.decision && (
        <div class="decision">
          <b>{step.decision}</b>
          {step.decision !== "Finish" && <code>{decidedName(step)}</code>}
          {step.calls.length === 1 && <CallTags call={step.calls[0] as ToolCall} step={step} effectsOf={props.effectsOf} />}
          <span class="grow" />
          {value !== undefined && (
            <Button small kind="quiet" pressed={isExact} onClick={props.onExact}>
              Exact
            </Button>
          )}
        </div>
      )}
      {isExact && value !== undefined && <FoldedText text={exactLines(value)} />}
      {!isExact && step.calls.length === 1 && <Arguments call={step.calls[0] as ToolCall} asked={askedArgs(value)} step={step} />}
      {step.decision === "Finish" && step.text && !props.chosen.run.answer && <Text text={step.text} isStreaming={step.endedAt === null} />}
    </Section>
  );
}

function decidedName(step: StepView): string {
  return step.decision === "CallTool" ? step.tool : step.children.map((child) => child.agent || child.description).join(", ") || stepTitle(step);
}

function CallTags({ call: one, step, effectsOf }: { call: ToolCall; step: StepView; effectsOf: (tool: string) => string }) {
  const effect = one.sideEffect || effectsOf(one.tool);
  const asks = step.waits.some((wait) => wait.reason === "approval_required");
  return (
    <>
      {asks && <Tag tone="waiting">asks first</Tag>}
      {effect && <Tag>{EFFECT_WORDS[effect] ?? effect}</Tag>}
    </>
  );
}

function askedArgs(value: Json | undefined): JsonObject | undefined {
  const args = isObject(value) ? value["args"] : undefined;
  return isObject(args) ? args : undefined;
}

/** The arguments of a call as a table; what a person changed shows both. */
function Arguments({ call: one, asked, step }: { call: ToolCall; asked: JsonObject | undefined; step: StepView }) {
  const args = isObject(one.args) ? one.args : undefined;
  const by = step.waits.find((wait) => wait.callId === one.id && wait.by)?.by?.user;
  if (!args) {
    if (one.argsCut) return <Cut cut={one.argsCut} session="" />;
    return one.args === undefined ? null : <Value value={one.args} />;
  }
  const keys = [...new Set([...Object.keys(asked ?? {}), ...Object.keys(args)])];
  return (
    <dl class="arguments">
      {keys.map((key) => {
        const isChanged = asked !== undefined && !isSameJson(asked[key], args[key]);
        return (
          <div key={key}>
            <dt>{key}</dt>
            <dd>
              {isChanged && asked[key] !== undefined && <del>{JSON.stringify(asked[key])}</del>} {isChanged ? <ins>{args[key] === undefined ? "left out" : JSON.stringify(args[key])}</ins> : <Argument value={args[key] as Json} />}
              {isChanged && <span class="faint changed-by"> changed{by ? ` by ${by}` : ""}</span>}
            </dd>
          </div>
        );
      })}
    </dl>
  );
}

function Argument({ value }: { value: Json }) {
  if (typeof value === "string" && value.includes("\n")) return <Text text={value} />;
  const text = JSON.stringify(value);
  return text.length > 400 ? <FoldedText text={exactLines(value)} /> : <>{text}</>;
}

// ── Got ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

function Got({ step, answer, isOver, isExact, session, callId }: { step: StepView; answer: StepAnswer | null; isOver: boolean; isExact: boolean; session: string; callId: string }) {
  const chosen = step.calls.length > 1 && callId ? step.calls.filter((one) => one.id === callId) : step.calls;
  const calls = chosen.length ? chosen : step.calls;
  const first = calls.length === 1 ? calls[0] : undefined;
  const length = first?.startedAt != null ? (first.endedAt ?? now.value) - first.startedAt : isOver ? activeStepTime(step, now.value) : null;
  const attempts = first && first.attempts > 0 ? plural(first.attempts, "attempt") : "";
  const note = [length === null ? "" : formatDuration(length), attempts].filter(Boolean).join(" · ");
  const observation = isOver ? (answer?.observation as Json | undefined) : undefined;
  const isEmpty = calls.length === 0 && step.waits.length === 0 && step.children.length === 0 && !step.error && observation === undefined;
  if (isEmpty || (!step.decision && step.waits.length === 0)) return null;
  return (
    <Section title={isOver ? "Got" : "Gets"} note={note}>
      {step.waits.map((wait, at) => (
        <WaitLine key={at} wait={wait} />
      ))}
      {calls.map((one) => (
        <CallResult key={one.id} call={one} answer={answer} isExact={isExact} hasName={calls.length > 1} session={session} />
      ))}
      {step.children.map((child) => (
        <p key={child.id} class="fact-line">
          <Icon name="child" />
          <span>
            <a class="link" href={`/tasks/${child.id}`}>
              {child.agent || "child run"}
            </a>{" "}
            {child.description}
          </span>
        </p>
      ))}
      {observation !== undefined && observation !== null && calls.length === 0 && (isExact ? <FoldedText text={exactLines(observation)} /> : <Value value={observation} />)}
      {step.error && step.calls.length === 0 && (
        <p class="fact-line">
          <Glyph name="failed" />
          <span>
            <code>{step.error.class}</code> {step.error.message}
          </span>
        </p>
      )}
    </Section>
  );
}

const WAITS: Readonly<Record<string, string>> = { child: "a child run", timer: "a time", worker: "a worker", await_input: "an answer", external_event: "an event", sign_in: "a sign-in" };
const DECIDED: Readonly<Record<string, string>> = { approve: "approved", reject: "rejected", resume: "answered", timeout: "The deadline ended it", expired: "The deadline ended it", cancelled: "It was cancelled" };

function WaitLine({ wait }: { wait: Wait }) {
  const length = formatDuration((wait.settledAt ?? now.value) - wait.openedAt);
  const glyph: GlyphName = wait.reason === "worker" ? "interrupted" : wait.reason === "child" || wait.reason === "timer" ? "timer" : "waiting";
  const decided = DECIDED[wait.decision] ?? wait.decision;
  const who = wait.by?.user;
  return (
    <p class="fact-line">
      <Glyph name={glyph} />
      <span>
        {wait.settledAt === null ? "Waits for" : "Waited"} <b>{length}</b>
        {WAITS[wait.reason] && ` for ${WAITS[wait.reason]}`}
        {wait.settledAt !== null && decided && (who ? <>. <b>{who}</b> {decided.toLowerCase()}</> : `. ${decided.charAt(0).toUpperCase()}${decided.slice(1)}`)}
      </span>
      <span class="faint whole">
        <Moment at={wait.settledAt ?? wait.openedAt} />
      </span>
    </p>
  );
}

function CallResult({ call: one, answer, isExact, hasName, session }: { call: ToolCall; answer: StepAnswer | null; isExact: boolean; hasName: boolean; session: string }) {
  const state = callState(one.status);
  const row = answer?.step.calls.find((other) => other.call_id === one.id);
  // The record's result is shown only where the view, which may be of an earlier moment, says that the call has ended.
  const hasEnded = one.endedAt !== null;
  const result = hasEnded ? ((row?.result as Json | undefined) ?? one.result) : undefined;
  const cut = row?.result_cut ? { preview: row.result_cut.preview, bytes: row.result_cut.bytes, artifactId: row.result_cut.artifact_ref?.id ?? "" } : one.resultCut;
  const tries = one.attempts > 1 ? ` after ${one.attempts} attempts` : "";
  const words: Record<string, string> = { done: one.attempts > 1 ? `Ran ${one.attempts} times` : "Ran once", open: "Runs", waiting: "Has not begun", held_back: "Held back: it has effects" };
  return (
    <div class="call-result">
      {hasName && <code class="call-name">{one.tool}</code>}
      <p class="fact-line">
        <Glyph name={state.glyph as GlyphName} />
        <span>
          {words[one.status] ?? state.word.charAt(0).toUpperCase() + state.word.slice(1) + tries}
          {one.key && one.startedAt !== null && (
            <>
              , key <code>{one.key.length > 24 ? `…${one.key.slice(-9)}` : one.key}</code>
            </>
          )}
          {one.error && (
            <span class={one.status === "failed" ? "is-failed" : "soft"}>
              {": "}
              {one.error.class !== one.status && <code>{one.error.class} </code>}
              {reasonOf(one.error.message)}
            </span>
          )}
          {one.progress?.message && <span class="soft"> · {one.progress.message}</span>}
        </span>
        <span class="faint whole">
          <Moment at={one.endedAt ?? one.startedAt} />
        </span>
      </p>
      {one.status === "open" && one.progress && one.progress.total ? <progress value={one.progress.done ?? 0} max={one.progress.total} /> : null}
      {result !== undefined && (isExact ? <FoldedText text={exactLines(result)} /> : <Value value={result} />)}
      {result === undefined && hasEnded && cut && <Cut cut={cut} session={session} />}
    </div>
  );
}

/** Who was asked is said already: what is left is why. */
function reasonOf(message: string): string {
  return message.replace(/^the call of '[^']*' was rejected: /, "");
}

/** A value that is kept beside the record: its beginning, its size, and where the whole of it is. */
function Cut({ cut, session }: { cut: CutValue; session: string }) {
  const [failed, fail] = useState<WireError | null>(null);
  const open = async (): Promise<void> => {
    try {
      const found = await call("artifacts.get_ref", { id: cut.artifactId } as never, { session });
      window.open(found.presigned_url, "_blank", "noopener,noreferrer");
    } catch (error) {
      fail(asWireError(error));
    }
  };
  return (
    <>
      <pre class="block">{cut.preview}…</pre>
      <p class="small soft">
        The beginning of {formatBytes(cut.bytes)}.{" "}
        {cut.artifactId && (
          <button type="button" class="link-button" onClick={() => void open()}>
            Open the whole
          </button>
        )}
        {failed && (
          <span class="is-failed">
            {" "}
            <code>{failed.code}</code>: {failed.message}
          </span>
        )}
      </p>
    </>
  );
}

