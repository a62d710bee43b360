import type { Moment, RunView, StepView, ToolCall, Wait } from "../events/views.ts";
import { LEAST_WIDTH, type Span } from "../time-map.ts";

/**
 * What a bar stands for; each has its own fill. `effect` is a tool that changes something, `await` a wait for a run or
 * a timer, `wait` one for a person, `lost` time without a worker, `held` a call that a fork did not make.
 */
export type BarKind =
  | "model"
  | "tool"
  | "effect"
  | "child"
  | "await"
  | "wait"
  | "lost"
  | "unknown"
  | "failed"
  | "rejected"
  | "held";

export interface Bar {
  readonly kind: BarKind;
  readonly start: Moment;
  readonly end: Moment | null;
  /** More than one are drawn as ticks inside of the bar. */
  readonly attempts: number;
  /** The call that it stands for, "" for none. */
  readonly callId: string;
}

/** What a tool does to the world: as `tools.describe` or the record says, "" where neither does. */
export type EffectsOf = (tool: string) => string;

const EFFECTS: readonly string[] = ["write", "external", "stateful"];

export function hasEffects(sideEffect: string): boolean {
  return EFFECTS.includes(sideEffect);
}

/** The bars of a step in the order of time: the model's, waits, and calls unless these have rows of their own. */
export function barsOfStep(step: StepView, effects: EffectsOf, withCalls = true): Bar[] {
  const bars = [...modelBars(step), ...step.waits.map(waitBar)];
  if (withCalls) bars.push(...step.calls.flatMap((call) => barsOfCall(call, effects)));
  return bars.sort((a, b) => a.start - b.start);
}

function modelBars(step: StepView): Bar[] {
  if (step.modelCalls.length > 0) {
    const bars = step.modelCalls.map((call) => bar("model", call.startedAt, call.endedAt));
    const isAsking = step.decidedAt === null && step.endedAt === null && step.text !== "";
    return isAsking ? [...bars, bar("model", (bars[bars.length - 1] as Bar).end as Moment, null)] : bars;
  }
  // Without cost events the time until the decision stands for the model's, less what it waited.
  const held = step.waits.filter((wait) => step.decidedAt === null || wait.openedAt < step.decidedAt);
  const start = Math.max(step.startedAt, ...held.map((wait) => wait.settledAt ?? Infinity));
  const end = step.decidedAt ?? step.endedAt;
  return Number.isFinite(start) && (end === null || end >= start) ? [bar("model", start, end)] : [];
}

function waitBar(wait: Wait): Bar {
  return bar(waitKind(wait), wait.openedAt, wait.settledAt, 1, wait.callId);
}

function waitKind(wait: Wait): BarKind {
  if (wait.reason === "worker") return "lost";
  return wait.reason === "child" || wait.reason === "timer" ? "await" : "wait";
}

/** The bars of a call: one, or two where its worker was lost in it. */
export function barsOfCall(call: ToolCall, effects: EffectsOf): Bar[] {
  if (call.status === "held_back") return [bar("held", call.startedAt ?? call.askedAt, call.endedAt, 1, call.id)];
  if (call.startedAt === null) return [];
  const attempts = Math.max(call.attempts, 1);
  const kind = callKind(call, effects);
  if (call.lostAt === null) return [bar(kind, call.startedAt, call.endedAt, attempts, call.id)];
  const lost = bar("unknown", call.startedAt, call.lostAt, attempts, call.id);
  const goesOn = call.status === "open" || call.status === "failed";
  return goesOn ? [lost, bar(kind, call.lostAt, call.endedAt, attempts, call.id)] : [lost];
}

function callKind(call: ToolCall, effects: EffectsOf): BarKind {
  switch (call.status) {
    case "failed":
      return "failed";
    case "rejected":
    case "cancelled":
      return "rejected";
    case "unknown":
      return "unknown";
    default:
      return hasEffects(call.sideEffect || effects(call.tool)) ? "effect" : "tool";
  }
}

/** The bar of a child run in its parent's row. */
export function childBar(child: RunView): Bar {
  const start = child.spawnedAt ?? child.startedAt ?? child.steps[0]?.startedAt ?? 0;
  return bar("child", start, child.endedAt);
}

function bar(kind: BarKind, start: Moment, end: Moment | null, attempts = 1, callId = ""): Bar {
  return { kind, start, end, attempts, callId };
}

export function isIdle(kind: BarKind): boolean {
  return kind === "wait" || kind === "await" || kind === "lost" || kind === "held" || kind === "child";
}

/** The bars as stretches for the map of time: what waits, is dotted or only encloses others is idle. */
export function spansOf(bars: readonly Bar[]): Span[] {
  return bars.map(({ start, end, kind }) => ({ start, end, isIdle: isIdle(kind) }));
}

export function leastWidth(kind: BarKind): number {
  if (kind === "failed") return LEAST_WIDTH.failed;
  return kind === "unknown" ? LEAST_WIDTH.unknown : LEAST_WIDTH.plain;
}

/** All stretches of a run and of the runs below it, unfolded or not: a run whose child works is not idle. */
export function spansOfRun(run: RunView, childOf: (id: string) => RunView | undefined): Span[] {
  const spans: Span[] = [];
  const seen = new Set<string>();
  const add = (one: RunView | undefined): void => {
    if (!one || seen.has(one.id)) return;
    seen.add(one.id);
    for (const step of one.steps) for (const span of spansOfStep(step)) spans.push(span);
    for (const child of one.children) add(childOf(child.id));
  };
  add(run);
  return spans;
}

/** The stretches of steps that have ended are made once. */
const madeSpans = new WeakMap<StepView, readonly Span[]>();

function spansOfStep(step: StepView): readonly Span[] {
  const known = madeSpans.get(step);
  if (known) return known;
  const spans = spansOf(barsOfStep(step, () => ""));
  if (step.endedAt !== null) madeSpans.set(step, spans);
  return spans;
}
