import { numberAt, objectAt, payloadOf, runOf, textAt, type WireEvent } from "./events/wire.ts";
import { familyOf } from "./charts.ts";
import { formatDuration, formatExact, formatMoney, plural } from "./formats.ts";
import { entryOf, type JsonObject } from "./json.ts";
import type { Glyph } from "./status.ts";

/** What of a stream a list shows. */
export interface EventFilter {
  readonly types?: readonly string[];
  readonly tenant?: string;
  readonly user?: string;
  readonly session?: string;
  readonly run?: string;
  readonly text?: string;
}

const MOST_EVENTS = 500;

/**
 * The newest events of a stream, 500 unless said otherwise. While it is paused, events wait and none is lost; they
 * come in on going on, in the order of their sequence. Each sequence is taken once.
 */
export class EventList {
  private kept: WireEvent[] = [];
  private waiting: WireEvent[] = [];
  private seen = new Set<number>();
  isPaused = false;
  /** How many events the server says that it left out. */
  dropped = 0;

  constructor(private readonly most = MOST_EVENTS) {}

  push(events: readonly WireEvent[]): void {
    for (const event of events) {
      if (this.seen.has(event.sequence)) continue;
      this.seen.add(event.sequence);
      if (event.type === "bus.dropped") this.dropped += droppedCount(event);
      this.waiting.push(event);
    }
    if (!this.isPaused) this.letIn();
  }

  pause(): void {
    this.isPaused = true;
  }

  goOn(): void {
    this.isPaused = false;
    this.letIn();
  }

  /** How many events wait to be let in. */
  get waitingCount(): number {
    return this.waiting.length;
  }

  /** The events that match, the newest first. */
  read(filter: EventFilter = {}): WireEvent[] {
    return this.kept.filter((event) => matches(event, filter)).reverse();
  }

  private letIn(): void {
    if (this.waiting.length === 0) return;
    const all = [...this.kept, ...this.waiting].sort((a, b) => a.sequence - b.sequence);
    this.kept = all.slice(-this.most);
    this.waiting = [];
    if (this.seen.size > this.most * 4) this.seen = new Set(this.kept.map((event) => event.sequence));
  }
}

function droppedCount(event: WireEvent): number {
  const count = payloadOf(event)["DroppedCount"];
  return typeof count === "number" ? count : 1;
}

export function matches(event: WireEvent, filter: EventFilter): boolean {
  const { types = [], tenant, user, session, run, text } = filter;
  if (types.length && !types.includes(event.type)) return false;
  if ((tenant && event.tenant !== tenant) || (user && event.user !== user) || (session && event.session !== session)) return false;
  if (run && runOf(event) !== run) return false;
  return !text || holdsText(event, text);
}

function holdsText(event: WireEvent, text: string): boolean {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const whole = `${event.type} ${event.run ?? ""} ${event.session} ${JSON.stringify(event.payload ?? null)}`.toLowerCase();
  return words.every((word) => whole.includes(word));
}

/** The keys of a payload that say most, in the order in which they are looked for. */
const TELLING: readonly string[] = ["Tool", "ToolName", "DecisionKind", "Type", "Model", "ErrorCode", "ErrorMessage", "Message", "Reason", "Decision", "Outcome", "TaskID"];

/** One line about an event, for a table: its tool, decision, error and so on. */
export function summaryOf(event: WireEvent): string {
  const payload = payloadOf(event);
  if (event.type === "llm.cost.recorded") return costLine(payload);
  if (event.type === "tool.completed") {
    const took = numberAt(payload, "DurationMS");
    return [textAt(payload, "ToolName"), took === null ? "" : formatDuration(took)].filter(Boolean).join(" · ");
  }
  if (event.type === "bus.dropped") return `${plural(droppedCount(event), "event")} for a slow reader`;
  const found = TELLING.map((key) => textAt(payload, key)).filter(Boolean);
  return [...new Set(found)].slice(0, 3).join(" · ");
}

/** What a call of the model took: "gpt-5 · 3,960 + 104 · $.028". */
function costLine(payload: JsonObject): string {
  const usage = objectAt(payload, "Usage");
  const [prompt, completion] = [numberAt(usage, "PromptTokens"), numberAt(usage, "CompletionTokens")];
  const usd = numberAt(objectAt(payload, "Cost"), "TotalCost");
  const tokens = prompt === null ? "" : `${formatExact(prompt)} + ${formatExact(completion ?? 0)}`;
  return [textAt(payload, "Model"), tokens, usd ? formatMoney(usd, "step") : ""].filter(Boolean).join(" · ");
}

const GLYPH_OF: Readonly<Record<string, Glyph>> = {
  "task.started": "running",
  "task.completed": "complete",
  "task.cancelled": "cancelled",
  "task.paused": "paused",
  "tool.invoked": "running",
  "tool.completed": "complete",
  "tool.approval_requested": "waiting",
  "tool.approved": "complete",
  "tool.rejected": "rejected",
  "tool.interrupted": "unknown",
  "tool.auth_required": "sign-in",
  "tool.auth_completed": "complete",
  "pause.requested": "waiting",
  "pause.resumed": "complete",
  "control.received": "received",
  "control.applied": "applied",
  "control.rejected": "rejected",
  "bus.dropped": "unknown",
  "governance.budget_exceeded": "waiting",
  "governance.rate_limited": "waiting",
};

/** The sign of an event's type; null for one that changes no state. */
export function glyphOfEvent(type: string): Glyph | null {
  return entryOf(GLYPH_OF, type) ?? (familyOf(type) === "failed" ? "failed" : null);
}

/** A payload that was too large for the stream: the artifact that has it. */
export function artifactOf(event: WireEvent): string {
  const reference = payloadOf(event)["artifact_ref"];
  const id = typeof reference === "object" && reference !== null ? (reference as Record<string, unknown>)["id"] : undefined;
  return typeof id === "string" ? id : "";
}

/** Alerts that the Overview shows when there are some. */
export const ALERT_TYPES: readonly string[] = [
  "governance.budget_exceeded",
  "governance.rate_limited",
  "runtime.warning",
  "runtime.error",
  "bus.dropped",
  "memory.health_changed",
  "audit.redaction_failed",
];

export interface Alert {
  readonly type: string;
  readonly count: number;
  readonly newest: WireEvent;
}

/** The alerts among some events: one for each type, with how often it came, the newest first. */
export function alertsOf(events: readonly WireEvent[]): Alert[] {
  const found = new Map<string, Alert>();
  for (const event of events) {
    if (!ALERT_TYPES.includes(event.type)) continue;
    const known = found.get(event.type);
    const newest = known && known.newest.sequence > event.sequence ? known.newest : event;
    found.set(event.type, { type: event.type, count: (known?.count ?? 0) + 1, newest });
  }
  return [...found.values()].sort((a, b) => b.newest.sequence - a.newest.sequence);
}

/** Shown events as lines of JSON, or as CSV that a spreadsheet takes for text and never for a formula. */
export function exportEvents(events: readonly WireEvent[], as: "ndjson" | "csv"): string {
  if (as === "ndjson") return events.map((event) => `${JSON.stringify(event)}\n`).join("");
  const rows = events.map((event) => [event.occurred_at, event.type, familyOf(event.type), event.tenant, event.user, event.session, event.run ?? "", JSON.stringify(event.payload ?? null)]);
  return toCsv([["time", "type", "family", "tenant", "user", "session", "run", "payload"], ...rows]);
}

/** Rows as CSV. A cell that a spreadsheet would calculate gets an apostrophe before it. */
export function toCsv(rows: readonly (readonly string[])[]): string {
  return rows.map((row) => `${row.map(csvCell).join(",")}\r\n`).join("");
}

function csvCell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
