import type { Moment } from "./events/views.ts";

/** A stretch of a visible row. Idle is what waits or is dotted; all else is work. */
export interface Span {
  readonly start: Moment;
  /** Null while it goes on. */
  readonly end: Moment | null;
  readonly isIdle: boolean;
}

export interface TimeMapOptions {
  /** The width of the axis in pixels. */
  readonly width: number;
  readonly now: Moment;
  /** `working` folds the time in which nothing worked; `wall` draws the clock. */
  readonly mode?: "working" | "wall";
}

/** Time in which no visible row worked, drawn as a band. */
export interface TimeFold {
  readonly start: Moment;
  readonly end: Moment;
  /** The band in pixels; bars and marks keep 6 px from its edges. */
  readonly x: number;
  readonly width: number;
  /** Whether the run waits now: the last band, which grows without moving what is before it. */
  readonly isOpen: boolean;
}

export interface TimeMap {
  readonly start: Moment;
  readonly end: Moment;
  readonly width: number;
  readonly folds: readonly TimeFold[];
  /** The position of a moment in pixels. Moments outside of the map are at its edges. */
  x(moment: Moment): number;
  /** The moment at a position: the inverse of `x` within the map. */
  t(x: number): Moment;
}

/** A bar in pixels. */
export interface Extent {
  readonly x: number;
  readonly width: number;
}

interface Piece {
  readonly start: Moment;
  readonly end: Moment;
  readonly from: number;
  readonly to: number;
}

interface Stretch {
  readonly start: Moment;
  readonly end: Moment;
}

const LEAST_FOLD_MS = 10_000;
const FOLD_SHARE_OF_WORK = 0.08;
const FOLD_WIDTH_SHARE = 0.09;
const FOLD_WIDTH_MOST = 72;
const FULL_FOLDS = 6;
const NARROW_FOLD = 24;
const FOLD_EDGE = 6;
/** Folds never take more of the axis than this, however many there are. */
const FOLDS_MOST_SHARE = 0.6;

export const LEAST_WIDTH = { plain: 2, failed: 8, unknown: 13 } as const;

/** Map time to the axis: in working time stretches in which every row is idle for long are folded to bands. */
export function timeMap(spans: readonly Span[], options: TimeMapOptions): TimeMap {
  const { now, width } = options;
  const { start, end, work, isWaiting } = survey(spans, now);
  const stretches = options.mode === "wall" ? [] : foldedStretches(work, { start, end }, isWaiting);
  return mapOf({ start, end }, stretches, width, isWaiting);
}

interface Survey extends Stretch {
  readonly work: Stretch[];
  /** Whether something goes on now, and all of it only waits. */
  readonly isWaiting: boolean;
}

/** What there is, in one pass: a run of thousands of spans is mapped anew with each frame while it goes on. */
function survey(spans: readonly Span[], now: Moment): Survey {
  const work: Stretch[] = [];
  let start = spans.length ? Infinity : now;
  let last = -Infinity;
  let [isOpen, isWorking] = [false, false];
  for (const span of spans) {
    const end = span.end ?? now;
    if (span.start < start) start = span.start;
    if (end > last) last = end;
    if (span.end === null || end > now) isOpen = true;
    if (span.isIdle) continue;
    if (span.end === null || end > now) isWorking = true;
    work.push({ start: span.start, end });
  }
  const end = Math.max(last, start + 1);
  return { start, end, work, isWaiting: isOpen && !isWorking && last >= now };
}

/** The idle stretches that are long enough to be folded, and the one that goes on now, however short it is. */
function foldedStretches(work: Stretch[], domain: Stretch, isWaiting: boolean): Stretch[] {
  const busy = union(work);
  const worked = busy.reduce((sum, piece) => sum + piece.end - piece.start, 0);
  const least = Math.max(LEAST_FOLD_MS, worked * FOLD_SHARE_OF_WORK);
  const idle = complement(busy, domain);
  return idle.filter((gap) => gap.end - gap.start > least || (isWaiting && gap.end === domain.end && busy.length > 0));
}

function union(stretches: Stretch[]): Stretch[] {
  const found: Stretch[] = [];
  for (const next of stretches.sort((a, b) => a.start - b.start)) {
    const last = found[found.length - 1];
    if (!last || next.start > last.end) found.push(next);
    else if (next.end > last.end) found[found.length - 1] = { start: last.start, end: next.end };
  }
  return found;
}

function complement(busy: readonly Stretch[], domain: Stretch): Stretch[] {
  const found: Stretch[] = [];
  let at = domain.start;
  for (const piece of busy) {
    if (piece.start > at) found.push({ start: at, end: piece.start });
    at = Math.max(at, piece.end);
  }
  if (domain.end > at) found.push({ start: at, end: domain.end });
  return found;
}

function mapOf(domain: Stretch, stretches: readonly Stretch[], width: number, isWaiting: boolean): TimeMap {
  const idle = stretches.reduce((sum, stretch) => sum + stretch.end - stretch.start, 0);
  const worked = domain.end - domain.start - idle;
  const widths = foldWidths(stretches.length, width, worked > 0);
  const rest = width - widths.reduce((sum, one) => sum + one, 0);
  const pieces: Piece[] = [];
  const folds: TimeFold[] = [];
  let at = { moment: domain.start, x: 0 };
  const advance = (until: Moment, by: number): void => {
    pieces.push({ start: at.moment, end: until, from: at.x, to: at.x + by });
    at = { moment: until, x: at.x + by };
  };
  stretches.forEach((stretch, index) => {
    if (stretch.start > at.moment) advance(stretch.start, (rest * (stretch.start - at.moment)) / worked);
    const full = widths[index] as number;
    const edge = Math.min(FOLD_EDGE, full / 4);
    const isOpen = isWaiting && index === stretches.length - 1 && stretch.end === domain.end;
    folds.push({ ...stretch, x: at.x + edge, width: full - 2 * edge, isOpen });
    advance(stretch.end, full);
  });
  if (domain.end > at.moment) advance(domain.end, (rest * (domain.end - at.moment)) / worked);
  return { ...domain, width, folds, x: (moment) => toX(pieces, moment), t: (x) => toMoment(pieces, x) };
}

/** The width of each fold with its edges. */
function foldWidths(count: number, width: number, hasWork: boolean): number[] {
  if (count === 0) return [];
  const first = Math.min(width * FOLD_WIDTH_SHARE, FOLD_WIDTH_MOST);
  const wanted = Array.from({ length: count }, (_, at) => (at < FULL_FOLDS ? first : Math.min(NARROW_FOLD, first)));
  const edged = wanted.map((one) => one + 2 * FOLD_EDGE);
  const sum = edged.reduce((total, one) => total + one, 0);
  if (!hasWork) return edged.map((one) => (one * width) / sum);
  const scale = Math.min(1, (width * FOLDS_MOST_SHARE) / sum);
  return edged.map((one) => one * scale);
}

function toX(pieces: readonly Piece[], moment: Moment): number {
  const piece = pieceAt(pieces, (one) => one.end >= moment);
  if (moment <= piece.start) return piece.from;
  if (moment >= piece.end) return piece.to;
  return piece.from + ((piece.to - piece.from) * (moment - piece.start)) / (piece.end - piece.start);
}

function toMoment(pieces: readonly Piece[], x: number): Moment {
  const piece = pieceAt(pieces, (one) => one.to >= x);
  if (x <= piece.from) return piece.start;
  if (x >= piece.to) return piece.end;
  return piece.start + ((piece.end - piece.start) * (x - piece.from)) / (piece.to - piece.from);
}

/** The first piece for which the growing condition holds, else the last. */
function pieceAt(pieces: readonly Piece[], holds: (piece: Piece) => boolean): Piece {
  let low = 0;
  let high = pieces.length - 1;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (holds(pieces[middle] as Piece)) high = middle;
    else low = middle + 1;
  }
  return pieces[low] as Piece;
}

/** Where a bar is drawn: never narrower than `least` pixels, and within the axis. */
export function extentOf(map: TimeMap, start: Moment, end: Moment, least: number = LEAST_WIDTH.plain): Extent {
  const from = map.x(start);
  const width = Math.min(Math.max(map.x(end) - from, least), map.width);
  return { x: Math.max(0, Math.min(from, map.width - width)), width };
}

/** A mark, such as a control's flag, moved out of a fold's edges so that it stands clear of the band. */
export function markAt(map: TimeMap, moment: Moment): number {
  const x = map.x(moment);
  const fold = map.folds.find((one) => x > one.x - FOLD_EDGE && x < one.x + one.width + FOLD_EDGE);
  if (!fold || (moment >= fold.start && moment <= fold.end)) return x;
  return x < fold.x ? fold.x - FOLD_EDGE : fold.x + fold.width + FOLD_EDGE;
}
