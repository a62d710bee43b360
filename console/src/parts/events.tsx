import { glyphOfEvent, summaryOf } from "../model/event-list.ts";
import { formatClock, shortId } from "../model/formats.ts";
import { parseTime, runOf, type WireEvent } from "../model/events/wire.ts";
import { useKeys } from "../shell/keys.ts";
import { Glyph } from "./glyph.tsx";
import { useHeldRows } from "./held.ts";
import { zone } from "./moments.tsx";
import { Table, type Column } from "./table.tsx";

export const keyOfEvent = (event: WireEvent): string => String(event.sequence);

/** The sign of an event: that of what it tells, or a dot. */
export function EventSign({ type }: { type: string }) {
  const glyph = glyphOfEvent(type);
  return glyph ? <Glyph name={glyph} /> : <i class="event-dot" aria-hidden="true" />;
}

const TIME: Column<WireEvent> = {
  name: "Time",
  width: "92px",
  phone: "second",
  cell: (event) => <time class="mono faint small-mono">{formatClock(parseTime(event.occurred_at) ?? 0, zone())}</time>,
};
const TYPE: Column<WireEvent> = {
  name: "Event",
  width: "minmax(150px,1.1fr)",
  phone: "first",
  cell: (event) => (
    <span class="event-type">
      <EventSign type={event.type} />
      <code title={event.type}>{event.type}</code>
    </span>
  ),
};
const WHO: Column<WireEvent> = {
  name: "Identity",
  width: "minmax(80px,.8fr)",
  from: "medium",
  phone: "hide",
  cell: (event) => <span title={`${event.tenant} / ${event.user} / ${event.session}`}>{[event.user, event.session].filter(Boolean).join(" · ")}</span>,
};
const WHAT: Column<WireEvent> = {
  name: "What",
  width: "minmax(0,1.4fr)",
  phone: "second",
  cell: (event) => <span class="soft" title={summaryOf(event)}>{summaryOf(event)}</span>,
};
const RUN: Column<WireEvent> = {
  name: "Run",
  width: "68px",
  from: "medium",
  phone: "hide",
  cell: (event) => {
    const run = runOf(event);
    return run ? (
      <a class="soft" href={`/tasks/${encodeURIComponent(run)}`} title={run} tabIndex={-1}>
        <code>{shortId(run)}</code>
      </a>
    ) : null;
  },
};

/** Events as a table, the newest first. It stays still under the pointer; what came since stands in a pill. */
export function EventTable(props: {
  events: readonly WireEvent[];
  current?: string | undefined;
  onCurrent: (event: WireEvent) => void;
  /** Leaves out what is the same in each row. */
  isOfOneSession?: boolean;
}) {
  const held = useHeldRows(props.events, keyOfEvent);
  useKeys("Events", [{ keys: ".", does: "Show new events", run: held.release, why: held.fresh ? "" : "Nothing new has come", isMovement: true }]);
  const columns = props.isOfOneSession ? [TIME, TYPE, WHAT, RUN] : [TIME, TYPE, WHO, WHAT, RUN];
  return (
    <div class="event-table" {...held.props}>
      {held.fresh > 0 && (
        <button type="button" class="button small fresh" onClick={held.release}>
          {held.fresh} new <kbd aria-hidden="true">.</kbd>
        </button>
      )}
      <Table
        label="Events"
        rows={held.shown}
        columns={columns}
        keyOf={keyOfEvent}
        current={props.current}
        onCurrent={props.onCurrent}
        describe={(event) => `${event.type} ${summaryOf(event)}`.trim()}
      />
    </div>
  );
}
