import { useMemo, useState } from "preact/hooks";

import { isObject, type Json } from "../../model/json.ts";
import { cutText, formatCount, formatDuration, formatMoney, plural } from "../../model/formats.ts";
import { parseTime } from "../../model/events/wire.ts";
import { callState } from "../../model/status.ts";
import { Glyph, type GlyphName } from "../../parts/glyph.tsx";
import { Icon } from "../../parts/icon.tsx";
import { TextDiff } from "../../parts/rich.tsx";
import { useCall } from "../../wire/resource.ts";
import type { CallRow, ComparedRow, StepAnswer, StepRow } from "../../wire/types.ts";

/** The steps that are alike, as one line. */
export function Shared({ steps, forkedAt }: { steps: readonly StepRow[]; forkedAt: number }) {
  const [isOpen, open] = useState(false);
  const first = steps[0];
  const last = steps.at(-1);
  if (!first || !last) return null;
  const calls = steps.reduce((sum, step) => sum + step.calls.length, 0);
  const tokens = steps.reduce((sum, step) => sum + step.tokens.prompt + step.tokens.completion, 0);
  const name = steps.length === 1 ? `Step ${first.step} is the same` : `Steps ${first.step} to ${last.step} are the same`;
  return (
    <>
      <button type="button" class="shared-steps" aria-expanded={isOpen} onClick={() => open(!isOpen)}>
        <Icon name={isOpen ? "down" : "right"} small />
        <span class="whole">{name}</span>
        {forkedAt > 1 && calls > 0 && <span class="faint cut">{plural(calls, "call")} served from the record, none made again</span>}
        <span class="grow" />
        {tokens > 0 && <span class="faint whole">{formatCount(tokens)} tokens</span>}
      </button>
      {isOpen && <ComparedRows rows={steps.map((step) => ({ left: step, right: step, same: true, changes: [] }))} current={-1} offset={-steps.length} />}
    </>
  );
}

/** Both sides, aligned step by step. What one side lacks is a hole. */
export function ComparedRows({ rows, current, onPick, offset = 0 }: { rows: readonly ComparedRow[]; current: number; onPick?: (at: number) => void; offset?: number }) {
  return (
    <div class="compared" role="table" aria-label="Steps of both runs">
      {rows.map((row, at) => {
        const changed = new Set((row.changes ?? []).map((change) => changedKey(change.path)).filter(Boolean));
        return (
          <div key={at} class={`compared-row ${row.same ? "" : "is-different"} ${at === current ? "is-current" : ""}`} role="row" data-row={at + offset} onClick={() => onPick?.(at)}>
            <Side step={row.left} changed={changed} side="was" isNew={!row.right} />
            <span class="middle" role="cell">
              {row.left?.step ?? row.right?.step}
            </span>
            <Side step={row.right} changed={changed} side="is" isNew={!row.left} />
          </div>
        );
      })}
    </div>
  );
}

/** The argument that a path of a change names, "" for another kind of change. */
function changedKey(path: string): string {
  return /(?:^|\.)args\.([^.[]+)/.exec(path)?.[1] ?? "";
}

function Side({ step, changed, side }: { step: StepRow | undefined; changed: ReadonlySet<string>; side: "was" | "is"; isNew: boolean }) {
  if (!step) return <div class="side is-hole" role="cell" aria-label="No such step" />;
  const start = parseTime(step.started_at);
  const end = parseTime(step.ended_at);
  const [only] = step.calls;
  const name = step.calls.length === 1 ? only?.tool : step.calls.length > 1 ? `${step.calls.length} calls side by side` : WORDS[step.decision] ?? (step.decision || "deciding");
  return (
    <div class="side" role="cell">
      <span class="side-number">{step.step}</span>
      <Glyph name={glyphOf(step)} />
      <div class="side-text">
        <code>{name}</code>
        {step.calls.length === 1 && only ? <Args call={only} changed={changed} side={side} /> : step.preview !== name && <p title={step.preview}>{cutText(step.preview.replace(/^finish \(\w+\): /, ""), 160)}</p>}
        {step.waits.filter((wait) => wait.reason === "approval_required").map((wait) => (
          <p key={wait.token}>
            {wait.decision ? `${wait.by?.user ?? "the deadline"} ${wait.decision === "approve" ? "approved" : `ended it: ${wait.decision}`}` : "waits for an approval"}
            {waited(wait.opened_at, wait.settled_at)}
          </p>
        ))}
        {step.calls.map((call) => (
          <CallLine key={call.call_id} call={call} hasName={step.calls.length > 1} />
        ))}
      </div>
      <span class="number soft">{start !== null && end !== null ? formatDuration(end - start) : ""}</span>
      <span class="number faint">{step.usd ? formatMoney(step.usd, "step") : ""}</span>
    </div>
  );
}

const WORDS: Readonly<Record<string, string>> = { Finish: "finish", SpawnTask: "child run", AwaitTask: "waits for a child run", RequestPause: "asks a person" };

function glyphOf(step: StepRow): GlyphName {
  if (step.calls.some((call) => call.status === "unknown")) return "unknown";
  if (step.calls.some((call) => call.status === "held_back")) return "paused";
  if (step.status === "failed" || step.calls.some((call) => call.status === "failed")) return "failed";
  if (step.status === "waiting") return "waiting";
  return step.status === "running" ? "running" : "complete";
}

function waited(from: string, to: string): string {
  const [start, end] = [parseTime(from), parseTime(to)];
  return start !== null && end !== null ? ` after ${formatDuration(end - start)}` : "";
}

function Args({ call, changed, side }: { call: CallRow; changed: ReadonlySet<string>; side: "was" | "is" }) {
  const args = useMemo(() => parsed(call.args_preview), [call.args_preview]);
  if (!isObject(args)) return <p class="cut">{call.args_preview}</p>;
  return (
    <p class="side-args">
      {Object.entries(args).map(([key, value], at) => (
        <span key={key}>
          {at > 0 && ", "}
          {key} {changed.has(key) ? <mark class={side}>{JSON.stringify(value)}</mark> : cutText(JSON.stringify(value), 80)}
        </span>
      ))}
    </p>
  );
}

function parsed(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

function CallLine({ call, hasName }: { call: CallRow; hasName: boolean }) {
  const state = callState(call.status as never);
  if (call.status === "open" && call.attempts === 0) return null;
  const text = call.status === "held_back" ? "held back: it has effects" : call.status === "done" ? cutText(call.result_preview ?? "", 120) : call.error ? `${call.error.class} ${call.error.message}` : state.word;
  if (!text && !hasName) return null;
  return (
    <p class={`cut ${call.status === "failed" ? "is-failed" : call.status === "unknown" ? "is-unknown" : ""}`} title={text}>
      {hasName && <code>{call.tool} </code>}
      {text}
    </p>
  );
}

/** What differs in one step: its arguments, its reasoning, its answer, as differences of text. */
export function StepDifference({ row, ids, session }: { row: ComparedRow; ids: readonly [string, string]; session: string }) {
  const options = session ? { session } : {};
  const [left] = useCall("runs.step", { id: ids[0], step: row.left.step }, options);
  const [right] = useCall("runs.step", { id: ids[1], step: row.right.step }, options);
  if (left.state !== "ready" || right.state !== "ready") return null;
  const [was, is] = [left.data as StepAnswer, right.data as StepAnswer];
  const reasons = [was.said?.reasoning ?? "", is.said?.reasoning ?? ""] as const;
  const values = [valueText(was), valueText(is)] as const;
  return (
    <div class="step-differences">
      {values[0] !== values[1] && (
        <section>
          <div class="pane-head">
            <h2>{was.said?.decision === "CallTool" && is.said?.decision === "CallTool" ? "Arguments" : "Decision"} of step {row.left.step}</h2>
            {row.changes?.length > 0 && <span class="count">{plural(row.changes.length, "value")} changed</span>}
          </div>
          <TextDiff left={values[0]} right={values[1]} label="Decisions of both" />
        </section>
      )}
      {reasons[0] !== reasons[1] && (
        <section>
          <div class="pane-head">
            <h2>Reasoning of step {row.left.step}</h2>
            <span class="count">what led there</span>
          </div>
          <TextDiff left={reasons[0]} right={reasons[1]} label="Reasoning of both" />
        </section>
      )}
    </div>
  );
}

/** A decision as lines: the arguments one a line where it is one call. */
function valueText(answer: StepAnswer): string {
  const value = answer.said?.value as Json | undefined;
  const args = isObject(value) ? value["args"] : undefined;
  if (answer.said?.decision === "CallTool" && isObject(value) && isObject(args)) {
    const lines = Object.keys(args).sort().map((key) => `${key}: ${JSON.stringify(args[key])}`);
    return [String(value["tool"] ?? ""), ...lines].join("\n");
  }
  const { call_id: _id, ...rest } = isObject(value) ? value : {};
  return JSON.stringify(rest, null, 2);
}
