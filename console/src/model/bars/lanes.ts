import type { Moment, RunView, StepView } from "../events/views.ts";
import { barsOfStep, type Bar, type EffectsOf } from "./bars.ts";

/** The part of a run's bars that lies in a window of time: one lane of Overview or Live. */
export interface Lane {
  readonly runId: string;
  readonly bars: readonly Bar[];
}

export interface LaneWindow {
  readonly from: Moment;
  readonly to: Moment;
  /** Bars of one kind that are nearer than this are drawn as one, in milliseconds. */
  readonly nearest: number;
}

const NO_EFFECTS: EffectsOf = () => "";

/** The lane of a run. Only the steps inside of the window are looked at, however long the run is. */
export function laneOf(run: RunView, window: LaneWindow, effects: EffectsOf = NO_EFFECTS): Lane {
  const first = firstStepAfter(run.steps, window.from);
  const bars: Bar[] = [];
  for (let at = first; at < run.steps.length; at += 1) {
    const step = run.steps[at] as StepView;
    if (step.startedAt > window.to) break;
    bars.push(...barsOfStep(step, effects));
  }
  const seen = bars.filter((bar) => bar.start <= window.to && (bar.end ?? window.to) >= window.from);
  return { runId: run.id, bars: joined(seen.map((bar) => clipped(bar, window)), window.nearest) };
}

/** The place of the first step that had not ended at `moment`; steps are in the order of time. */
function firstStepAfter(steps: readonly StepView[], moment: Moment): number {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const end = (steps[middle] as StepView).endedAt;
    if (end !== null && end < moment) low = middle + 1;
    else high = middle;
  }
  return low;
}

function clipped(bar: Bar, window: LaneWindow): Bar {
  const start = Math.max(bar.start, window.from);
  return start === bar.start ? bar : { ...bar, start };
}

/** Bars of one kind that touch, or nearly, as one. */
function joined(bars: Bar[], nearest: number): Bar[] {
  const found: Bar[] = [];
  for (const bar of bars.sort((a, b) => a.start - b.start)) {
    const last = found[found.length - 1];
    const isNear = last?.kind === bar.kind && last.end !== null && bar.start - last.end <= nearest;
    if (last && isNear) found[found.length - 1] = { ...last, end: bar.end === null ? null : Math.max(last.end ?? 0, bar.end), callId: "" };
    else found.push(bar);
  }
  return found;
}
