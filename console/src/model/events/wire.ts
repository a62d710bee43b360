import { isObject, type Json, type JsonObject } from "../json.ts";
import type { Principal } from "./views.ts";

/** One event as the server sends it. Payload keys are PascalCase; what a server does not know, it leaves out. */
export interface WireEvent {
  readonly type: string;
  readonly sequence: number;
  readonly occurred_at: string;
  readonly tenant: string;
  readonly user: string;
  readonly session: string;
  readonly run?: string;
  readonly payload?: unknown;
  readonly extra?: Readonly<Record<string, string>>;
}

/** Sequences that are multiples of this belong to stored events; those between them to pieces of streamed text. */
export const STORED_UNIT = 4096;

const EMPTY: JsonObject = {};

/** The payload of an event, whatever came. A redacted payload stands inside `Data`. */
export function payloadOf(event: WireEvent): JsonObject {
  if (!isObject(event.payload)) return EMPTY;
  return isObject(event.payload["Data"]) ? event.payload["Data"] : event.payload;
}

export function textAt(payload: JsonObject, key: string): string {
  const value = payload[key];
  return typeof value === "string" ? value : "";
}

export function numberAt(payload: JsonObject, key: string): number | null {
  const value = payload[key];
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

export function flagAt(payload: JsonObject, key: string): boolean {
  return payload[key] === true;
}

export function objectAt(payload: JsonObject, key: string): JsonObject {
  const value = payload[key];
  return isObject(value) ? value : EMPTY;
}

export function valueAt(payload: JsonObject, key: string): Json | null {
  return payload[key] ?? null;
}

export function textsAt(payload: JsonObject, key: string): string[] {
  const value = payload[key];
  return Array.isArray(value) ? value.filter((item): item is string => typeof item === "string") : [];
}

/** The principal of an event's `By`; null where the runtime itself or a deadline acted, or the server does not say. */
export function principalAt(payload: JsonObject, key: string): Principal | null {
  const value = objectAt(payload, key);
  const user = textAt(value, "UserID") || textAt(value, "user");
  if (!user) return null;
  const tenant = textAt(value, "TenantID") || textAt(value, "tenant");
  const session = textAt(value, "SessionID") || textAt(value, "session");
  return { tenant, user, session };
}

const TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)$/;

/** Milliseconds since 1970 with their fraction; null for no time, an unset one (year 1) and what is no time. */
export function parseTime(text: unknown): number | null {
  if (typeof text !== "string") return null;
  const parts = TIME.exec(text);
  if (!parts) return null;
  const whole = Date.parse(`${parts[1]}${parts[3]}`);
  if (!Number.isFinite(whole) || text.startsWith("0001-")) return null;
  return whole + (parts[2] ? Math.round(Number(parts[2]) * 1e6) / 1e3 : 0);
}

export function timeAt(payload: JsonObject, key: string): number | null {
  return parseTime(payload[key]);
}

/** The run that an event belongs to: that of its envelope, else the one that its payload names; "" for none. */
export function runOf(event: WireEvent): string {
  const payload = payloadOf(event);
  return (
    event.run || textAt(payload, "TaskID") || textAt(objectAt(payload, "Identity"), "RunID") || textAt(payload, "RunID")
  );
}
