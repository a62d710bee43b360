import { clearFilters, emptyQuery, readQuery, withFilter, writeQuery, type ListQuery, type QuerySpec } from "../../model/query.ts";
import { location$, navigate } from "../../shell/router.ts";
import type { TaskFilter } from "../../wire/types.ts";

export const STATUSES = ["pending", "running", "paused", "complete", "failed", "cancelled"] as const;
export const OPEN_STATUSES = ["pending", "running", "paused"];
const DAY_MS = 86_400_000;

/** What the page keeps in its address. `agent` and `high` narrow in the browser: no method does. */
export const SPEC: QuerySpec = {
  filters: {
    status: { kind: "many", choices: STATUSES },
    kind: { kind: "one", choices: ["foreground", "background"] },
    error: { kind: "one" },
    over: { kind: "one" },
    approval: { kind: "flag" },
    since: { kind: "one" },
    agent: { kind: "one" },
    high: { kind: "flag" },
    scope: { kind: "one", choices: ["session"] },
    layout: { kind: "one", choices: ["board"] },
    cursor: { kind: "one" },
  },
  defaultSize: 50,
};

/** Keys of the address that narrow nothing. */
const NOT_NARROWING = new Set(["cursor", "layout", "scope"]);

export function one(query: ListQuery, name: string): string {
  return query.filters[name]?.[0] ?? "";
}

export function isNarrowed(query: ListQuery): boolean {
  return query.text !== "" || Object.keys(query.filters).some((name) => !NOT_NARROWING.has(name));
}

/** Set a filter, and go back to the first page. */
export function narrow(query: ListQuery, name: string, values: readonly string[]): ListQuery {
  return withFilter(withFilter(query, "cursor", []), name, values);
}

/** Take every filter away, and keep how the list is shown and whose it is. */
export function widen(query: ListQuery): ListQuery {
  const kept = ["layout", "scope"].reduce((made, name) => withFilter(made, name, query.filters[name] ?? []), clearFilters(query));
  return kept;
}

/** A name for filters: a tab above the list. */
export interface SavedView {
  readonly name: string;
  readonly search: string;
}

export const TASK_VIEWS: readonly SavedView[] = [
  { name: "All", search: "" },
  { name: "Not done", search: "status=pending&status=running&status=paused" },
  { name: "Needs a person", search: "approval=1" },
  { name: "Failed today", search: "status=failed&since=today" },
  { name: "Slow: over 10 min", search: "over=600000" },
];

export const JOB_VIEWS: readonly SavedView[] = [
  { name: "All", search: "" },
  { name: "Active only", search: "status=pending&status=running&status=paused" },
  { name: "Has pending approval", search: "approval=1" },
  { name: "High priority", search: "high=1" },
  { name: "Stuck over 1 h", search: "status=running&status=paused&over=3600000" },
  { name: "Recently failed", search: "status=failed&since=24h" },
];

/** What of a query makes a view: without the page, the row and the layout. */
export function viewSearch(query: ListQuery): string {
  const filters = Object.fromEntries(Object.entries(query.filters).filter(([name]) => !NOT_NARROWING.has(name)));
  return writeQuery({ ...emptyQuery(SPEC), filters, text: query.text }, SPEC);
}

/** The query of a view, shown as the list is now. */
export function queryOfView(view: SavedView, now: ListQuery): ListQuery {
  const seen = readQuery(view.search, SPEC);
  const kept = Object.fromEntries(Object.entries(now.filters).filter(([name]) => name === "layout" || name === "scope"));
  return { ...seen, size: now.size, filters: { ...seen.filters, ...kept } };
}

/** The filter as the server takes it. Without `statuses`, for counting them all. */
export function filterOf(query: ListQuery, own: { tenant: string; user: string; isFleet: boolean }, kind: string, now: number): TaskFilter {
  const over = Number(one(query, "over"));
  const since = sinceOf(one(query, "since"), now);
  const kinds = kind || one(query, "kind");
  return {
    ...(query.filters["status"] ? { statuses: [...query.filters["status"]] } : {}),
    ...(kinds ? { kinds: [kinds] } : {}),
    ...(one(query, "error") ? { error_classes: [one(query, "error")] } : {}),
    ...(over > 0 ? { latency_above_ms: Math.round(over) } : {}),
    ...(one(query, "approval") ? { has_pending_approval: true } : {}),
    ...(since ? { since } : {}),
    ...(query.text ? { search: query.text } : {}),
    ...(one(query, "scope") ? {} : { identities: [{ tenant: own.tenant, ...(own.isFleet ? {} : { user: own.user }) }] }),
  };
}

/** `today`, `24h` or a moment; "" for what is none of these. Rounded, so that the same question stays the same. */
function sinceOf(text: string, now: number): string {
  if (text === "today") return new Date(new Date(now).setHours(0, 0, 0, 0)).toISOString();
  if (text === "24h") return new Date(Math.floor((now - DAY_MS) / 600_000) * 600_000).toISOString();
  const moment = Date.parse(text);
  return Number.isNaN(moment) ? "" : new Date(moment).toISOString();
}

export function useListQuery(): [ListQuery, (query: ListQuery) => void] {
  const { path, query } = location$.value;
  const read = readQuery(query.toString(), SPEC);
  const set = (next: ListQuery): void => {
    const text = writeQuery(next, SPEC);
    navigate(text ? `${path}?${text}` : path, { replace: true });
  };
  return [read, set];
}
