import { useEffect, useRef, useState } from "preact/hooks";

import { formatCount, formatMoney, formatDeadline } from "../../model/formats.ts";
import { parseTime } from "../../model/events/wire.ts";
import { Figure, Figures } from "../../parts/figures.tsx";
import { now } from "../../shell/clock.ts";
import { counts, useEvents } from "../../wire/feed.ts";
import { useCall } from "../../wire/resource.ts";
import type { Answer } from "../../wire/client.ts";

const SAMPLES = 30;
const MINUTES = 15;
const DAY_MS = 86_400_000;

/** The last values of a number, one each time that it was asked. */
function useSamples(value: number | undefined, turn: unknown): readonly number[] {
  const [samples, set] = useState<readonly number[]>([]);
  useEffect(() => {
    if (value !== undefined) set((all) => [...all, value].slice(-SAMPLES));
  }, [turn]);
  return samples;
}

/** How many events came in each of the last fifteen minutes, counted here. */
function useEventsPerMinute(): readonly number[] {
  const buckets = useRef(new Map<number, number>());
  useEvents((events) => {
    const minute = Math.floor(Date.now() / 60_000);
    buckets.current.set(minute, (buckets.current.get(minute) ?? 0) + events.length);
    buckets.current.delete(minute - MINUTES);
  });
  const minute = Math.floor(now.value / 60_000);
  return Array.from({ length: MINUTES }, (_, at) => buckets.current.get(minute - MINUTES + 1 + at) ?? 0);
}

export function FigureStrip({ sessions }: { sessions: Answer<"sessions.list">["rows"] }) {
  const [figures] = useCall("runtime.counters", {}, { everyMs: 5_000 });
  const [pauses] = useCall("pause.list", { filter: { status: ["paused"] }, page_size: 50 }, { everyMs: 15_000 });
  const said = figures.state === "ready" ? figures.data : undefined;
  const running = useSamples(said?.tasks_running, said);
  const jobs = useSamples(said?.background_jobs_active, said);
  const servers = useSamples(said?.mcp_connections_healthy, said);
  const perMinute = useEventsPerMinute();
  const waiting = pauses.state === "ready" ? pauses.data : undefined;
  const next = waiting?.snapshots
    .flatMap((one) => parseTime(one.deadline) ?? [])
    .sort((a, b) => a - b)[0];
  const lately = sessions.filter((row) => (parseTime(row.last_activity_at) ?? 0) > now.peek() - DAY_MS);
  const cents = lately.reduce((sum, row) => sum + row.total_cost_cents, 0);
  const dash = <span class="faint">–</span>;
  return (
    <Figures label="At a glance">
      <Figure
        name="Waiting for a person"
        {...((counts.value.waiting ?? 0) > 0 ? { glyph: "waiting" as const } : {})}
        value={counts.value.waiting ?? waiting?.total_rows ?? dash}
        note={next === undefined ? undefined : `next in ${formatDeadline(next, next, now.value).text.replace(/ left$/, "")}`}
        href="/inbox"
      />
      <Figure
        name="Running"
        {...((said?.tasks_running ?? 0) > 0 ? { glyph: "running" as const } : {})}
        value={said ? formatCount(said.tasks_running) : dash}
        line={running}
        href="/tasks?status=running"
      />
      <Figure name="Background jobs" value={said ? formatCount(said.background_jobs_active) : dash} line={jobs} href="/background-jobs" />
      <Figure name="Events / min" value={formatCount(perMinute.at(-1) ?? 0)} line={perMinute} href="/events" />
      <Figure name="MCP online" value={said ? formatCount(said.mcp_connections_healthy) : dash} line={servers} href="/mcp-connections" />
      <Figure name="Cost, 24 h" value={formatMoney(cents / 100)} note={lately.length > 1 ? `${lately.length} sessions` : undefined} href="/sessions" />
    </Figures>
  );
}
