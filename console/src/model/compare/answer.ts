import type { Json } from "../json.ts";
import { recordedStep, type RecordedStep, type RunHistory } from "../events/history.ts";
import type { ComparedRow, Comparison, Figure, ValueChange } from "./runs.ts";

type Header = RunHistory["run"] & {
  readonly active_ms: number;
  readonly totals: { readonly steps: number; readonly tool_calls: number };
};

/** An answer of `runs.compare`, as far as it is read. */
export interface CompareAnswer {
  readonly runs: readonly Header[];
  readonly shared_steps: number;
  readonly difference?: { readonly step: number; readonly kind: string; readonly what: string; readonly path?: string };
  readonly rows: readonly {
    readonly left?: RecordedStep;
    readonly right?: RecordedStep;
    readonly same: boolean;
    readonly changes: readonly { readonly path: string; readonly left?: Json; readonly right?: Json }[];
  }[];
}

/** A comparison by the server, in the shape of one that was made here; `what` is its sentence on the first difference. */
export interface AnsweredComparison extends Comparison {
  readonly what: string;
}

/** The rows of one answer or of several pages of it, in order. */
export function comparisonOfAnswer(pages: readonly CompareAnswer[]): AnsweredComparison {
  const [first] = pages;
  const models = first?.runs.map((run) => run.model) ?? [];
  const rows = pages.flatMap((page) => page.rows.map((row) => rowOf(row, models)));
  const differences = rows.flatMap((row, at) => (row.isSame ? [] : [at]));
  const told = first?.difference;
  const row = rows[differences[0] ?? -1];
  const step = row?.right ?? row?.left;
  const named = told && { step: told.step, path: told.path ?? "", tool: step?.tool || step?.calls[0]?.tool || "" };
  return { shared: first?.shared_steps ?? 0, rows, first: named ?? null, differences, what: told?.what ?? "" };
}

function rowOf(row: CompareAnswer["rows"][number], models: readonly string[]): ComparedRow {
  return {
    left: row.left ? recordedStep(row.left, undefined, models[0] ?? "") : null,
    right: row.right ? recordedStep(row.right, undefined, models[1] ?? "") : null,
    isSame: row.same,
    changes: row.changes.map(changeOf),
  };
}

function changeOf(change: CompareAnswer["rows"][number]["changes"][number]): ValueChange {
  return {
    path: change.path,
    ...(change.left === undefined ? {} : { left: change.left }),
    ...(change.right === undefined ? {} : { right: change.right }),
  };
}

/** The figures of the two runs with their difference, as their headers say. */
export function figuresOfAnswer(answer: CompareAnswer): Figure[] {
  const [left, right] = answer.runs;
  if (!left || !right) return [];
  const figures = (run: Header): Record<Figure["name"], number> => ({
    steps: run.totals.steps,
    calls: run.totals.tool_calls,
    tokens: run.totals.prompt_tokens + run.totals.completion_tokens,
    usd: run.totals.usd,
    activeMs: run.active_ms,
  });
  const [one, other] = [figures(left), figures(right)];
  const names = Object.keys(one) as Figure["name"][];
  return names.map((name) => ({ name, left: one[name], right: other[name], change: other[name] - one[name] }));
}

