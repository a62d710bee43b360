import { isObject, isSameJson, type Json } from "../json.ts";
import type { RunView, StepView, ToolCall } from "../events/views.ts";
import { activeTime } from "../bars/rows.ts";

/** A value that differs: where it stands (`count`, `items[2].price`), and what it is on each side. */
export interface ValueChange {
  readonly path: string;
  /** Absent where that side does not have it. */
  readonly left?: Json;
  readonly right?: Json;
}

/** Two steps side by side; a side without a step is a hole. */
export interface ComparedRow {
  readonly left: StepView | null;
  readonly right: StepView | null;
  readonly isSame: boolean;
  readonly changes: readonly ValueChange[];
}

export interface Comparison {
  /** How many leading steps are alike; they are shown as one folded line. */
  readonly shared: number;
  readonly rows: readonly ComparedRow[];
  /** "First difference: step 5, `count` of `place_order`", in parts; null if the runs are alike. */
  readonly first: { readonly step: number; readonly path: string; readonly tool: string } | null;
  /** The places of the rows that differ, for "next difference". */
  readonly differences: readonly number[];
}

const MOST_CHANGES = 50;

/** Compare two runs step by step. After the first difference steps with the same decision are aligned. */
export function compareRuns(left: RunView, right: RunView): Comparison {
  const shared = sharedSteps(left.steps, right.steps);
  const rows = alignSteps(left.steps.slice(shared), right.steps.slice(shared));
  const differences = rows.flatMap((row, at) => (row.isSame ? [] : [at]));
  return { shared, rows, first: firstDifference(rows[differences[0] ?? -1]), differences };
}

function firstDifference(row: ComparedRow | undefined): Comparison["first"] {
  if (!row) return null;
  const step = row.right ?? row.left;
  return { step: step?.number ?? 0, path: row.changes[0]?.path ?? "", tool: step?.tool || step?.calls[0]?.tool || "" };
}

function sharedSteps(left: readonly StepView[], right: readonly StepView[]): number {
  let count = 0;
  while (count < left.length && count < right.length && isAlike(left[count], right[count])) count += 1;
  return count;
}

function isAlike(left: StepView | undefined, right: StepView | undefined): boolean {
  return left !== undefined && right !== undefined && changesOf(left, right).length === 0;
}

// ── Alignment ─────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Steps beyond this many are aligned by their place alone. */
const MOST_ALIGNED = 400;

function alignSteps(left: readonly StepView[], right: readonly StepView[]): ComparedRow[] {
  const pairs =
    left.length * right.length > MOST_ALIGNED ** 2 ? pairByPlace(left, right) : pairByKind(left.map(kindOf), right.map(kindOf));
  return pairs.map(([at, other]) => compared(at === null ? null : left[at], other === null ? null : right[other]));
}

type Pair = readonly [left: number | null, right: number | null];

function pairByPlace(left: readonly unknown[], right: readonly unknown[]): Pair[] {
  const count = Math.max(left.length, right.length);
  return Array.from({ length: count }, (_, at) => [at < left.length ? at : null, at < right.length ? at : null]);
}

/** What a step is about: its decision and tools, not their arguments. */
function kindOf(step: StepView): string {
  return [step.decision, step.tool, ...step.calls.map((call) => call.tool)].join(" ");
}

/** The longest common sequence of kinds; between two shared ones steps pair by place, the rest are holes. */
function pairByKind(left: readonly string[], right: readonly string[]): Pair[] {
  const lengths = commonLengths(left, right);
  const pairs: Pair[] = [];
  let [at, other] = [0, 0];
  while (at < left.length && other < right.length) {
    if (left[at] === right[other]) pairs.push([at++, other++]);
    else if ((lengths[at + 1]?.[other] ?? 0) >= (lengths[at]?.[other + 1] ?? 0)) pairs.push([at++, null]);
    else pairs.push([null, other++]);
  }
  while (at < left.length) pairs.push([at++, null]);
  while (other < right.length) pairs.push([null, other++]);
  return joinHoles(pairs);
}

function commonLengths(left: readonly string[], right: readonly string[]): number[][] {
  const lengths = Array.from({ length: left.length + 1 }, () => new Array<number>(right.length + 1).fill(0));
  for (let at = left.length - 1; at >= 0; at -= 1) {
    for (let other = right.length - 1; other >= 0; other -= 1) {
      const row = lengths[at] as number[];
      const below = lengths[at + 1] as number[];
      row[other] = left[at] === right[other] ? (below[other + 1] ?? 0) + 1 : Math.max(below[other] ?? 0, row[other + 1] ?? 0);
    }
  }
  return lengths;
}

/** Holes that face each other are one row: a step was decided otherwise. */
function joinHoles(pairs: readonly Pair[]): Pair[] {
  const found: Pair[] = [];
  let lefts: number[] = [];
  let rights: number[] = [];
  const flush = (): void => {
    found.push(...pairByPlace(lefts, rights).map(([at, other]): Pair => [at === null ? null : (lefts[at] ?? null), other === null ? null : (rights[other] ?? null)]));
    lefts = [];
    rights = [];
  };
  for (const [at, other] of pairs) {
    if (at !== null && other !== null) {
      flush();
      found.push([at, other]);
    } else if (at !== null) lefts.push(at);
    else if (other !== null) rights.push(other);
  }
  flush();
  return found;
}

function compared(left: StepView | null | undefined, right: StepView | null | undefined): ComparedRow {
  const changes = left && right ? changesOf(left, right) : [];
  return { left: left ?? null, right: right ?? null, isSame: Boolean(left && right) && changes.length === 0, changes };
}

// ── Values ────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** What differs in two steps: the decision, then arguments, results and how calls ended. */
export function changesOf(left: StepView, right: StepView): ValueChange[] {
  if (left.decision !== right.decision) return [{ path: "decision", left: left.decision, right: right.decision }];
  if (kindOf(left) !== kindOf(right)) return [{ path: "tool", left: toolsOf(left), right: toolsOf(right) }];
  const calls = left.calls.flatMap((call, at) => callChanges(call, right.calls[at] as ToolCall, left.calls.length > 1));
  const answer = left.decision === "Finish" && left.text !== right.text ? [{ path: "answer", left: left.text, right: right.text }] : [];
  return [...calls, ...answer].slice(0, MOST_CHANGES);
}

function toolsOf(step: StepView): string {
  return step.calls.map((call) => call.tool).join(", ") || step.tool;
}

function callChanges(left: ToolCall, right: ToolCall, isOneOfMany: boolean): ValueChange[] {
  const prefix = isOneOfMany ? `${left.branch}.` : "";
  const args = diffJson(left.args, right.args);
  const results = diffJson(left.result, right.result).map((change) => ({ ...change, path: joinPath("result", change.path) }));
  const ends = left.status === right.status ? [] : [{ path: "status", left: left.status, right: right.status }];
  return [...args, ...ends, ...results].map((change) => ({ ...change, path: prefix + change.path }));
}

/** Every value that differs in two JSON values, with its path; at most 50. */
export function diffJson(left: Json | undefined, right: Json | undefined, path = ""): ValueChange[] {
  if (left === undefined && right === undefined) return [];
  if (left === undefined) return [{ path, right: right as Json }];
  if (right === undefined) return [{ path, left }];
  if (isSameJson(left, right)) return [];
  if (isObject(left) && isObject(right)) {
    const keys = [...new Set([...Object.keys(left), ...Object.keys(right)])];
    return keys.flatMap((key) => diffJson(ownValue(left, key), ownValue(right, key), joinPath(path, key))).slice(0, MOST_CHANGES);
  }
  if (Array.isArray(left) && Array.isArray(right)) {
    const count = Math.max(left.length, right.length);
    const places = Array.from({ length: count }, (_, at) => diffJson(left[at] as Json, right[at] as Json, `${path}[${at}]`));
    return places.flat().slice(0, MOST_CHANGES);
  }
  return [{ path, left, right }];
}

function ownValue(value: { readonly [key: string]: Json }, key: string): Json | undefined {
  return Object.hasOwn(value, key) ? value[key] : undefined;
}

function joinPath(path: string, key: string): string {
  if (!path) return key;
  return key.startsWith("[") ? path + key : key ? `${path}.${key}` : path;
}

// ── Figures ───────────────────────────────────────────────────────────────────────────────────────────────────────────

export interface Figure {
  readonly name: "steps" | "calls" | "tokens" | "usd" | "activeMs";
  readonly left: number;
  readonly right: number;
  readonly change: number;
}

/** The figures above the comparison, with their difference. */
export function compareFigures(left: RunView, right: RunView, now: number): Figure[] {
  const figures = (run: RunView): Record<Figure["name"], number> => ({
    steps: run.steps.length,
    calls: run.steps.reduce((sum, step) => sum + step.calls.length, 0),
    tokens: run.tokens.total,
    usd: run.usd,
    activeMs: activeTime(run, now),
  });
  const [one, other] = [figures(left), figures(right)];
  const names = Object.keys(one) as Figure["name"][];
  return names.map((name) => ({ name, left: one[name], right: other[name], change: other[name] - one[name] }));
}
