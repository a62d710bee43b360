import { formatClock } from "../../model/formats.ts";
import { parseTime, runOf } from "../../model/events/wire.ts";
import { Glyph, type GlyphName } from "../../parts/glyph.tsx";
import { useHeldRows } from "../../parts/held.ts";
import { zone } from "../../parts/moments.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { recentEvents } from "../../wire/feed.ts";
import { runs } from "../../wire/runs.ts";
import type { WireEvent } from "../../wire/stream.ts";

const SHOWN = 8;

const TOLD: Record<string, [glyph: GlyphName, words: string]> = {
  "task.started": ["running", "started"],
  "task.completed": ["complete", "finished"],
  "task.failed": ["failed", "failed"],
  "task.cancelled": ["cancelled", "was cancelled"],
  "tool.failed": ["failed", "failed"],
  "tool.approval_requested": ["waiting", "asks to run"],
  "tool.approved": ["applied", "may run"],
  "tool.rejected": ["rejected", "may not run"],
  "tool.interrupted": ["unknown", "may have acted:"],
  "tool.auth_required": ["sign-in", "needs a sign-in to"],
  "pause.resumed": ["applied", "goes on"],
  "control.applied": ["applied", "took"],
  "control.rejected": ["rejected", "refused"],
  "session.opened": ["sent", "opened"],
  "agent.registered": ["sent", "registered"],
  "governance.budget_exceeded": ["waiting", "exceeded its budget"],
};

const keyOf = (event: WireEvent): string => String(event.sequence);

/** What happened last, in words. */
export function Activity() {
  const told = recentEvents.value.filter((event) => event.type in TOLD).slice(-SHOWN).reverse();
  const held = useHeldRows(told, keyOf);
  return (
    <section class="overview-section activity" aria-label="Recent activity">
      <PaneHead title="Recent activity">
        {held.fresh > 0 && (
          <button type="button" class="chip" onClick={held.release}>
            {held.fresh} new
          </button>
        )}
        <a class="link" href="/events">
          All events
        </a>
      </PaneHead>
      {told.length === 0 && <p class="quiet-line">Nothing since this page was opened.</p>}
      <ul class="feed" {...held.props}>
        {held.shown.map((event) => (
          <Line key={keyOf(event)} event={event} />
        ))}
      </ul>
    </section>
  );
}

function Line({ event }: { event: WireEvent }) {
  const [glyph, words] = TOLD[event.type] ?? ["sent", event.type];
  const payload = (event.payload ?? {}) as Record<string, unknown>;
  const run = runOf(event);
  const agent = (run && runs.run(run)?.agent) || (event.type.startsWith("session.") ? event.session : "run");
  const what = ["Tool", "ToolName", "Type", "ControlType", "Source", "ErrorClass"].map((key) => payload[key]).find((value) => typeof value === "string" && value);
  const inside = (
    <>
      <time class="mono faint">{formatClock(parseTime(event.occurred_at) ?? 0, zone()).slice(0, 8)}</time>
      <Glyph name={glyph} />
      <span class="cut">
        <b>{agent}</b> {words} {what !== undefined && <code>{String(what)}</code>}
      </span>
      <code class="faint cut">{event.session}</code>
    </>
  );
  return <li>{run ? <a href={`/tasks/${encodeURIComponent(run)}`}>{inside}</a> : <span>{inside}</span>}</li>;
}
