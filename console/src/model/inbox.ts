import { entryOf, isObject, type Json, type JsonObject } from "./json.ts";
import type { Moment, Principal, RunView } from "./events/views.ts";
import { parseTime } from "./events/wire.ts";

/** A row of `pause.list`, as far as it is read; keys of ours may be absent. */
export interface PauseSnapshot {
  readonly token: string;
  readonly reason: string;
  readonly state: string;
  readonly identity: { readonly tenant?: string; readonly user?: string; readonly session?: string; readonly run?: string };
  readonly paused_at: string;
  readonly resumed_at: string;
  readonly payload?: unknown;
  readonly payload_ref?: { readonly id: string } | null;
  readonly deadline?: string | null;
  readonly default?: string | null;
  readonly approvers?: readonly string[] | null;
  readonly agent_name?: string | null;
  readonly step?: number | null;
  readonly call_id?: string | null;
  readonly masked?: boolean | null;
}

/** What a person is asked for: to let a call run, for an answer, for what came of a call, to sign in, or to go on. */
export type InboxKind = "approval" | "question" | "outcome" | "sign_in" | "event";

/** One thing that waits for a person. */
export interface InboxItem {
  readonly token: string;
  /** "" where the server names none: then it cannot be answered here. */
  readonly run: string;
  readonly kind: InboxKind;
  readonly identity: Principal;
  readonly agent: string;
  readonly tool: string;
  readonly question: string;
  /** The redacted arguments of the call; undefined where the list does not have them. */
  readonly args: Json | undefined;
  readonly schema: JsonObject | undefined;
  readonly isCut: boolean;
  readonly isMasked: boolean;
  readonly step: number | null;
  readonly callId: string;
  readonly openedAt: Moment;
  readonly deadline: Moment | null;
  readonly default: string;
  readonly approvers: readonly string[];
  /** Whether the server takes patches of arguments. */
  readonly takesPatches: boolean;
}

export function inboxItem(row: PauseSnapshot): InboxItem {
  const payload = isObject(row.payload) ? row.payload : {};
  const summary = isObject(payload["args_summary"]) ? payload["args_summary"] : undefined;
  const args = summary && isObject(summary["args"]) ? summary["args"] : summary;
  const schema = payload["args_schema"] ?? payload["schema"];
  const isOurs = [row.masked, row.call_id, row.agent_name].some((value) => value !== undefined && value !== null);
  return {
    token: row.token,
    run: row.identity.run ?? "",
    kind: kindOf(row.reason, payload),
    identity: { tenant: row.identity.tenant ?? "", user: row.identity.user ?? "", session: row.identity.session ?? "" },
    agent: row.agent_name ?? "",
    tool: textOf(payload, "tool") || textOf(payload, "source_name"),
    question: questionOf(payload),
    args,
    schema: isObject(schema) ? schema : undefined,
    isCut: Boolean(row.payload_ref),
    // A server that does not say whether something was masked may have masked anything.
    isMasked: row.masked ?? (!isOurs && args !== undefined),
    step: row.step ?? null,
    callId: row.call_id ?? "",
    openedAt: parseTime(row.paused_at) ?? 0,
    deadline: parseTime(row.deadline),
    default: row.default ?? "",
    approvers: row.approvers ?? [],
    takesPatches: isOurs,
  };
}

function kindOf(reason: string, payload: JsonObject): InboxKind {
  if (payload["question"] === "unknown_outcome") return "outcome";
  if ("authorize_url" in payload || "source_name" in payload) return "sign_in";
  if (reason === "approval_required") return "approval";
  return reason === "await_input" ? "question" : "event";
}

function questionOf(payload: JsonObject): string {
  const question = textOf(payload, "question");
  return question === "unknown_outcome" ? "" : question || textOf(payload, "reason") || textOf(payload, "message");
}

function textOf(payload: JsonObject, key: string): string {
  const value = payload[key];
  return typeof value === "string" ? value : "";
}

/** The rows of the inbox: those with a deadline first, the soonest on top, then the others by age, the oldest on top. */
export function inboxOf(rows: readonly PauseSnapshot[]): InboxItem[] {
  return rows
    .filter((row) => row.state === "paused")
    .map(inboxItem)
    .sort((a, b) => (a.deadline ?? Infinity) - (b.deadline ?? Infinity) || a.openedAt - b.openedAt || (a.token < b.token ? -1 : 1));
}

/** The items that are still open, by what the stream told since they were listed. */
export function openItems(items: readonly InboxItem[], runOf: (id: string) => RunView | undefined): InboxItem[] {
  return items.filter((item) => {
    const pause = runOf(item.run)?.pauses.findLast((one) => one.token === item.token);
    return !pause || pause.settledAt === null;
  });
}

/** Whether this person may answer, as far as the server says: it has the last word. */
export function mayAnswer(item: InboxItem, user: string, scopes: readonly string[]): boolean {
  if (item.run === "") return false;
  if (item.approvers.length === 0) return true;
  return item.approvers.some((one) => one === `user:${user}` || (one.startsWith("scope:") && scopes.includes(one.slice("scope:".length))));
}

/** Who may answer, in words: "ada, or whoever has the scope admin". */
export function approverWords(approvers: readonly string[]): string {
  const users = approvers.filter((one) => one.startsWith("user:")).map((one) => one.slice("user:".length));
  const scopes = approvers.filter((one) => one.startsWith("scope:")).map((one) => one.slice("scope:".length));
  const holders = scopes.length ? [`whoever has the scope ${scopes.join(" or ")}`] : [];
  return [...users, ...holders].join(", or ");
}

const DEFAULT_WORDS: Readonly<Record<string, string>> = {
  approve: "then approved",
  reject: "then rejected",
  resume: "then it goes on",
  timeout: "then it goes on without an answer",
};

/** What the deadline does: "then rejected"; "" where the server does not say. */
export function defaultWords(item: Pick<InboxItem, "default">): string {
  return entryOf(DEFAULT_WORDS, item.default) ?? "";
}
