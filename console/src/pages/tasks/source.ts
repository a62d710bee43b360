import { useMemo } from "preact/hooks";

import type { ListQuery } from "../../model/query.ts";
import { inboxItem, type InboxItem } from "../../model/inbox.ts";
import { plural } from "../../model/formats.ts";
import { announce, say } from "../../parts/toast.tsx";
import { call, control, type Control } from "../../wire/client.ts";
import { connection, seesFleet } from "../../wire/connection.ts";
import { asWireError } from "../../wire/error.ts";
import { useAsked, useCall, type Resource } from "../../wire/resource.ts";
import { runs, touchRuns } from "../../wire/runs.ts";
import type { TaskPage, TaskRow } from "../../wire/types.ts";
import { filterOf, one } from "./query.ts";

const EVERY_MS = 4_000;
const MOST_PARENTS = 20;

export interface Listed {
  readonly page: Resource<TaskPage>;
  /** How many pass the other filters, by status; nothing while it is not known. */
  readonly counts: TaskPage["aggregates"] | null;
  readonly rows: readonly TaskRow[];
  /** What each waiting run waits for. */
  readonly waits: ReadonlyMap<string, InboxItem>;
  readonly reload: () => void;
}

/** A page of tasks, how many there are of each status, and what the waiting ones wait for. */
export function useTasks(query: ListQuery, kind: string): Listed {
  const to = connection.value;
  const own = { tenant: to?.tenant ?? "", user: to?.user ?? "", isFleet: seesFleet.value };
  const filter = filterOf(query, own, kind, Date.now());
  const cursor = one(query, "cursor");
  const [page, reload] = useCall("tasks.list", { filter, page_size: query.size, cursor: cursor ? { next_page_token: cursor } : {} }, { everyMs: EVERY_MS });
  const { statuses: _, ...others } = filter;
  const [counted] = useCall("tasks.list", { filter: others, page_size: 1 }, { everyMs: EVERY_MS });
  const [paused] = useCall("pause.list", { filter: { status: ["paused"] }, page_size: 200 }, { everyMs: EVERY_MS });
  const rows = useMemo(() => (page.state === "ready" ? inFamilies(page.data.rows.filter((row) => passesHere(row, query))) : []), [page, one(query, "agent"), one(query, "high")]);
  const waits = useMemo(() => new Map((paused.state === "ready" ? paused.data.snapshots : []).map((row) => [row.identity.run ?? "", inboxItem(row)])), [paused]);
  return { page, counts: counted.state === "ready" ? counted.data.aggregates : null, rows, waits, reload };
}

function passesHere(row: TaskRow, query: ListQuery): boolean {
  const agent = one(query, "agent");
  return (!agent || row.agent_name === agent) && (!one(query, "high") || row.priority > 0);
}

/** Children behind their parents, where both are on the page; the order of the server else. */
function inFamilies(rows: readonly TaskRow[]): TaskRow[] {
  const known = new Set(rows.map((row) => row.id));
  const children = new Map<string, TaskRow[]>();
  for (const row of rows) {
    const parent = row.parent_task_id ?? "";
    if (known.has(parent)) children.set(parent, [row, ...(children.get(parent) ?? [])]);
  }
  const placed: TaskRow[] = [];
  const place = (row: TaskRow): void => {
    placed.push(row);
    for (const child of children.get(row.id) ?? []) place(child);
  };
  for (const row of rows) if (!known.has(row.parent_task_id ?? "")) place(row);
  return placed;
}

/** Why a job has no parent that waits for it, by the job's id: its parent is not there, or has ended before it. */
export function useOrphans(rows: readonly TaskRow[], isOn: boolean): ReadonlyMap<string, string> {
  const known = new Map(rows.map((row) => [row.id, row]));
  const going = rows.filter((row) => row.parent_task_id && ["pending", "running", "paused"].includes(row.status));
  const missing = [...new Set(going.map((row) => row.parent_task_id ?? "").filter((id) => !known.has(id)))].slice(0, MOST_PARENTS);
  const [asked] = useAsked(
    async (signal) => {
      const answers = await Promise.allSettled(missing.map((id) => call("tasks.get", { id }, { signal })));
      return new Map(answers.map((one, at) => [missing[at] ?? "", one.status === "fulfilled" ? one.value.task.status : "missing"]));
    },
    missing.join(),
    { when: isOn && missing.length > 0, everyMs: 15_000 },
  );
  const told = asked.state === "ready" ? asked.data : null;
  const why = (row: TaskRow): string => {
    const parent = row.parent_task_id ?? "";
    const status = known.get(parent)?.status ?? told?.get(parent) ?? "";
    if (status === "missing") return `Its parent ${parent} is not in the listing`;
    return ["complete", "failed", "cancelled"].includes(status) ? `Its parent has ended (${status}) and waits for it no more` : "";
  };
  return new Map(isOn ? going.flatMap((row) => (why(row) ? [[row.id, why(row)]] : [])) : []);
}

/** Send a control to each of these runs, and say what the server took. What becomes of it is told by the runs. */
export async function sendToAll(rows: readonly TaskRow[], verb: Control, payload: Record<string, unknown> = {}): Promise<void> {
  const sent = await Promise.allSettled(
    rows.map(async (row) => {
      const eventId = `console-${crypto.randomUUID()}`;
      runs.noteSent({ run: row.id, type: verb.toUpperCase(), eventId, at: Date.now() });
      try {
        await control(row.id, verb, payload, { eventId, session: row.parent_session_id });
      } catch (error) {
        runs.noteNotSent(row.id, eventId, asWireError(error).code, Date.now());
        throw error;
      } finally {
        touchRuns();
      }
    }),
  );
  const refused = sent.flatMap((one) => (one.status === "rejected" ? [asWireError(one.reason).code] : []));
  const name = verb.charAt(0).toUpperCase() + verb.slice(1);
  const taken = rows.length - refused.length;
  const text = `${name}: ${taken ? `sent to ${plural(taken, "run")}` : ""}${taken && refused.length ? ", " : ""}${refused.length ? `${refused.length} not sent (${[...new Set(refused)].join(", ")})` : ""}`;
  announce(text);
  say({ glyph: refused.length ? "failed" : "sent", text });
}
