import { isEnd, type RunState } from "./run-state.ts";
import type { RunStatus } from "./views.ts";
import { parseTime } from "./wire.ts";

/** What the console reads of a task row; a foreign server leaves some of it out. */
export interface TaskRowFacts {
  readonly id: string;
  readonly kind: string;
  readonly status: string;
  readonly priority: number;
  readonly parent_session_id: string;
  readonly parent_task_id?: string;
  readonly description: string;
  readonly query: string;
  readonly started_at: string;
  readonly updated_at: string;
  readonly error_class?: string;
  readonly condition?: string;
  readonly agent_name?: string;
  readonly cost_usd?: number;
  readonly identity?: { readonly tenant?: string; readonly user?: string };
}

const STATUSES: readonly string[] = ["pending", "running", "paused", "complete", "failed", "cancelled"];

/** Fill in what events do not say. The status of a row counts while no event told one, or when the run has ended. */
export function noteRow(state: RunState, row: TaskRowFacts): void {
  const facts = state.facts;
  facts.goal = row.query || row.description || facts.goal;
  facts.agent = row.agent_name ?? facts.agent;
  facts.kind = row.kind || facts.kind;
  facts.parentId = row.parent_task_id ?? facts.parentId;
  facts.priority = row.priority;
  facts.condition = row.condition ?? "";
  facts.startedAt ??= parseTime(row.started_at);
  facts.spawnedAt ??= facts.startedAt;
  if (facts.usd === 0) facts.usd = row.cost_usd ?? 0;
  const status = STATUSES.includes(row.status) ? (row.status as RunStatus) : null;
  if (!status) return;
  const at = parseTime(row.updated_at) ?? facts.startedAt ?? 0;
  const isNews = !state.isToldByEvents || (isEnd(status) && !isEnd(facts.status));
  if (isNews && (facts.status !== status || state.changes.length === 0)) state.setStatus(status, at, row.error_class ?? "");
  else if (facts.status === status) facts.errorClass = row.error_class ?? facts.errorClass;
}
