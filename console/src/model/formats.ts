import type { Moment } from "./events/views.ts";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const MINUS = "−";
const ELLIPSIS = "…";

// ── Durations ─────────────────────────────────────────────────────────────────────────────────────────────────────────

type Unit = readonly [size: number, short: string, word: string];
const UNITS: readonly Unit[] = [
  [DAY, "d", "day"],
  [HOUR, "h", "hour"],
  [MINUTE, "m", "minute"],
  [SECOND, "s", "second"],
];

/** A duration in two units at most: `518 ms`, `4.4 s`, `1 m 20 s`, `2 h 14 m`, `3 d 4 h`. */
export function formatDuration(ms: number): string {
  const length = Math.abs(ms);
  const sign = ms < 0 && Math.round(length) > 0 ? MINUS : "";
  if (Math.round(length) < SECOND) return `${sign}${length > 0 && length < 1 ? "<1" : Math.round(length)} ms`;
  if (Math.round(length / 100) < 600) return `${sign}${(length / SECOND).toFixed(1)} s`;
  return sign + twoUnits(length, ([, short]) => ` ${short}`);
}

/** A duration that is a round number, as on an axis: `5 s` rather than `5.0 s`. */
export function formatRoundDuration(ms: number): string {
  return formatDuration(ms).replace(/\.0 s$/, " s");
}

/** A duration for ears: `2 hours 14 minutes`, `1.0 second`. */
export function spokenDuration(ms: number): string {
  const length = Math.abs(ms);
  if (Math.round(length) < SECOND) return plural(Math.round(length), "millisecond");
  if (Math.round(length / 100) < 600) {
    const seconds = (length / SECOND).toFixed(1);
    return `${seconds} ${seconds === "1.0" ? "second" : "seconds"}`;
  }
  return twoUnits(length, ([, , word], count) => ` ${count === 1 ? word : `${word}s`}`);
}

function twoUnits(length: number, named: (unit: Unit, count: number) => string): string {
  const at = UNITS.findIndex(([size], index) => roundTo(length, UNITS[index + 1]?.[0] ?? SECOND) >= size);
  const unit = UNITS[at] as Unit;
  const below = UNITS[at + 1];
  if (!below) return `${Math.round(length / unit[0])}${named(unit, Math.round(length / unit[0]))}`;
  const rounded = roundTo(length, below[0]);
  const whole = Math.floor(rounded / unit[0]);
  const rest = Math.round((rounded - whole * unit[0]) / below[0]);
  return `${whole}${named(unit, whole)}${rest ? ` ${rest}${named(below, rest)}` : ""}`;
}

function roundTo(value: number, size: number): number {
  return Math.round(value / size) * size;
}

// ── Moments ───────────────────────────────────────────────────────────────────────────────────────────────────────────

export interface TimeStyle {
  readonly now: Moment;
  /** A zone such as `Europe/Vienna`; that of the browser if absent. */
  readonly zone?: string | undefined;
}

/** A moment, as long as it must be: `14:17:01` today, `Mon 14:17` this week, `9 Nov 14:17`, `9 Nov 2025 14:17`. */
export function formatTime(moment: Moment, style: TimeStyle): string {
  const at = partsOf(moment, style.zone);
  const now = partsOf(style.now, style.zone);
  if (at.date === now.date) return `${at.clock}:${at.second}`;
  if (Math.abs(moment - style.now) < 6 * DAY) return `${at.weekday} ${at.clock}`;
  return at.year === now.year ? `${at.day} ${at.month} ${at.clock}` : `${at.day} ${at.month} ${at.year} ${at.clock}`;
}

/** The clock with milliseconds, as in tables of events: `14:17:01.204`. */
export function formatClock(moment: Moment, zone?: string): string {
  const at = partsOf(moment, zone);
  const milliseconds = Math.floor(((moment % SECOND) + SECOND) % SECOND);
  return `${at.clock}:${at.second}.${String(milliseconds).padStart(3, "0")}`;
}

/** The moment with its zone, for titles: `2026-11-09T14:17:01+01:00`. */
export function isoTime(moment: Moment, zone?: string): string {
  const at = partsOf(moment, zone);
  const local = Date.UTC(Number(at.year), at.monthIndex, Number(at.day), at.hour, at.minute, Number(at.second));
  const offset = Math.round((local - Math.floor(moment / SECOND) * SECOND) / MINUTE);
  const two = (value: number): string => String(Math.floor(value)).padStart(2, "0");
  const sign = offset < 0 ? "-" : "+";
  const place = offset === 0 ? "Z" : `${sign}${two(Math.abs(offset) / 60)}:${two(Math.abs(offset) % 60)}`;
  return `${at.year}-${two(at.monthIndex + 1)}-${two(Number(at.day))}T${at.clock}:${at.second}${place}`;
}

interface TimeParts {
  readonly date: string;
  readonly year: string;
  readonly month: string;
  readonly monthIndex: number;
  readonly day: string;
  readonly weekday: string;
  readonly clock: string;
  readonly hour: number;
  readonly minute: number;
  readonly second: string;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const formatters = new Map<string, Intl.DateTimeFormat>();

function partsOf(moment: Moment, zone: string | undefined): TimeParts {
  const found = new Map(formatterOf(zone).formatToParts(moment).map(({ type, value }) => [type, value]));
  const part = (type: Intl.DateTimeFormatPartTypes): string => found.get(type) ?? "";
  const monthIndex = Number(part("month")) - 1;
  const year = part("year");
  return {
    date: `${year}-${part("month")}-${part("day")}`,
    year,
    month: MONTHS[monthIndex] ?? "",
    monthIndex,
    day: String(Number(part("day"))),
    weekday: part("weekday"),
    clock: `${part("hour")}:${part("minute")}`,
    hour: Number(part("hour")),
    minute: Number(part("minute")),
    second: part("second"),
  };
}

function formatterOf(zone: string | undefined): Intl.DateTimeFormat {
  const known = formatters.get(zone ?? "");
  if (known) return known;
  const two = "2-digit" as const;
  const made = new Intl.DateTimeFormat("en-GB", {
    ...{ year: "numeric", month: two, day: two, weekday: "short", hour: two, minute: two, second: two },
    hourCycle: "h23",
    timeZone: zone,
  });
  formatters.set(zone ?? "", made);
  return made;
}

// ── Deadlines ─────────────────────────────────────────────────────────────────────────────────────────────────────────

export interface DeadlineText {
  readonly text: string;
  /** Under 5 minutes, or under a tenth of the time that there was. */
  readonly isUrgent: boolean;
  readonly isOver: boolean;
  /** The share of the time that is left, 0 to 1, for a bar. */
  readonly left: number;
}

export function formatDeadline(deadline: Moment, opened: Moment, now: Moment): DeadlineText {
  const rest = deadline - now;
  const whole = Math.max(deadline - opened, 1);
  const left = Math.min(1, Math.max(0, rest / whole));
  if (rest <= 0) return { text: "the deadline has passed", isUrgent: true, isOver: true, left: 0 };
  return { text: `${timeLeft(rest)} left`, isUrgent: rest < 5 * MINUTE || left < 0.1, isOver: false, left };
}

/** Rounded down, so that what is said to be left is there. Seconds only in the last minute. */
function timeLeft(rest: number): string {
  if (rest < MINUTE) return `${Math.max(1, Math.floor(rest / SECOND))} s`;
  if (rest < HOUR) return `${Math.floor(rest / MINUTE)} min`;
  const below = rest < DAY ? MINUTE : HOUR;
  return formatDuration(Math.floor(rest / below) * below);
}

// ── Numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/** A count: `1,204`, `50.5k`, `1.31M`. */
export function formatCount(count: number): string {
  const size = Math.abs(count);
  const sign = count < 0 ? MINUS : "";
  if (Math.round(size) < 10_000) return sign + grouped(Math.round(size).toString());
  const [divisor, letter] = size < 999_500 ? [1e3, "k"] : size < 999_500_000 ? [1e6, "M"] : [1e9, "G"];
  return `${sign}${threeDigits(size / divisor)}${letter}`;
}

function threeDigits(value: number): string {
  const places = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return grouped(value.toFixed(places));
}

/** All digits of a number, in groups: `1,204,331`. */
export function formatExact(count: number): string {
  return (count < 0 ? MINUS : "") + grouped(Math.abs(count).toString());
}

function grouped(digits: string): string {
  const [whole = "", fraction] = digits.split(".");
  const spaced = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  return fraction === undefined ? spaced : `${spaced}.${fraction}`;
}

export type MoneyPlace = "run" | "step" | "exact";

/** Money: `$0.16` for runs, `$.019` for steps, `$0.0190` in tooltips. What is less than can be shown says so. */
export function formatMoney(usd: number, place: MoneyPlace = "run"): string {
  const places = place === "run" ? 2 : place === "step" ? 3 : 4;
  const size = Math.abs(usd);
  const least = 10 ** -places;
  const sign = usd < 0 ? MINUS : "";
  if (size > 0 && size < least / 2) return `<${sign}${dollars(least, places, place)}`;
  return sign + dollars(size, places, place);
}

function dollars(size: number, places: number, place: MoneyPlace): string {
  const digits = grouped(size.toFixed(places));
  return `$${place === "step" && digits.startsWith("0.") ? digits.slice(1) : digits}`;
}

/** A share from 0 to 1: `9.4 %`, `12 %`. */
export function formatPercent(share: number): string {
  const percent = Math.abs(share * 100);
  const sign = share < 0 ? MINUS : "";
  if (percent === 0) return "0 %";
  if (percent < 0.05) return `<${sign}0.1 %`;
  return `${sign}${percent < 9.95 ? percent.toFixed(1).replace(/\.0$/, "") : grouped(percent.toFixed(0))} %`;
}

/** A size: `412 B`, `4.1 KB`, `1.3 MB`. */
export function formatBytes(bytes: number): string {
  const names = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  let size = Math.abs(bytes);
  for (; size >= 999.95 && at < names.length - 1; at += 1) size /= 1000;
  return `${at === 0 ? Math.round(size) : size.toFixed(size < 99.95 ? 1 : 0)} ${names[at]}`;
}

/** A difference with its sign: `+1.2 s`, `−$0.04`. */
export function formatChange(change: number, format: (value: number) => string): string {
  if (change === 0) return "±0";
  return change > 0 ? `+${format(change)}` : `${MINUS}${format(-change)}`;
}

export function plural(count: number, word: string, many = `${word}s`): string {
  return `${formatCount(count)} ${count === 1 ? word : many}`;
}

// ── Texts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** The last six characters of an id; the title and copying give all. */
export function shortId(id: string): string {
  return id.length > 8 ? ELLIPSIS + id.slice(-6) : id;
}

/** A text of at most `most` characters on one line, cut at its end. */
export function cutText(text: string, most: number): string {
  const line = text.replace(/\s+/g, " ").trim();
  const characters = [...line.slice(0, most * 2 + 2)];
  return characters.length <= most ? line : `${characters.slice(0, most - 1).join("").trimEnd()}${ELLIPSIS}`;
}

const FOLD_LINES = 20;
const FOLD_CHARACTERS = 4096;

/** What a long text shows before it is unfolded; null if it is short enough. */
export function foldText(text: string): { readonly shown: string; readonly label: string } | null {
  const lines = text.split("\n", FOLD_LINES + 1);
  if (lines.length <= FOLD_LINES && text.length <= FOLD_CHARACTERS) return null;
  const shown = lines.slice(0, FOLD_LINES).join("\n").slice(0, FOLD_CHARACTERS);
  return { shown, label: `Show all ${formatExact(text.length)} characters` };
}
