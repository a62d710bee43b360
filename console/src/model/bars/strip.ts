import type { Moment, RunView, StepView } from "../events/views.ts";
import { activeStepTime } from "./rows.ts";

/** The tokens of one call of the model, on the timeline's axis. */
export interface TokenBar {
  readonly start: Moment;
  readonly end: Moment;
  readonly tokens: number;
  readonly cached: number;
  readonly step: number;
  readonly runId: string;
}

/** What was paid until a moment: the line goes up there. */
export interface CostPoint {
  readonly at: Moment;
  readonly usd: number;
}

export interface Ledger {
  readonly bars: readonly TokenBar[];
  readonly mostTokens: number;
  readonly costs: readonly CostPoint[];
  readonly usd: number;
  readonly tokens: number;
}

/** The ledger strip of a run, with the child runs that are given. */
export function ledgerOf(runs: readonly RunView[]): Ledger {
  const calls = runs
    .flatMap((run) => run.steps.flatMap((step) => step.modelCalls.map((call) => ({ run, step, call }))))
    .sort((a, b) => a.call.endedAt - b.call.endedAt);
  const bars = calls.map(({ run, step, call }) => ({
    start: call.startedAt,
    end: call.endedAt,
    tokens: call.tokens.total,
    cached: call.tokens.cached,
    step: step.number,
    runId: run.id,
  }));
  let usd = 0;
  const costs = calls.map(({ call }) => ({ at: call.endedAt, usd: (usd += call.usd) }));
  const mostTokens = bars.reduce((most, bar) => Math.max(most, bar.tokens), 0);
  return { bars, mostTokens, costs, usd, tokens: bars.reduce((sum, bar) => sum + bar.tokens, 0) };
}

/** What was paid at a moment, from the points of a ledger. */
export function costAt(costs: readonly CostPoint[], moment: Moment): number {
  return costs.findLast((point) => point.at <= moment)?.usd ?? 0;
}

export type MinimapMark = "failed" | "unknown" | "wait" | "";

/** A column of the minimap: the steps from `first` to `last`. */
export interface MinimapColumn {
  readonly first: number;
  readonly last: number;
  /** The time of the longest step, 0 to 1; on a scale of roots, so that short steps can be seen beside long ones. */
  readonly height: number;
  readonly mark: MinimapMark;
  /** What had been paid after the last of its steps, 0 to 1 of all. */
  readonly cost: number;
}

/** A run as at most `columns` columns of even width. */
export function minimapOf(run: RunView, columns: number, now: Moment): MinimapColumn[] {
  const { steps } = run;
  if (steps.length === 0 || columns < 1) return [];
  const times = steps.map((step) => activeStepTime(step, now));
  const longest = times.reduce((most, time) => Math.max(most, time), 1);
  const paid = runningCosts(steps);
  const total = paid[paid.length - 1] || 1;
  const count = Math.min(Math.floor(columns), steps.length);
  return Array.from({ length: count }, (_, at) => {
    const from = Math.floor((at * steps.length) / count);
    const to = Math.floor(((at + 1) * steps.length) / count);
    const part = steps.slice(from, to);
    return {
      first: (part[0] as StepView).number,
      last: (part[part.length - 1] as StepView).number,
      height: Math.sqrt(times.slice(from, to).reduce((most, time) => Math.max(most, time), 0) / longest),
      mark: worstMark(part),
      cost: (paid[to - 1] ?? 0) / total,
    };
  });
}

function runningCosts(steps: readonly StepView[]): number[] {
  let usd = 0;
  return steps.map((step) => (usd += step.modelCalls.reduce((sum, call) => sum + call.usd, 0)));
}

function worstMark(steps: readonly StepView[]): MinimapMark {
  const marks = steps.map(markOf);
  return marks.find((mark) => mark === "unknown") ?? marks.find((mark) => mark === "failed") ?? marks.find(Boolean) ?? "";
}

function markOf(step: StepView): MinimapMark {
  if (step.calls.some((call) => call.status === "unknown")) return "unknown";
  if (isFailed(step)) return "failed";
  return isWait(step) ? "wait" : "";
}

function isFailed(step: StepView): boolean {
  return step.status === "failed" || step.calls.some((call) => call.status === "failed");
}

function isWait(step: StepView): boolean {
  return step.waits.some((wait) => wait.token !== "");
}

/** The numbers of the steps behind the jump chips "5 failed · 3 waits · 2 controls". */
export interface Jumps {
  readonly failed: readonly number[];
  readonly waits: readonly number[];
  readonly controls: readonly number[];
}

export function jumpsOf(run: RunView): Jumps {
  const numbers = (wanted: (step: StepView) => boolean): number[] => run.steps.filter(wanted).map((step) => step.number);
  const controls = run.controls.map((control) => control.step).filter((step) => step !== null);
  return { failed: numbers(isFailed), waits: numbers(isWait), controls: [...new Set(controls)].sort((a, b) => a - b) };
}

/** The numbers of the steps that hold all words of a search: in tools, arguments, results, text and reasoning. */
export function findSteps(run: RunView, query: string): number[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  return run.steps.filter((step) => holds(step, words)).map((step) => step.number);
}

function holds(step: StepView, words: readonly string[]): boolean {
  const calls = step.calls.flatMap((call) => [call.tool, call.error?.message ?? "", JSON.stringify([call.args, call.result])]);
  const text = [`${step.number}`, step.decision, step.preview, step.text, step.reasoning, ...calls].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}
