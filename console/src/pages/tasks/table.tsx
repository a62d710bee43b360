import type { ListQuery } from "../../model/query.ts";
import { formatDuration, formatDeadline, shortId } from "../../model/formats.ts";
import type { InboxItem } from "../../model/inbox.ts";
import { stateOf, type StateWords } from "../../model/status.ts";
import { Tag } from "../../parts/figures.tsx";
import { State } from "../../parts/glyph.tsx";
import { Icon } from "../../parts/icon.tsx";
import { Moment } from "../../parts/moments.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { now } from "../../shell/clock.ts";
import { navigate } from "../../shell/router.ts";
import type { TaskRow } from "../../wire/types.ts";
import type { Listed } from "./source.ts";

const idOf = (row: TaskRow): string => row.id;

export function runLink(row: Pick<TaskRow, "id">): string {
  return `/tasks/${encodeURIComponent(row.id)}`;
}

export function goalOf(row: TaskRow): string {
  return row.description || row.query;
}

/** A row's state in words: on whom a waiting one waits, or why it failed. */
export function stateOfRow(row: TaskRow, wait: InboxItem | undefined): StateWords {
  const waitingOn = wait && {
    reason: wait.kind === "approval" ? "approval_required" : wait.kind === "question" || wait.kind === "outcome" ? "await_input" : wait.kind === "sign_in" ? "sign_in" : "external_event",
    tool: wait.tool,
    isUnknownOutcome: wait.kind === "outcome",
    signIn: wait.kind === "sign_in" ? wait.tool : "",
    pausedBy: "",
  };
  return stateOf({ status: row.status, condition: row.condition ?? "", errorClass: row.error_class ?? "", waitingOn: waitingOn ?? null });
}

/** "approve edit_file, 38 min left". */
export function waitWords(state: StateWords, wait: InboxItem | undefined): string {
  if (!state.on) return "";
  const left = wait?.deadline ? `, ${formatDeadline(wait.deadline, wait.openedAt, now.value).text}` : "";
  return state.on + left;
}

interface Props {
  listed: Listed;
  rows: readonly TaskRow[];
  query: ListQuery;
  set: (query: ListQuery) => void;
  kind: string;
  orphans: ReadonlyMap<string, string>;
}

export function TaskTable({ listed, rows, query, set, kind, orphans }: Props) {
  const longest = Math.max(1, ...rows.map((row) => row.duration_ms));
  const known = new Set(rows.map((row) => row.id));
  const columns: Column<TaskRow>[] = [
    { name: "Status", width: "92px", phone: "second", cell: (row) => <StatusCell row={row} wait={listed.waits.get(row.id)} /> },
    {
      name: kind === "background" ? "Job" : "Task",
      width: "minmax(120px, 2fr)",
      phone: "first",
      cell: (row) => (
        <>
          {known.has(row.parent_task_id ?? "") && <Icon name="child" />} {row.is_background && kind !== "background" && <Tag>background</Tag>}{" "}
          {orphans.has(row.id) && (
            <span class="orphan" title={orphans.get(row.id)}>
              <Icon name="unplugged" />
              <Tag tone="waiting">orphan</Tag>
            </span>
          )}{" "}
          <a class="task-goal" href={runLink(row)} title={goalOf(row)}>
            {goalOf(row)}
          </a>
        </>
      ),
    },
    { name: "Id", width: "72px", from: "wide", phone: "hide", cell: (row) => <code class="faint" title={row.id}>{shortId(row.id)}</code> },
    { name: "Priority", width: "52px", from: "medium", align: "end", phone: "hide", cell: (row) => (row.priority === 0 ? <span class="faint">·</span> : String(row.priority).replace("-", "−")) },
    { name: kind === "background" ? "Parent session" : "Session", width: "96px", from: "medium", phone: "hide", cell: (row) => <a class="soft" href={`/sessions/${encodeURIComponent(row.parent_session_id)}`}><code>{row.parent_session_id}</code></a> },
    { name: "Started", width: "72px", from: "medium", align: "end", phone: "hide", cell: (row) => <Moment at={row.started_at} /> },
    ...(kind === "background" ? [{ name: "Last activity", width: "84px", from: "wide", align: "end", phone: "hide", cell: (row: TaskRow) => <Moment at={row.last_activity_at} /> } as Column<TaskRow>] : []),
    {
      name: "Active",
      width: "126px",
      align: "end",
      phone: "second",
      cell: (row) => (
        <span class="task-active">
          <i class="hide-small" aria-hidden="true">
            <i style={{ width: `${Math.max(2, (row.duration_ms / longest) * 100)}%` }} />
          </i>
          <span>{formatDuration(row.duration_ms)}</span>
        </span>
      ),
    },
    { name: "Tools", width: "40px", from: "medium", align: "end", phone: "hide", cell: (row) => row.tool_count.toLocaleString("en-US") },
    ...(kind === "background" ? [{ name: "Tags", width: "minmax(0, .6fr)", from: "wide", phone: "hide", cell: (row: TaskRow) => row.tags?.map((tag) => <Tag key={tag}>{tag}</Tag>) } as Column<TaskRow>] : []),
    { name: "Waits for, or why it failed", width: "minmax(0, 1.1fr)", phone: "second", cell: (row) => <WhyCell row={row} wait={listed.waits.get(row.id)} /> },
  ];
  return (
    <Table
      label={kind === "background" ? "Background jobs" : "Tasks"}
      rows={rows}
      columns={columns}
      keyOf={idOf}
      current={query.current || undefined}
      onCurrent={(row) => set({ ...query, current: row.id })}
      onOpen={(row) => navigate(runLink(row))}
      selected={new Set(query.selected)}
      onSelect={(selected) => set({ ...query, selected: [...selected] })}
      describe={(row) => `${goalOf(row)}, ${stateOfRow(row, listed.waits.get(row.id)).word}`}
    />
  );
}

function StatusCell({ row, wait }: { row: TaskRow; wait: InboxItem | undefined }) {
  const state = stateOfRow(row, wait);
  return <State name={state.glyph} word={state.word} />;
}

function WhyCell({ row, wait }: { row: TaskRow; wait: InboxItem | undefined }) {
  const state = stateOfRow(row, wait);
  if (state.code) return <code class="soft">{state.code}</code>;
  const text = waitWords(state, wait);
  if (!text) return null;
  return wait ? (
    <a class="soft" href={`/inbox/${encodeURIComponent(wait.token)}`} title={text}>
      {text}
    </a>
  ) : (
    <span class="soft">{text}</span>
  );
}
