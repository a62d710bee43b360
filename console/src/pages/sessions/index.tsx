import "./sessions.css";

import { useState } from "preact/hooks";

import { formatCount, formatDuration, formatMoney } from "../../model/formats.ts";
import { clearFilters, isFiltered, readQuery, toggleFilter, withFilter, withText, writeQuery, type ListQuery, type QuerySpec } from "../../model/query.ts";
import { Button, ButtonLink } from "../../parts/button.tsx";
import { SearchField } from "../../parts/field.tsx";
import { ChoiceFilter } from "../../parts/filters.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { Moment } from "../../parts/moments.tsx";
import { Toolbar } from "../../parts/pane.tsx";
import { Disconnected, Empty, Failure, NoMatch, SkeletonRows } from "../../parts/states.tsx";
import { Pager, Table, type Column } from "../../parts/table.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { location$, navigate } from "../../shell/router.ts";
import { useEvents } from "../../wire/feed.ts";
import { useCall } from "../../wire/resource.ts";
import type { SessionRow } from "../../wire/types.ts";
import { SessionPageOf } from "./detail.tsx";
import { SessionState, STATES } from "./state.tsx";

const STATUSES = ["running", "paused", "completed", "failed"];
const SINCE: Record<string, [words: string, ms: number]> = { "24h": ["last 24 h", 86_400_000], "7d": ["last 7 d", 7 * 86_400_000] };
const SPEC: QuerySpec = {
  filters: {
    status: { kind: "many", choices: STATUSES },
    since: { kind: "one", choices: Object.keys(SINCE) },
    user: { kind: "one" },
    tenant: { kind: "one" },
    agent: { kind: "one" },
    pending: { kind: "flag" },
    failed: { kind: "flag" },
    cost: { kind: "one", choices: ["10", "100", "1000"] },
  },
};

export default function SessionsPage({ rest }: PageProps) {
  return rest ? <SessionPageOf key={rest} id={rest} /> : <SessionList />;
}

const COLUMNS: readonly Column<SessionRow>[] = [
  {
    name: "Session",
    width: "minmax(120px,1.2fr)",
    phone: "first",
    cell: (row) => (
      <a class="link" href={`/sessions/${encodeURIComponent(row.session_id)}`} title={row.session_id}>
        <b>{row.session_id}</b>
      </a>
    ),
  },
  { name: "State", width: "150px", phone: "first", cell: (row) => <SessionState row={row} /> },
  { name: "Agent", width: "minmax(72px,1fr)", phone: "second", cell: (row) => row.agent_name },
  { name: "User", width: "minmax(56px,.7fr)", from: "medium", phone: "hide", cell: (row) => <span title={`${row.tenant_id} / ${row.user_id}`}>{row.user_id}</span> },
  { name: "Started", width: "76px", from: "wide", phone: "hide", cell: (row) => <Moment at={row.started_at} /> },
  { name: "Last activity", width: "84px", phone: "second", cell: (row) => <Moment at={row.last_activity_at} /> },
  {
    name: "Runs",
    width: "64px",
    align: "end",
    phone: "hide",
    cell: (row) => (
      <span class="session-runs">
        {row.has_failed_task && <Glyph name="failed" label="a run failed" />}
        {formatCount(row.tasks_count)}
      </span>
    ),
  },
  { name: "Events", width: "56px", align: "end", from: "medium", phone: "hide", cell: (row) => formatCount(row.events_count) },
  { name: "Tokens", width: "56px", align: "end", from: "wide", phone: "hide", cell: (row) => formatCount(row.total_tokens) },
  { name: "Active", width: "76px", align: "end", from: "wide", phone: "hide", cell: (row) => formatDuration(row.duration / 1e6) },
  { name: "Cost", width: "60px", align: "end", phone: "second", cell: (row) => (row.total_cost_cents ? <b>{formatMoney(row.total_cost_cents / 100)}</b> : "") },
];
const keyOf = (row: SessionRow): string => `${row.tenant_id}/${row.user_id}/${row.session_id}`;

function filterOf(query: ListQuery, opened: number) {
  const one = (name: string) => query.filters[name]?.[0];
  const since = SINCE[one("since") ?? ""];
  return {
    ...(query.filters["status"] ? { statuses: [...query.filters["status"]] } : {}),
    ...(one("agent") ? { agent_ids: [one("agent") as string] } : {}),
    ...(one("user") ? { user_ids: [one("user") as string] } : {}),
    ...(one("tenant") ? { tenant_ids: [one("tenant") as string] } : {}),
    ...(since ? { started_window: { from: new Date(opened - since[1]).toISOString() } } : {}),
    ...(one("pending") ? { has_intervention: true } : {}),
    ...(one("failed") ? { has_failed_task: true } : {}),
    ...(one("cost") ? { cost_above_cents: Number(one("cost")) } : {}),
    ...(query.text ? { query: query.text } : {}),
  };
}

/** All sessions that the viewer may see, those that were busy last first. */
function SessionList() {
  const query = readQuery(location$.value.query.toString(), SPEC);
  const change = (next: ListQuery) => {
    turn([""]);
    const text = writeQuery(next, SPEC);
    navigate(`/sessions${text && `?${text}`}`, { replace: true });
  };
  const [cursors, turn] = useState<readonly string[]>([""]);
  const [opened] = useState(Date.now);
  const body = { filter: filterOf(query, opened), sort: "last_activity_desc", cursor: cursors.at(-1) ?? "", limit: query.size };
  const [listed, reload] = useCall("sessions.list", body, { everyMs: 15_000 });
  useEvents((events) => {
    if (events.some((event) => event.type === "session.opened" || event.type === "pause.requested" || event.type === "pause.resumed")) reload();
  });
  if (listed.state === "disconnected") return <Disconnected />;
  const rows = listed.state === "ready" ? listed.data.rows : [];
  const from = (cursors.length - 1) * query.size;
  return (
    <>
      <Toolbar label="Filters">
        <SearchField label="Filter by id, agent or user" value={query.text} onChange={(text) => change(withText(query, text))} />
        <ChoiceFilter name="State" values={query.filters["status"] ?? []} choices={STATUSES.map((value) => ({ value, text: STATES[value]?.[1] ?? value }))} onChange={(values) => change(withFilter(query, "status", values))} />
        <ChoiceFilter name="Started" single values={query.filters["since"] ?? []} choices={Object.entries(SINCE).map(([value, [text]]) => ({ value, text }))} onChange={(values) => change(withFilter(query, "since", values))} />
        {(["user", "tenant", "agent"] as const).map((name) => (
          <ChoiceFilter
            key={name}
            name={`${name.charAt(0).toUpperCase()}${name.slice(1)}`}
            single
            isOpen
            values={query.filters[name] ?? []}
            choices={[...new Set(rows.map((row) => ({ user: row.user_id, tenant: row.tenant_id, agent: row.agent_id })[name]))].filter(Boolean).map((value) => ({ value }))}
            onChange={(values) => change(withFilter(query, name, values))}
          />
        ))}
        <ChoiceFilter name="Cost" single values={query.filters["cost"] ?? []} choices={[{ value: "10", text: "over $0.10" }, { value: "100", text: "over $1" }, { value: "1000", text: "over $10" }]} onChange={(values) => change(withFilter(query, "cost", values))} />
        <Button small pressed={Boolean(query.filters["pending"])} onClick={() => change(toggleFilter(query, "pending", "1"))}>
          Waits for a person
        </Button>
        <Button small pressed={Boolean(query.filters["failed"])} onClick={() => change(toggleFilter(query, "failed", "1"))}>
          Has a failed run
        </Button>
        {isFiltered(query) && (
          <Button small kind="quiet" onClick={() => change(clearFilters(query))}>
            Clear
          </Button>
        )}
      </Toolbar>
      {listed.state === "loading" && <SkeletonRows noun="sessions" />}
      {listed.state === "failed" && <Failure noun="sessions" error={listed.error} onRetry={reload} />}
      {listed.state === "ready" && rows.length === 0 && isFiltered(query) && <NoMatch noun="session" onClear={() => change(clearFilters(query))} />}
      {listed.state === "ready" && rows.length === 0 && !isFiltered(query) && (
        <Empty title="No sessions yet" actions={<ButtonLink kind="primary" href="/playground">Open the playground</ButtonLink>}>
          A session begins with its first run.
        </Empty>
      )}
      {listed.state === "ready" && rows.length > 0 && (
        <>
          <Table label="Sessions" rows={rows} columns={COLUMNS} keyOf={keyOf} onOpen={(row) => navigate(`/sessions/${encodeURIComponent(row.session_id)}`)} describe={(row) => `session ${row.session_id}`} />
          <Pager
            from={from + 1}
            to={from + rows.length}
            rows={query.size}
            onRows={(size) => change({ ...query, size })}
            onPrevious={cursors.length > 1 ? () => turn(cursors.slice(0, -1)) : undefined}
            onNext={listed.data.truncated ? () => turn([...cursors, listed.data.next_cursor]) : undefined}
          />
        </>
      )}
    </>
  );
}
