import { formatRoundDuration } from "./formats.ts";
import type { Moment } from "./events/views.ts";
import type { TimeMap } from "./time-map.ts";

export interface Tick {
  readonly x: number;
  readonly moment: Moment;
  /** "5 s" from the start; "+5 s" from the end of the fold before it. */
  readonly label: string;
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((seconds) => seconds * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE),
  ...[1, 2, 3, 6, 12].map((hours) => hours * HOUR),
  ...[1, 2, 7, 14, 28].map((days) => days * DAY),
];
const MOST_TICKS = 200;

/** The ticks of an axis, at least `gap` pixels apart and clear of the folds. */
export function axisTicks(map: TimeMap, gap = 64): Tick[] {
  const stretches = workStretches(map);
  const worked = stretches.reduce((sum, one) => sum + one.to - one.from, 0);
  const drawn = stretches.reduce((sum, one) => sum + map.x(one.to) - map.x(one.from), 0);
  if (drawn <= 0) return [];
  const step = STEPS.find((one) => (one / worked) * drawn >= gap) ?? Math.ceil(worked / DAY) * DAY;
  return stretches.flatMap((stretch) => ticksOf(map, stretch, step)).slice(0, MOST_TICKS);
}

interface WorkStretch {
  readonly from: Moment;
  readonly to: Moment;
  readonly isFirst: boolean;
}

function workStretches(map: TimeMap): WorkStretch[] {
  const starts = [map.start, ...map.folds.map((fold) => fold.end)];
  const ends = [...map.folds.map((fold) => fold.start), map.end];
  const pairs = starts.map((from, at) => ({ from, to: ends[at] as Moment, isFirst: at === 0 }));
  return pairs.filter((pair) => pair.to > pair.from);
}

function ticksOf(map: TimeMap, stretch: WorkStretch, step: number): Tick[] {
  const first = stretch.isFirst ? 0 : 1;
  const count = Math.min(Math.floor((stretch.to - stretch.from) / step), MOST_TICKS);
  return Array.from({ length: Math.max(0, count - first + 1) }, (_, at) => {
    const after = (at + first) * step;
    const moment = stretch.from + after;
    const label = after === 0 ? "0 s" : formatRoundDuration(after);
    return { x: map.x(moment), moment, label: stretch.isFirst ? label : `+${label}` };
  });
}
