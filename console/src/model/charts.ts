import type { Moment, PauseView, RunView } from "./events/views.ts";
import { entryOf } from "./json.ts";
import { parseTime } from "./events/wire.ts";

/** Where the runs behind a mark are listed: a page and its filters, as `query.ts` writes them. */
export interface ChartLink {
  readonly page: "tasks" | "tools" | "events" | "inbox";
  readonly filters: Readonly<Record<string, readonly string[]>>;
}

/** One bar of a chart of amounts. */
export interface Amount {
  readonly key: string;
  readonly label: string;
  readonly value: number;
  /** Of all, 0 to 1. */
  readonly share: number;
  readonly link: ChartLink;
}

// ── Events over time ──────────────────────────────────────────────────────────────────────────────────────────────────

/** A bucket of `events.aggregate`. */
export interface CountedBucket {
  readonly bucket_start: string;
  readonly bucket_end: string;
  readonly counts: Readonly<Record<string, number>>;
}

const MINUTE_NS = 60_000_000_000;

/** The windows that charts ask for, in nanoseconds; each is a whole number of buckets. */
export const WINDOWS = {
  "5m": { window: 5 * MINUTE_NS, bucket: MINUTE_NS / 2 },
  "1h": { window: 60 * MINUTE_NS, bucket: MINUTE_NS },
  "24h": { window: 24 * 60 * MINUTE_NS, bucket: 5 * MINUTE_NS },
  "7d": { window: 7 * 24 * 60 * MINUTE_NS, bucket: 60 * MINUTE_NS },
  "30d": { window: 30 * 24 * 60 * MINUTE_NS, bucket: 24 * 60 * MINUTE_NS },
} as const;

export type WindowName = keyof typeof WINDOWS;

/** What events belong together in a stacked rate, from the bottom up. */
export const FAMILIES = ["llm", "tool", "task", "control", "other", "failed"] as const;
export type Family = (typeof FAMILIES)[number];

const FAILED = new Set([
  "task.failed",
  "tool.failed",
  "tool.invalid_args",
  "tool.policy_exhausted",
  "runtime.error",
  "governance.budget_exceeded",
  "governance.rate_limited",
  "governance.maxtokens_exceeded",
  "llm.context_leak",
  "llm.context_window_exceeded",
  "planner.error",
  "planner.max_steps_exceeded",
  "planner.repair_exhausted",
]);

const FAMILY_OF: Readonly<Record<string, Family>> = {
  llm: "llm",
  planner: "llm",
  trajectory: "llm",
  tool: "tool",
  mcp: "tool",
  task: "task",
  control: "control",
  pause: "control",
};

export function familyOf(type: string): Family {
  if (FAILED.has(type)) return "failed";
  return entryOf(FAMILY_OF, type.slice(0, Math.max(0, type.indexOf(".")))) ?? "other";
}

/** A column of a stacked rate. */
export interface RateColumn {
  readonly start: Moment;
  readonly end: Moment;
  readonly counts: Readonly<Record<Family, number>>;
  readonly total: number;
}

export function rateOf(buckets: readonly CountedBucket[]): RateColumn[] {
  return buckets.map((bucket) => {
    const counts: Record<Family, number> = { llm: 0, tool: 0, task: 0, control: 0, other: 0, failed: 0 };
    for (const [type, count] of Object.entries(bucket.counts)) counts[familyOf(type)] += count;
    const total = FAMILIES.reduce((sum, family) => sum + counts[family], 0);
    return { start: parseTime(bucket.bucket_start) ?? 0, end: parseTime(bucket.bucket_end) ?? 0, counts, total };
  });
}

/** How runs ended over time: columns of complete, failed and cancelled, each of which leads to its runs. */
export interface OutcomeColumn {
  readonly start: Moment;
  readonly end: Moment;
  readonly complete: number;
  readonly failed: number;
  readonly cancelled: number;
}

export function outcomesOf(buckets: readonly CountedBucket[]): OutcomeColumn[] {
  return buckets.map(({ bucket_start, bucket_end, counts }) => ({
    start: parseTime(bucket_start) ?? 0,
    end: parseTime(bucket_end) ?? 0,
    complete: counts["task.completed"] ?? 0,
    failed: counts["task.failed"] ?? 0,
    cancelled: counts["task.cancelled"] ?? 0,
  }));
}

/** The sum of some types over all buckets. */
export function countOf(buckets: readonly CountedBucket[], types: readonly string[]): number {
  return buckets.reduce((sum, bucket) => sum + types.reduce((inner, type) => inner + (bucket.counts[type] ?? 0), 0), 0);
}

/** The share of tool calls that failed, 0 to 1; null where none ended. */
export function toolFailureRate(buckets: readonly CountedBucket[]): number | null {
  const failed = countOf(buckets, ["tool.failed", "tool.invalid_args", "tool.policy_exhausted"]);
  const all = failed + countOf(buckets, ["tool.completed"]);
  return all === 0 ? null : failed / all;
}

// ── Cost ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** What the cost of a run is put down to. */
export type CostBy = "agent" | "model" | "tenant" | "user" | "session";

/** A row of `tasks.list`, as far as cost is concerned. */
export interface CostRow {
  readonly agent_name?: string;
  readonly cost_usd?: number;
  readonly parent_session_id: string;
  readonly identity?: { readonly tenant?: string; readonly user?: string };
}

/** Cost by agent, tenant, user or session, from task rows. Rows of a server that names no cost are left out. */
export function costOfRows(rows: readonly CostRow[], by: Exclude<CostBy, "model">): Amount[] {
  const keyOf = (row: CostRow): string => {
    switch (by) {
      case "agent":
        return row.agent_name ?? "";
      case "tenant":
        return row.identity?.tenant ?? "";
      case "user":
        return row.identity?.user ?? "";
      case "session":
        return row.parent_session_id;
    }
  };
  const known = rows.filter((row) => row.cost_usd !== undefined);
  return amountsOf(sumBy(known, keyOf, (row) => row.cost_usd ?? 0), (key) => ({ page: "tasks", filters: { [by]: [key] } }));
}

/** Cost by model or agent, from runs that were followed. */
export function costOfRuns(runs: readonly RunView[], by: "agent" | "model"): Amount[] {
  const link = (key: string): ChartLink => ({ page: "tasks", filters: { [by]: [key] } });
  if (by === "agent") return amountsOf(sumBy(runs, (run) => run.agent, (run) => run.usd), link);
  const calls = runs.flatMap((run) => run.steps.flatMap((step) => step.modelCalls));
  return amountsOf(sumBy(calls, (call) => call.model, (call) => call.usd), link);
}

/** Tokens by kind, from runs that were followed. */
export function tokensOfRuns(runs: readonly RunView[]): { readonly prompt: number; readonly cached: number; readonly completion: number; readonly reasoning: number } {
  const sum = (read: (run: RunView) => number): number => runs.reduce((total, run) => total + read(run), 0);
  return {
    prompt: sum((run) => run.tokens.prompt),
    cached: sum((run) => run.tokens.cached),
    completion: sum((run) => run.tokens.completion),
    reasoning: sum((run) => run.tokens.reasoning),
  };
}

function sumBy<T>(items: readonly T[], keyOf: (item: T) => string, valueOf: (item: T) => number): Map<string, number> {
  const sums = new Map<string, number>();
  for (const item of items) sums.set(keyOf(item), (sums.get(keyOf(item)) ?? 0) + valueOf(item));
  return sums;
}

/** The largest first; what has no name is called so. */
function amountsOf(sums: ReadonlyMap<string, number>, link: (key: string) => ChartLink): Amount[] {
  const total = [...sums.values()].reduce((sum, value) => sum + value, 0);
  return [...sums]
    .map(([key, value]) => ({ key, label: key || "unknown", value, share: total > 0 ? value / total : 0, link: link(key) }))
    .sort((a, b) => b.value - a.value || (a.key < b.key ? -1 : 1));
}

/** The first bars and the rest as one, whose link lists all. */
export function withRest(amounts: readonly Amount[], most: number, link: ChartLink): Amount[] {
  if (amounts.length <= most) return [...amounts];
  const rest = amounts.slice(most - 1);
  const value = rest.reduce((sum, one) => sum + one.value, 0);
  const share = rest.reduce((sum, one) => sum + one.share, 0);
  return [...amounts.slice(0, most - 1), { key: "", label: `${rest.length} others`, value, share, link }];
}

// ── Times ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** The middle, the slow and the slowest of some durations, in milliseconds. */
export interface Percentiles {
  readonly count: number;
  readonly p50: number;
  readonly p95: number;
  readonly most: number;
}

/** Null for none. Percentiles as the server counts them: the value at floor(q · (n − 1)). */
export function percentilesOf(durations: readonly number[]): Percentiles | null {
  if (durations.length === 0) return null;
  const sorted = durations.toSorted((a, b) => a - b);
  const at = (share: number): number => sorted[Math.floor(share * (sorted.length - 1))] as number;
  return { count: sorted.length, p50: at(0.5), p95: at(0.95), most: at(1) };
}

/** A pause as `pause.list` shows it. */
export interface PauseRow {
  readonly reason: string;
  readonly paused_at: string;
  readonly resumed_at: string;
}

/** How long people took to answer, in milliseconds: of pauses that have ended, and of those that a person ends. */
export function answerTimes(pauses: readonly (PauseRow | PauseView)[]): number[] {
  return pauses.flatMap((pause) => {
    const [opened, settled] =
      "paused_at" in pause ? [parseTime(pause.paused_at), parseTime(pause.resumed_at)] : [pause.openedAt, pause.settledAt];
    const isOfPerson = pause.reason === "approval_required" || pause.reason === "await_input";
    return isOfPerson && opened !== null && settled !== null ? [settled - opened] : [];
  });
}

/** How long calls of the model took, from runs that were followed. */
export function modelLatencies(runs: readonly RunView[]): number[] {
  return runs.flatMap((run) => run.steps.flatMap((step) => step.modelCalls.map((call) => call.endedAt - call.startedAt)));
}

/** What a tool's calls came to. */
export interface ToolFigures {
  readonly tool: string;
  readonly calls: number;
  readonly failed: number;
  /** 0 to 1. */
  readonly failureRate: number;
  readonly times: Percentiles | null;
  readonly link: ChartLink;
}

/** Every tool that runs called, the one with the most failures first. */
export function toolFigures(runs: readonly RunView[]): ToolFigures[] {
  return [...groupBy(endedCalls(runs), (call) => call.tool)]
    .map(([tool, all]) => {
      const failed = all.filter((call) => call.status === "failed").length;
      const times = percentilesOf(all.flatMap((call) => (call.startedAt === null || call.endedAt === null ? [] : [call.endedAt - call.startedAt])));
      const link: ChartLink = { page: "tools", filters: { tool: [tool] } };
      return { tool, calls: all.length, failed, failureRate: failed / all.length, times, link };
    })
    .sort((a, b) => b.failed - a.failed || b.calls - a.calls || (a.tool < b.tool ? -1 : 1));
}

function groupBy<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(keyOf(item));
    if (group) group.push(item);
    else groups.set(keyOf(item), [item]);
  }
  return groups;
}

function endedCalls(runs: readonly RunView[]): RunView["steps"][number]["calls"][number][] {
  const calls = runs.flatMap((run) => run.steps.flatMap((step) => step.calls));
  return calls.filter((call) => call.status === "done" || call.status === "failed");
}

// ── Scales and rates ──────────────────────────────────────────────────────────────────────────────────────────────────

/** A scale that begins at zero and ends at a round number, with its ticks. */
export interface Scale {
  readonly top: number;
  readonly ticks: readonly number[];
}

export function niceScale(most: number, wanted = 4): Scale {
  if (!(most > 0) || !Number.isFinite(most)) return { top: 1, ticks: [0, 1] };
  const rough = most / wanted;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 2.5, 5, 10].find((one) => one * unit >= rough * (1 - 1e-9)) ?? 10) * unit;
  const count = Math.ceil(most / step - 1e-9);
  return { top: step * count, ticks: Array.from({ length: count + 1 }, (_, at) => at * step) };
}

/** Events of the last minutes, counted by the page's own stream: a ring of one-minute buckets. */
export class RateCounter {
  private readonly counts = new Map<number, number>();

  constructor(private readonly minutes = 15) {}

  add(moment: Moment): void {
    const minute = Math.floor(moment / 60_000);
    this.counts.set(minute, (this.counts.get(minute) ?? 0) + 1);
    if (this.counts.size > this.minutes * 2) this.drop(minute - this.minutes);
  }

  /** The counts of the last minutes, the oldest first; the last is the minute that goes on. */
  read(now: Moment): number[] {
    const minute = Math.floor(now / 60_000);
    return Array.from({ length: this.minutes }, (_, at) => this.counts.get(minute - this.minutes + 1 + at) ?? 0);
  }

  private drop(before: number): void {
    for (const minute of this.counts.keys()) if (minute <= before) this.counts.delete(minute);
  }
}
