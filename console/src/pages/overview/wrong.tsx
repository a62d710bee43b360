import { useRef } from "preact/hooks";

import { parseTime } from "../../model/events/wire.ts";
import { formatCount } from "../../model/formats.ts";
import { Glyph, type GlyphName } from "../../parts/glyph.tsx";
import { Moment } from "../../parts/moments.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { PartFailure } from "../../parts/states.tsx";
import { useEvents } from "../../wire/feed.ts";
import { useCall } from "../../wire/resource.ts";
import type { WireEvent } from "../../wire/stream.ts";

const HOUR_NS = 3_600_000_000_000;
const SIGNS: Record<string, GlyphName> = {
  "task.failed": "failed",
  "tool.failed": "failed",
  "tool.policy_exhausted": "failed",
  "planner.error": "failed",
  "tool.interrupted": "unknown",
  "governance.budget_exceeded": "waiting",
  "governance.rate_limited": "waiting",
  "runtime.error": "failed",
  "runtime.warning": "cancelled",
  "bus.dropped": "cancelled",
  "memory.health_changed": "cancelled",
  "audit.redaction_failed": "failed",
};

/** What an event says of what went wrong: an error's class, a tool, a tier. */
function detailOf(event: WireEvent): string {
  const payload = (event.payload ?? {}) as Record<string, unknown>;
  for (const key of ["ErrorClass", "ToolName", "Tool", "Tier", "ErrorCode", "Code", "Kind"]) {
    if (typeof payload[key] === "string" && payload[key]) return payload[key];
  }
  return "";
}

/** What went wrong in the last day, by kind; the newest kind first. */
export function Wrong() {
  const body = { window: 24 * HOUR_NS, bucket: HOUR_NS, filter: { event_types: Object.keys(SIGNS) } };
  const [counted, reload] = useCall("events.aggregate", body, { everyMs: 60_000 });
  const last = useRef(new Map<string, WireEvent>());
  useEvents((events) => {
    const wrong = events.filter((event) => event.type in SIGNS);
    for (const event of wrong) last.current.set(event.type, event);
    if (wrong.length) reload();
  });
  const rows = new Map<string, { count: number; at: number }>();
  for (const bucket of counted.state === "ready" ? counted.data.buckets : []) {
    for (const [type, count] of Object.entries(bucket.counts)) {
      const at = parseTime(bucket.bucket_start) ?? 0;
      if (type in SIGNS && count) rows.set(type, { count: (rows.get(type)?.count ?? 0) + count, at: Math.max(at, rows.get(type)?.at ?? 0) });
    }
  }
  const sorted = [...rows].sort(([, a], [, b]) => b.at - a.at || b.count - a.count);
  return (
    <section class="overview-section wrong" aria-label="What went wrong">
      <PaneHead title="What went wrong" count="24 h">
        <a class="link" href="/events">
          Events
        </a>
      </PaneHead>
      {counted.state === "failed" && <PartFailure noun="What went wrong" error={counted.error} onRetry={reload} />}
      {counted.state === "ready" && sorted.length === 0 && <p class="quiet-line">Nothing went wrong.</p>}
      <ul class="wrong-list">
        {sorted.map(([type, { count }]) => {
          const newest = last.current.get(type);
          return (
            <li key={type}>
              <a href={`/events?type=${encodeURIComponent(type)}`}>
                <Glyph name={SIGNS[type] ?? "cancelled"} />
                <span class="cut">
                  <code>{type}</code> <span class="faint">{newest && detailOf(newest)}</span>
                </span>
                <b class="number">{formatCount(count)}</b>
                <span class="number faint">{newest && <Moment at={newest.occurred_at} />}</span>
              </a>
            </li>
          );
        })}
      </ul>
    </section>
  );
}
