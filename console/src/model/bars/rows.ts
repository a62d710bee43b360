import type { Json } from "../json.ts";
import { isObject } from "../json.ts";
import type { ChildRef, Moment, RunView, StepView, ToolCall } from "../events/views.ts";
import { isEnd } from "../events/run-state.ts";
import { cutText } from "../formats.ts";
import { stepTitle, type Tone } from "../status.ts";
import { barsOfCall, barsOfStep, childBar, type Bar, type BarKind, type EffectsOf } from "./bars.ts";

/** One row of the timeline. */
export interface Row {
  /** Unique in the timeline and the same while the run goes on. */
  readonly id: string;
  readonly runId: string;
  readonly step: number;
  readonly callId: string;
  /** The run that unfolds below it, "" for none. */
  readonly childId: string;
  readonly kind: "step" | "call" | "calls" | "child";
  readonly depth: number;
  /** "3", "3.1", "3.1–3.8". */
  readonly label: string;
  readonly title: string;
  readonly args: string;
  readonly mark: BarKind;
  readonly bars: readonly Bar[];
  /** Time at work, without waits for people and workers; null while nothing has begun. */
  readonly activeMs: number | null;
  readonly usd: number | null;
  /** Said behind the bar: the result, or why there is none. */
  readonly note: string;
  readonly tone: Tone;
  readonly isExpandable: boolean;
  readonly isExpanded: boolean;
  /** Where it stands among the rows of its parent, from 1. */
  readonly position: number;
  /** How many rows its parent has; -1 while that is not known, because the run goes on. */
  readonly siblings: number;
}

export interface RowOptions {
  /** Rows that a person folded or unfolded against the default, by id. */
  readonly toggled: ReadonlySet<string>;
  readonly childOf: (id: string) => RunView | undefined;
  readonly effectsOf: EffectsOf;
  readonly now: Moment;
}

/** So many alike leaf calls in a row fold to one. */
export const ALIKE_CALLS = 5;
/** From so many steps on a run is long: parallel steps and children begin folded, and there is a minimap. */
export const LONG_RUN = 200;
const MOST_DEPTH = 12;
const NOTE_CHARACTERS = 60;
const ARGS_CHARACTERS = 160;

/** The rows of a run's timeline, with those of its parallel calls and child runs where they are unfolded. */
export function rowsOf(run: RunView, options: RowOptions): Row[] {
  return runRows(run, options, 0, new Set([run.id]), "");
}

function runRows(run: RunView, options: RowOptions, depth: number, seen: ReadonlySet<string>, prefix: string): Row[] {
  const isLong = run.steps.length >= LONG_RUN;
  return run.steps.flatMap((step, at) => {
    const place = { run, step, at, depth, isLong, id: `${prefix}${run.id}/${step.number}` };
    return stepRows(place, options, seen);
  });
}

interface Place {
  readonly run: RunView;
  readonly step: StepView;
  readonly at: number;
  readonly depth: number;
  readonly isLong: boolean;
  readonly id: string;
}

function stepRows(place: Place, options: RowOptions, seen: ReadonlySet<string>): Row[] {
  const { step, depth, id, isLong } = place;
  const children = depth < MOST_DEPTH ? knownChildren(step, options, seen) : [];
  const isParallel = step.calls.length > 1;
  const isExpandable = isParallel || children.length > 0;
  const isExpanded = isExpandable && !isLong !== options.toggled.has(id);
  const row = stepRow(place, options, children, isExpandable, isExpanded);
  if (!isExpanded) return [row];
  const calls = isParallel ? callRows(place, options) : [];
  const only = !isParallel && children.length === 1;
  const runs = children.flatMap((child) => childRows(child, place, options, seen, only));
  return [row, ...calls, ...runs];
}

function knownChildren(step: StepView, options: RowOptions, seen: ReadonlySet<string>): RunView[] {
  const ids = step.children.map((child) => child.id).filter((id) => !seen.has(id));
  return ids.map(options.childOf).filter((child) => child !== undefined);
}

/** A child run unfolds in place: its steps below the step that started it, or below a row of its own. */
function childRows(child: RunView, place: Place, options: RowOptions, seen: ReadonlySet<string>, only: boolean): Row[] {
  const inner = new Set([...seen, child.id]);
  if (only) return runRows(child, options, place.depth + 1, inner, `${place.id}/`);
  const id = `${place.id}/${child.id}`;
  const isExpanded = options.toggled.has(id);
  const head: Row = {
    ...EMPTY_ROW,
    id,
    runId: child.id,
    childId: child.id,
    kind: "child",
    depth: place.depth + 1,
    title: child.agent || "child run",
    args: cutText(child.goal, ARGS_CHARACTERS),
    mark: "child",
    bars: [childBar(child)],
    activeMs: activeTime(child, options.now),
    usd: child.usd || null,
    isExpandable: child.steps.length > 0,
    isExpanded,
  };
  return isExpanded ? [head, ...runRows(child, options, place.depth + 2, inner, `${id}/`)] : [head];
}

const EMPTY_ROW: Row = {
  id: "",
  runId: "",
  step: 0,
  callId: "",
  childId: "",
  kind: "step",
  depth: 0,
  label: "",
  title: "",
  args: "",
  mark: "model",
  bars: [],
  activeMs: null,
  usd: null,
  note: "",
  tone: "idle",
  isExpandable: false,
  isExpanded: false,
  position: 1,
  siblings: 1,
};

/** Rows of steps that have ended and unfold nothing are made once. */
const made = new WeakMap<StepView, { readonly row: Row; readonly effect: string }>();

function stepRow(
  place: Place,
  options: RowOptions,
  children: readonly RunView[],
  isExpandable: boolean,
  isExpanded: boolean,
): Row {
  const { run, step, at, depth, id } = place;
  const [only] = step.calls;
  const effect = only ? only.sideEffect || options.effectsOf(only.tool) : "";
  const siblings = isEnd(run.status) ? run.steps.length : -1;
  const known = isExpandable ? undefined : made.get(step);
  if (known?.effect === effect && isSamePlace(known.row, id, depth, at, siblings)) return known.row;
  const bars = barsOfStep(step, options.effectsOf, !isExpanded || step.calls.length < 2);
  const row: Row = {
    ...EMPTY_ROW,
    id,
    runId: run.id,
    step: step.number,
    callId: step.calls.length === 1 ? (only?.id ?? "") : "",
    childId: children.length === 1 ? (children[0]?.id ?? "") : "",
    depth,
    label: `${step.number}`,
    title: titleOf(step, children),
    args: step.calls.length === 1 && only ? argsPreview(only) : childGoal(step, children),
    mark: markOf(step, options.effectsOf),
    bars: [...bars, ...children.map(childBar)],
    activeMs: activeStepTime(step, options.now),
    usd: stepUsd(step),
    note: step.calls.length === 1 && only ? callNote(only) : (step.error?.message ?? ""),
    tone: toneOf(step),
    isExpandable,
    isExpanded,
    position: at + 1,
    siblings,
  };
  if (step.endedAt !== null && !isExpandable) made.set(step, { row, effect });
  return row;
}

function isSamePlace(row: Row, id: string, depth: number, at: number, siblings: number): boolean {
  return row.id === id && row.depth === depth && row.position === at + 1 && row.siblings === siblings;
}

function titleOf(step: StepView, children: readonly RunView[]): string {
  const names = children.map((child) => child.agent).filter(Boolean);
  return step.decision === "SpawnTask" && names.length ? names.join(", ") : stepTitle(step);
}

function childGoal(step: StepView, children: readonly RunView[]): string {
  const described = step.children.map((child: ChildRef) => child.description).find(Boolean) ?? "";
  return children.length === 1 ? cutText(children[0]?.goal || described, ARGS_CHARACTERS) : described;
}

// ── Calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

function callRows(place: Place, options: RowOptions): Row[] {
  const groups = alikeGroups(place.step.calls);
  return groups.flatMap((calls, at) => {
    const id = `${place.id}.${calls[0]?.branch}`;
    const where = { position: at + 1, siblings: groups.length };
    if (calls.length < ALIKE_CALLS) return calls.map((call) => ({ ...callRow(call, place, options), ...where }));
    const isExpanded = options.toggled.has(`${id}×`);
    const head = { ...alikeRow(calls, place, options), id: `${id}×`, isExpanded, ...where };
    return isExpanded ? [head, ...calls.map((call) => ({ ...callRow(call, place, options), depth: place.depth + 2 }))] : [head];
  });
}

/** Calls in a row to the same tool, together where they are so many that they fold, else each alone. */
function alikeGroups(calls: readonly ToolCall[]): ToolCall[][] {
  const runs: ToolCall[][] = [];
  for (const call of calls) {
    const last = runs[runs.length - 1];
    if (last && last[0]?.tool === call.tool) last.push(call);
    else runs.push([call]);
  }
  return runs.flatMap((run) => (run.length >= ALIKE_CALLS ? [run] : run.map((call) => [call])));
}

function callRow(call: ToolCall, place: Place, options: RowOptions): Row {
  return {
    ...EMPTY_ROW,
    id: `${place.id}.${call.branch}`,
    runId: place.run.id,
    step: place.step.number,
    callId: call.id,
    kind: "call",
    depth: place.depth + 1,
    label: `${place.step.number}.${call.branch}`,
    title: call.tool,
    args: argsPreview(call),
    mark: callMark(call, options.effectsOf),
    bars: [...place.step.waits.filter((wait) => wait.callId === call.id).flatMap((wait) => waitBarOf(wait)), ...barsOfCall(call, options.effectsOf)],
    activeMs: call.startedAt === null ? null : (call.endedAt ?? options.now) - call.startedAt,
    note: callNote(call),
    tone: callTone(call),
  };
}

function waitBarOf(wait: StepView["waits"][number]): Bar[] {
  return [{ kind: "wait", start: wait.openedAt, end: wait.settledAt, attempts: 1, callId: wait.callId }];
}

function alikeRow(calls: readonly ToolCall[], place: Place, options: RowOptions): Row {
  const rows = calls.map((call) => callRow(call, place, options));
  const [first, last] = [rows[0] as Row, rows[rows.length - 1] as Row];
  const failed = calls.filter((call) => call.status === "failed").length;
  const started = calls.map((call) => call.startedAt ?? Infinity);
  const ended = calls.map((call) => call.endedAt ?? options.now);
  return {
    ...first,
    callId: "",
    kind: "calls",
    label: `${first.label}–${last.label}`,
    title: `${first.title} ×${calls.length}`,
    args: "",
    bars: rows.flatMap((row) => row.bars),
    activeMs: Number.isFinite(Math.min(...started)) ? Math.max(...ended) - Math.min(...started) : null,
    note: failed ? `${failed} failed` : "",
    tone: failed ? "failed" : (rows.find((row) => row.tone !== "complete")?.tone ?? "complete"),
    isExpandable: true,
  };
}

/** Arguments on one line: `item="tea", count=20`. */
export function argsPreview(call: ToolCall): string {
  if (call.args === undefined) return cutText(call.argsCut?.preview ?? "", ARGS_CHARACTERS);
  if (!isObject(call.args)) return cutText(shortJson(call.args), ARGS_CHARACTERS);
  return cutText(
    Object.entries(call.args)
      .map(([key, value]) => `${key}=${shortJson(value)}`)
      .join(", "),
    ARGS_CHARACTERS,
  );
}

function shortJson(value: Json): string {
  return JSON.stringify(value) ?? "";
}

/** What is said behind the bar of a call. */
export function callNote(call: ToolCall): string {
  const tries = call.attempts > 1 ? ` after ${call.attempts} attempts` : "";
  switch (call.status) {
    case "failed":
      return cutText(`failed${tries}: ${call.error?.message || call.error?.class || ""}`.replace(/: $/, ""), NOTE_CHARACTERS);
    case "unknown":
      return "may have acted";
    case "rejected":
      return cutText(call.error?.message ? `rejected: ${call.error.message}` : "rejected", NOTE_CHARACTERS);
    case "open":
      return call.progress ? progressNote(call.progress) : "";
    case "done":
      return doneNote(call);
    default:
      return call.status === "held_back" ? "held back" : "";
  }
}

function progressNote(progress: NonNullable<ToolCall["progress"]>): string {
  const share = progress.done !== null && progress.total ? `${Math.floor((100 * progress.done) / progress.total)} %` : "";
  return cutText([share, progress.message].filter(Boolean).join(" "), NOTE_CHARACTERS);
}

function doneNote(call: ToolCall): string {
  const value = call.result;
  const result = value === undefined ? (call.resultCut?.preview ?? "") : typeof value === "string" ? value : shortJson(value);
  const attempts = call.attempts > 1 ? `${call.attempts} attempts` : "";
  return [cutText(result, NOTE_CHARACTERS), attempts].filter(Boolean).join(" · ");
}

// ── Marks, tones and time ─────────────────────────────────────────────────────────────────────────────────────────────

function markOf(step: StepView, effects: EffectsOf): BarKind {
  if (step.children.length > 0) return "child";
  if (step.decision === "AwaitTask") return "await";
  if (step.decision === "RequestPause") return "wait";
  const [first] = step.calls;
  if (!first) return step.status === "failed" ? "failed" : "model";
  return step.calls.length === 1 ? callMark(first, effects) : (step.status === "failed" ? "failed" : "tool");
}

function callMark(call: ToolCall, effects: EffectsOf): BarKind {
  const [bar] = barsOfCall(call, effects).slice(-1);
  return bar?.kind ?? (call.status === "waiting" ? "wait" : "rejected");
}

function toneOf(step: StepView): Tone {
  if (step.calls.some((call) => call.status === "unknown")) return "unknown";
  if (step.status === "failed" || step.calls.some((call) => call.status === "failed")) return "failed";
  if (step.status === "waiting") return "waiting";
  return step.endedAt === null ? "running" : step.status === "cut" ? "idle" : "complete";
}

function callTone(call: ToolCall): Tone {
  switch (call.status) {
    case "open":
      return "running";
    case "waiting":
      return "waiting";
    case "failed":
      return "failed";
    case "unknown":
      return "unknown";
    default:
      return call.status === "done" ? "complete" : "idle";
  }
}

function stepUsd(step: StepView): number | null {
  return step.modelCalls.length ? step.modelCalls.reduce((sum, call) => sum + call.usd, 0) : null;
}

/** How long a step worked: without its waits for people, events and workers. */
export function activeStepTime(step: StepView, now: Moment): number {
  const end = step.endedAt ?? now;
  const idle = step.waits
    .filter((wait) => wait.reason !== "child" && wait.reason !== "timer")
    .map((wait) => ({ start: wait.openedAt, end: Math.min(wait.settledAt ?? now, end) }));
  return Math.max(0, end - step.startedAt - lengthOf(idle));
}

/** How long a run worked. */
export function activeTime(run: RunView, now: Moment): number {
  return run.steps.reduce((sum, step) => sum + activeStepTime(step, now), 0);
}

/** The length of what stretches cover together. */
function lengthOf(stretches: { readonly start: Moment; readonly end: Moment }[]): number {
  let covered = 0;
  let until = -Infinity;
  for (const { start, end } of stretches.sort((a, b) => a.start - b.start)) {
    covered += Math.max(0, end - Math.max(start, until));
    until = Math.max(until, end);
  }
  return covered;
}
