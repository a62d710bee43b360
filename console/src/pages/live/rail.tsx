import { useRef } from "preact/hooks";

import { formatMoney, formatTime } from "../../model/formats.ts";
import { stateOf, waitingOnSnapshot } from "../../model/status.ts";
import { ButtonLink } from "../../parts/button.tsx";
import { ShareBars } from "../../parts/figures.tsx";
import { Glyph, type GlyphName } from "../../parts/glyph.tsx";
import { Deadline, Since, zone } from "../../parts/moments.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { PartFailure } from "../../parts/states.tsx";
import { now } from "../../shell/clock.ts";
import { useEvents } from "../../wire/feed.ts";
import { useCall } from "../../wire/resource.ts";
import { payloadOf } from "../../wire/stream.ts";
import type { SessionRow } from "../../wire/types.ts";

const SHOWN = 8;
const HEALTH: Record<string, GlyphName> = { ready: "complete", degraded: "waiting", unavailable: "failed" };

/** What waits for a person, the first to run out of time first. */
export function Attention({ session }: { session: string }) {
  const filter = { status: ["paused"], ...(session ? { session_ids: [session] } : {}) };
  const [listed, reload] = useCall("pause.list", { filter, page_size: 50 }, { everyMs: 5_000, ...(session ? { session } : {}) });
  useEvents((events) => {
    if (events.some((event) => event.type.startsWith("pause."))) reload();
  });
  const rows = listed.state === "ready" ? [...listed.data.snapshots].sort((a, b) => (a.deadline ?? "9").localeCompare(b.deadline ?? "9") || a.paused_at.localeCompare(b.paused_at)) : [];
  return (
    <section class="live-part" aria-label="Needs attention">
      <PaneHead title="Needs attention" count={listed.state === "ready" ? listed.data.total_rows : undefined}>
        <a class="link" href="/inbox">
          Inbox
        </a>
      </PaneHead>
      {listed.state === "failed" && <PartFailure noun="What waits" error={listed.error} onRetry={reload} />}
      {listed.state === "ready" && rows.length === 0 && <p class="live-quiet">Nothing waits for a person.</p>}
      <ul>
        {rows.slice(0, SHOWN).map((row) => {
          const on = waitingOnSnapshot(row.reason, row.payload);
          const state = stateOf({ status: "paused", waitingOn: on });
          return (
            <li key={row.token} class="live-need">
              <Glyph name={state.glyph} label={state.word} />
              <span class="cut">
                {on.tool ? <code>{on.tool}</code> : state.on} <span class="faint">{row.agent_name}</span>
              </span>
              {row.deadline ? <Deadline deadline={row.deadline} opened={row.paused_at} /> : <span class="faint small whole"><Since at={row.paused_at} /></span>}
              <ButtonLink small href={`/inbox/${encodeURIComponent(row.token)}`}>
                {on.isUnknownOutcome ? "Resolve" : row.reason === "await_input" ? "Answer" : "Review"}
              </ButtonLink>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

/** Whether each part of the runtime is ready. */
export function Health() {
  const [asked, reload] = useCall("runtime.health", {}, { everyMs: 15_000 });
  const parts = asked.state === "ready" ? asked.data.subsystems : [];
  const bad = parts.filter((part) => part.status !== "ready").length;
  return (
    <section class="live-part" aria-label="Health">
      <PaneHead title="Health" count={parts.length ? `${parts.length - bad} ready${bad ? `, ${bad} not` : ""}` : undefined} />
      {asked.state === "failed" && <PartFailure noun="Health" error={asked.error} onRetry={reload} />}
      <ul class="live-health">
        {parts.map((part) => (
          <li key={part.subsystem}>
            <Glyph name={HEALTH[part.status] ?? "unknown"} />
            <span>{part.subsystem}</span>
            <span class="soft cut">{[part.status, part.detail].filter(Boolean).join(": ")}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function ActiveSessions({ rows }: { rows: readonly SessionRow[] }) {
  const active = rows.filter((row) => row.status === "running").slice(0, SHOWN);
  return (
    <section class="live-part" aria-label="Active sessions">
      <PaneHead title="Active sessions" count={active.length || undefined}>
        <a class="link" href="/sessions">
          All
        </a>
      </PaneHead>
      {active.length === 0 && <p class="live-quiet">No session is open.</p>}
      <ul>
        {active.map((row) => (
          <li key={`${row.tenant_id}/${row.user_id}/${row.session_id}`} class="live-session-row">
            <a class="link cut" href={`/live-runtime/${encodeURIComponent(row.session_id)}`}>
              {row.session_id}
            </a>
            <span class="faint cut">{row.user_id}</span>
            <span class="number">{row.total_cost_cents > 0 && formatMoney(row.total_cost_cents / 100)}</span>
            <a class="link small" href={`/playground/${encodeURIComponent(row.session_id)}`} aria-label={`Steer ${row.session_id}`}>
              Steer
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What models cost since the page opened, from the events of their calls. */
export function Cost({ session }: { session: string }) {
  const since = useRef(Date.now());
  const spent = useRef(new Map<string, number>());
  useEvents((events) => {
    for (const event of events) {
      if (event.type !== "llm.cost.recorded" || (session && event.session !== session)) continue;
      const said = payloadOf(event, "llm.cost.recorded");
      const model = said.Model || "unnamed";
      spent.current.set(model, (spent.current.get(model) ?? 0) + (said.Cost?.TotalCost ?? 0));
    }
  });
  const rows = [...spent.current].sort(([, a], [, b]) => b - a).map(([name, value]) => ({ name, value, text: <b>{formatMoney(value)}</b> }));
  return (
    <section class="live-part" aria-label="Cost">
      <PaneHead title="Cost" count={`since ${formatTime(since.current, { now: now.value, zone: zone() }).slice(0, 5)}`}>
        <a class="link" href="/settings">
          Ceilings
        </a>
      </PaneHead>
      {rows.length ? <ShareBars rows={rows} label="Cost by model" /> : <p class="live-quiet">Nothing was spent since.</p>}
    </section>
  );
}
