import { useRef, useState } from "preact/hooks";

import { formatMoney, formatTime } from "../../model/formats.ts";
import { parseTime } from "../../model/events/wire.ts";
import { Segments } from "../../parts/button.tsx";
import { ShareBars, type ShareRow } from "../../parts/figures.tsx";
import { zone } from "../../parts/moments.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { now } from "../../shell/clock.ts";
import { useEvents } from "../../wire/feed.ts";
import type { Answer } from "../../wire/client.ts";
import { payloadOf } from "../../wire/stream.ts";

type By = "agent" | "model" | "tenant";
const DAY_MS = 86_400_000;
const SHOWN = 6;
const CHOICES = [
  { value: "agent", text: "agent" },
  { value: "model", text: "model" },
  { value: "tenant", text: "tenant" },
] as const;

interface CostProps {
  sessions: Answer<"sessions.list">["rows"];
  tasks: Answer<"tasks.list">["rows"];
  isTruncated: boolean;
}

/** What was spent: by agent and tenant from the tasks or sessions of the last day, by model from what came since the page opened. */
export function CostCard({ sessions, tasks, isTruncated }: CostProps) {
  const [by, choose] = useState<By>("agent");
  const since = useRef(Date.now());
  const byModel = useRef(new Map<string, number>());
  useEvents((events) => {
    for (const event of events) {
      if (event.type !== "llm.cost.recorded") continue;
      const said = payloadOf(event, "llm.cost.recorded");
      const model = said.Model || "unnamed";
      byModel.current.set(model, (byModel.current.get(model) ?? 0) + (said.Cost?.TotalCost ?? 0));
    }
  });
  const spent = new Map<string, number>();
  const add = (name: string, usd: number) => spent.set(name, (spent.get(name) ?? 0) + usd);
  // A runtime that tells the agent and the cost of each task is more exact than the agent of a whole session.
  const isByTask = tasks.some((row) => row.agent_name && row.cost_usd);
  if (by === "model") for (const [name, usd] of byModel.current) add(name, usd);
  else if (by === "agent" && isByTask) {
    for (const row of tasks) {
      if ((parseTime(row.updated_at) ?? 0) >= now.peek() - DAY_MS) add(row.agent_name || "unnamed", row.cost_usd ?? 0);
    }
  } else {
    for (const row of sessions) {
      if ((parseTime(row.last_activity_at) ?? 0) < now.peek() - DAY_MS) continue;
      const name = by === "agent" ? row.agent_name || "unnamed" : row.tenant_id;
      add(name, row.total_cost_cents / 100);
    }
  }
  const rows: ShareRow[] = [...spent]
    .sort(([, a], [, b]) => b - a)
    .slice(0, SHOWN)
    .map(([name, usd]) => ({
      name,
      value: usd,
      text: <b>{formatMoney(usd)}</b>,
      href: by === "agent" ? `/sessions?agent=${encodeURIComponent(name)}` : undefined,
    }));
  const window = by === "model" ? `since ${formatTime(since.current, { now: now.value, zone: zone() }).slice(0, 5)}` : "24 h";
  return (
    <section class="overview-section cost" aria-label="Cost">
      <PaneHead title="Cost" count={`${window}${isTruncated && by !== "model" ? ", newest sessions" : ""}`}>
        <Segments small label="Cost by" value={by} choices={CHOICES} onChange={choose} />
      </PaneHead>
      {rows.length ? <ShareBars rows={rows} label={`Cost by ${by}`} /> : <p class="quiet-line">Nothing was spent.</p>}
    </section>
  );
}
