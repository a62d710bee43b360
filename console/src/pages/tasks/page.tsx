import "./tasks.css";

import { useRef } from "preact/hooks";

import { toCsv } from "../../model/event-list.ts";
import { Button, ButtonLink } from "../../parts/button.tsx";
import { useHeldRows } from "../../parts/held.ts";
import { Split } from "../../parts/pane.tsx";
import { Disconnected, Empty, Failure, NoMatch, SkeletonRows } from "../../parts/states.tsx";
import { Pager } from "../../parts/table.tsx";
import { useKeys } from "../../shell/keys.ts";
import type { TaskRow } from "../../wire/types.ts";
import { Board } from "./board.tsx";
import { BulkBar } from "./bulk.tsx";
import { Filters, StatusToggles, Views } from "./filters.tsx";
import { isNarrowed, narrow, one, useListQuery, widen, type SavedView } from "./query.ts";
import { TaskRail } from "./rail.tsx";
import { useOrphans, useTasks } from "./source.ts";
import { goalOf, TaskTable } from "./table.tsx";

const idOf = (row: TaskRow): string => row.id;

/** Tasks by saved views, filters and status, as a table or a board. `kind` leaves one kind in view. */
export function TaskList({ kind, noun, views }: { kind: "" | "background"; noun: string; views: readonly SavedView[] }) {
  const [query, set] = useListQuery();
  const listed = useTasks(query, kind);
  const held = useHeldRows(listed.rows, idOf);
  const orphans = useOrphans(listed.rows, kind === "background");
  const before = useRef<string[]>([]);
  const isBoard = one(query, "layout") === "board";
  useKeys("Tasks", [{ keys: ".", does: "Show new rows", why: held.fresh ? "" : "There are none", run: held.release }]);
  if (listed.page.state === "disconnected") return <Disconnected />;
  if (listed.page.state === "failed") return <Failure noun={noun} error={listed.page.error} onRetry={listed.reload} />;
  const rows = held.shown;
  const selected = rows.filter((row) => query.selected.includes(row.id));
  const errors = [...new Set(rows.map((row) => row.error_class ?? "").filter(Boolean))].sort();
  const next = listed.page.state === "ready" ? (listed.page.data.cursor.next_page_token ?? "") : "";
  const cursor = one(query, "cursor");
  const total = listed.page.state === "ready" ? Object.values(listed.page.data.aggregates).reduce((sum, count) => sum + count, 0) : 0;
  const isHere = Boolean(one(query, "agent") || one(query, "high"));
  const turn = (to: string) => set({ ...narrow(query, "cursor", to ? [to] : []), current: "" });
  const from = before.current.length * query.size;
  const rail = query.current && !isBoard ? (
    <TaskRail key={query.current} id={query.current} wait={listed.waits.get(query.current)} orphan={orphans.get(query.current) ?? ""} onClose={() => set({ ...query, current: "" })} />
  ) : undefined;
  return (
    <Split label="The task" rail={rail}>
      <Views query={query} set={set} views={views} place={kind || "tasks"} />
      <StatusToggles query={query} set={set} counts={listed.counts} />
      <Filters query={query} set={set} kind={kind} errors={errors} onExport={() => save(rows)} />
      {listed.page.state === "loading" ? (
        <SkeletonRows noun={noun} />
      ) : rows.length === 0 ? (
        isNarrowed(query) || cursor ? <NoMatch noun={kind ? "job" : "task"} onClear={() => set(widen(query))} /> : <Nothing kind={kind} />
      ) : (
        <div class="task-list" {...held.props}>
          {held.fresh > 0 && (
            <div class="fresh">
              <Button small hint="." onClick={held.release}>{`${held.fresh} new`}</Button>
            </div>
          )}
          {isBoard ? (
            <Board listed={listed} rows={rows} counts={listed.counts} />
          ) : (
            <TaskTable listed={listed} rows={rows} query={query} set={set} kind={kind} orphans={orphans} />
          )}
        </div>
      )}
      {selected.length > 0 && !isBoard && <BulkBar rows={selected} waits={listed.waits} onDone={listed.reload} />}
      {rows.length > 0 && (
        <Pager
          from={from + 1}
          to={from + rows.length}
          total={isHere || (cursor && !from) ? undefined : total}
          rows={query.size}
          onRows={(size) => set({ ...narrow(query, "cursor", []), size: size as 25 | 50 | 100 })}
          onPrevious={cursor ? () => turn(before.current.pop() ?? "") : undefined}
          onNext={next ? () => { before.current.push(cursor); turn(next); } : undefined}
          {...(isHere ? { note: "filtered on this page" } : {})}
        />
      )}
    </Split>
  );
}

function Nothing({ kind }: { kind: string }) {
  return kind ? (
    <Empty title="No background job yet" actions={<ButtonLink href="/tasks">View all tasks</ButtonLink>}>
      A run that spawns a task of kind background makes one.
    </Empty>
  ) : (
    <Empty title="No task yet" actions={<ButtonLink kind="primary" href="/playground">Open the playground</ButtonLink>}>
      A run makes the first one: ask an agent something.
    </Empty>
  );
}

/** Save the rows in view as CSV. */
function save(rows: readonly TaskRow[]): void {
  const head = ["id", "status", "kind", "priority", "session", "started", "active_ms", "tools", "agent", "error", "goal"];
  const lines = rows.map((row) => [row.id, row.status, row.kind, String(row.priority), row.parent_session_id, row.started_at, String(row.duration_ms), String(row.tool_count), row.agent_name ?? "", row.error_class ?? "", goalOf(row)]);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([toCsv([head, ...lines])], { type: "text/csv" }));
  link.download = "tasks.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
}
