import "./live.css";

import { useState } from "preact/hooks";

import { summaryOf } from "../../model/event-list.ts";
import { formatClock, formatCount, formatDuration } from "../../model/formats.ts";
import { parseTime } from "../../model/events/wire.ts";
import { Button, Segments } from "../../parts/button.tsx";
import { EventSign } from "../../parts/events.tsx";
import { State, type GlyphName } from "../../parts/glyph.tsx";
import { useTwiceASecond } from "../../parts/lane-track.tsx";
import { zone } from "../../parts/moments.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { Disconnected, Failure, SkeletonRows } from "../../parts/states.tsx";
import { useKeys } from "../../shell/keys.ts";
import type { PageProps } from "../../shell/pages.ts";
import { useQuery } from "../../shell/router.ts";
import { useHeading } from "../../shell/title.ts";
import { call } from "../../wire/client.ts";
import { eventsPerSecond, recentEvents, useEvents } from "../../wire/feed.ts";
import { useAsked } from "../../wire/resource.ts";
import { useRunHistory } from "../../wire/run-history.ts";
import { runs, runsChanged, touchRuns } from "../../wire/runs.ts";
import { runtime } from "../../wire/runtime.ts";
import type { StatusStrip } from "../../wire/types.ts";
import { Lanes, sessionsOf } from "./lanes.tsx";
import { ActiveSessions, Attention, Cost, Health } from "./rail.tsx";

const SESSIONS = 20;
const DOCK = 8;
const WINDOWS = { "1": 60_000, "5": 5 * 60_000, "15": 15 * 60_000 } as const;
type WindowName = keyof typeof WINDOWS;

/** The sessions that were busy last, their tasks, and how many runs stand in each state: summed over the sessions. */
async function look(only: string, signal: AbortSignal) {
  const listed = await call("sessions.list", { filter: {}, sort: "last_activity_desc", cursor: "", limit: SESSIONS }, { signal });
  const named = only ? [only] : [...new Set(listed.rows.map((row) => row.session_id))];
  const pages = await Promise.allSettled(named.map((session) => call("tasks.list", { page_size: 25, include_status_counter_strip: true }, { signal, session })));
  const strip: StatusStrip = { pending: 0, running: 0, completed: 0, paused: 0, failed: 0 };
  for (const page of pages) {
    if (page.status !== "fulfilled") continue;
    for (const row of page.value.rows) runs.noteTask(row);
    for (const name of Object.keys(strip) as (keyof StatusStrip)[]) strip[name] += page.value.status_counter_strip?.[name] ?? 0;
  }
  touchRuns();
  return { sessions: listed.rows, strip };
}

/** What goes on now, session by session. `rest` is a session that it is narrowed to. */
export default function LivePage({ rest }: PageProps) {
  const [asked, reload] = useAsked((signal) => look(rest, signal), `live ${rest}`, { everyMs: 10_000 });
  useHeading(rest || "Live Runtime", rest ? [{ text: "Live Runtime", href: "/live-runtime" }] : []);
  useEvents((events) => {
    if (events.some((event) => /^task\.(spawned|started|completed|failed|cancelled)$/.test(event.type))) reload();
  });
  switch (asked.state) {
    case "disconnected":
      return <Disconnected />;
    case "loading":
      return <SkeletonRows noun="the live runtime" />;
    case "failed":
      return <Failure noun="the live runtime" error={asked.error} onRetry={reload} />;
    case "ready":
      return <Live session={rest} sessions={asked.data.sessions} strip={asked.data.strip} />;
  }
}

function Live({ session, sessions, strip }: { session: string; sessions: Awaited<ReturnType<typeof look>>["sessions"]; strip: StatusStrip }) {
  void runsChanged.value;
  const [chosen, choose] = useQuery("window");
  const name: WindowName = chosen in WINDOWS ? (chosen as WindowName) : "1";
  const [heldAt, hold] = useState<number | null>(null);
  const ticking = useTwiceASecond(heldAt === null);
  const at = heldAt ?? ticking;
  const grouped = sessionsOf(runs.all(), at - WINDOWS[name], session);
  useRunHistory(grouped.flatMap(([, placed]) => placed.map(({ run }) => run)));
  const toggle = () => hold(heldAt === null ? Date.now() : null);
  useKeys("Live", [{ keys: "Space", does: heldAt === null ? "Hold the picture" : "Go on", run: toggle }]);
  const states: readonly [GlyphName, string, number, string][] = [
    ["pending", "Pending", strip.pending, "pending"],
    ["running", "Running", strip.running, "running"],
    ["complete", "Complete", strip.completed, "complete"],
    ["waiting", "Waiting", strip.paused, "paused"],
    ["failed", "Failed", strip.failed, "failed"],
  ];
  return (
    <>
      <Posture />
      <div class="toolbar" role="group" aria-label="Runs by state">
        {states.map(([glyph, word, count, status]) => (
          <a key={status} class="live-state" href={`/tasks?status=${status}`}>
            <State name={glyph} word={word} /> <b>{formatCount(count)}</b>
          </a>
        ))}
        <span class="grow" />
        <Segments
          small
          label="Window"
          value={name}
          choices={(Object.keys(WINDOWS) as WindowName[]).map((value) => ({ value, text: `${value} min` }))}
          onChange={(value) => choose(value)}
        />
        <Button small kind="quiet" icon={heldAt === null ? "pause" : "play"} pressed={heldAt !== null} hint="Space" onClick={toggle}>
          {heldAt === null ? "Hold" : "Go on"}
        </Button>
      </div>
      <div class="live">
        <div class="live-main">
          <Lanes sessions={grouped} at={at} windowMs={WINDOWS[name]} />
          <Dock session={session} />
        </div>
        <aside class="live-rail" aria-label="Attention, health, sessions and cost">
          <Attention session={session} />
          <Health />
          <ActiveSessions rows={session ? sessions.filter((row) => row.session_id === session) : sessions} />
          <Cost session={session} />
        </aside>
      </div>
    </>
  );
}

/** What the runtime is: its name, versions, how long it is up, and what it can. */
function Posture() {
  const info = runtime.value;
  if (!info) return null;
  return (
    <p class="live-posture small">
      <b>{info.display_name || info.instance_id}</b>
      <span class="soft whole">
        {[info.build_version && `harborage ${info.build_version}`, `protocol ${info.protocol_version}`, `up ${formatDuration(info.uptime_seconds * 1000)}`].filter(Boolean).join(" · ")}
      </span>
      <span class="faint cut" title={info.capabilities.join(", ")}>
        {info.capabilities.join(" · ")}
      </span>
    </p>
  );
}

/** The newest events, as they come. */
function Dock({ session }: { session: string }) {
  const shown = recentEvents.value.filter((event) => !session || event.session === session).slice(-DOCK).reverse();
  return (
    <section class="live-dock" aria-label="Live events">
      <PaneHead title="Live events" count={`${eventsPerSecond.value.toFixed(1)}/s`}>
        <a class="link" href={session ? `/events?session=${encodeURIComponent(session)}` : "/events"}>
          Events
        </a>
      </PaneHead>
      {shown.length === 0 && <p class="live-quiet">Nothing since this page was opened.</p>}
      <ul>
        {shown.map((event) => (
          <li key={event.sequence} class="live-event">
            <time class="mono faint">{formatClock(parseTime(event.occurred_at) ?? 0, zone()).slice(0, 8)}</time>
            <EventSign type={event.type} />
            <code class="cut">{event.type}</code>
            <span class="cut soft">{summaryOf(event)}</span>
            <span class="cut faint hide-small">{event.session}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
