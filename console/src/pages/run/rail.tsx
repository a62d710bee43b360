import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { controlName, fateOf } from "../../model/fates.ts";
import type { ControlView, Moment as MomentOf, RunView } from "../../model/events/views.ts";
import { payloadOf, type WireEvent } from "../../model/events/wire.ts";
import { formatClock, formatExact } from "../../model/formats.ts";
import { exactLines } from "../../model/approval/exact.ts";
import type { Json } from "../../model/json.ts";
import { openPauses } from "../../model/status.ts";
import { Button, Tabs } from "../../parts/button.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { Moment, zone } from "../../parts/moments.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { FoldedText } from "../../parts/rich.tsx";
import { parseTime } from "../../model/events/wire.ts";
import type { Followed } from "./source.ts";
import { StepDetail } from "./step-detail.tsx";
import { lookAtTab, type RailTab } from "./view.ts";

export interface Chosen {
  /** The run that the current row is of: this one, or one below it. */
  readonly run: RunView;
  readonly step: number;
  readonly callId: string;
}

interface RailProps {
  followed: Followed;
  run: RunView;
  chosen: Chosen | null;
  tab: RailTab;
  at: MomentOf | null;
  isDiff: boolean;
  onStep: (by: 1 | -1) => void;
  effectsOf: (tool: string) => string;
}

/** What is known of the current row, beside the timeline: each tab fails alone. */
export function Rail(props: RailProps) {
  const { run, chosen, tab, followed, at } = props;
  const events = useEventsUntil(followed.events, at);
  return (
    <aside class="run-rail" aria-label={chosen ? `Step ${chosen.step}` : "The run"}>
      <Tabs<RailTab>
        label="Of the run"
        value={tab}
        choices={[
          { value: "step", text: chosen ? `Step ${chosen.step}` : "Step" },
          { value: "events", text: "Events", count: events.length },
          { value: "controls", text: "Controls", count: run.controls.length },
          { value: "raw", text: "Raw" },
        ]}
        onChange={lookAtTab}
      >
        <Button small kind="quiet" icon="left" label="Step before" onClick={() => props.onStep(-1)} />
        <Button small kind="quiet" icon="right" label="Step after" onClick={() => props.onStep(1)} />
      </Tabs>
      <div class="rail-body" role="tabpanel" tabIndex={0} aria-label={tab}>
        {tab === "step" && (chosen ? <StepDetail {...props} chosen={chosen} session={followed.session} /> : <p class="rail-none">Pick a step to see what it saw, said and got.</p>)}
        {tab === "events" && <EventList events={events} chosen={chosen} />}
        {tab === "controls" && <ControlList run={run} />}
        {tab === "raw" && <Raw followed={followed} run={run} chosen={chosen} />}
      </div>
    </aside>
  );
}

/** The events until a moment; all of them for now. */
function useEventsUntil(events: readonly WireEvent[], at: MomentOf | null): readonly WireEvent[] {
  return useMemo(() => (at === null ? events : events.filter((event) => (parseTime(event.occurred_at) ?? 0) <= at)), [events, events.length, at]);
}

/** The events below the timeline where there is height for them. */
export function EventDock({ events, at, chosen }: { events: readonly WireEvent[]; at: MomentOf | null; chosen: Chosen | null }) {
  const shown = useEventsUntil(events, at);
  return (
    <section class="event-dock" aria-label="Events of the run">
      <PaneHead title="Events" count={formatExact(shown.length)} />
      <div class="event-scroll" tabIndex={0} role="region" aria-label="Events in step with the row">
        <EventList events={shown} chosen={chosen} />
      </div>
    </section>
  );
}

// ── Events ────────────────────────────────────────────────────────────────────────────────────────────────────────────

const EVENT_ROW = 26;
const BEYOND = 10;

/** The events of the run and of those below it; it scrolls to those of the current step. */
export function EventList({ events, chosen }: { events: readonly WireEvent[]; chosen: Chosen | null }) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);
  const [open, toggle] = useState<number | null>(null);
  const from = useMemo(() => (chosen ? firstOfStep(events, chosen) : -1), [events, chosen?.run.id, chosen?.step]);
  useEffect(() => {
    const shown = box.current?.closest<HTMLElement>(".rail-body, .event-scroll");
    if (!shown) return;
    const look = (): void => {
      setTop(shown.scrollTop);
      setHeight(shown.clientHeight);
    };
    look();
    shown.addEventListener("scroll", look, { passive: true });
    return () => shown.removeEventListener("scroll", look);
  }, []);
  useEffect(() => {
    const shown = box.current?.closest<HTMLElement>(".rail-body, .event-scroll");
    if (from >= 0) shown?.scrollTo({ top: Math.max(0, from * EVENT_ROW - 8) });
  }, [chosen?.run.id, chosen?.step, from < 0]);
  const first = Math.max(0, Math.floor(top / EVENT_ROW) - BEYOND);
  const last = Math.min(events.length, Math.ceil((top + height) / EVENT_ROW) + BEYOND);
  const shownEvent = open === null ? undefined : events.find((event) => event.sequence === open);
  return (
    <div ref={box} class="event-list">
      {shownEvent && (
        <div class="event-open">
          <div class="section-head">
            <h3>{shownEvent.type}</h3>
            <span class="grow" />
            <Button small kind="quiet" icon="close" label="Close" onClick={() => toggle(null)} />
          </div>
          <FoldedText text={exactLines((shownEvent.payload ?? {}) as Json)} />
        </div>
      )}
      <ol class="event-rows" style={{ height: `${events.length * EVENT_ROW}px` }}>
        {events.slice(first, last).map((event, offset) => {
          const at = parseTime(event.occurred_at) ?? 0;
          return (
            <li key={`${event.sequence} ${event.type}`} style={{ top: `${(first + offset) * EVENT_ROW}px` }} class={chosen && isOfStep(event, chosen) ? "is-of-step" : undefined}>
              <button type="button" aria-expanded={open === event.sequence} onClick={() => toggle(open === event.sequence ? null : event.sequence)}>
                <time>{formatClock(at, zone())}</time>
                <span class="event-type">{event.type}</span>
                <span class="cut faint">{eventNote(event)}</span>
              </button>
            </li>
          );
        })}
      </ol>
      {events.length === 0 && <p class="rail-none">No event is kept of this run.</p>}
    </div>
  );
}

function isOfStep(event: WireEvent, chosen: Chosen): boolean {
  return event.run === chosen.run.id && payloadOf(event)["Step"] === chosen.step;
}

function firstOfStep(events: readonly WireEvent[], chosen: Chosen): number {
  return events.findIndex((event) => isOfStep(event, chosen));
}

const NOTED = ["ToolName", "DecisionKind", "Type", "Outcome", "Reason", "Model", "ErrorCode", "ErrorClass", "Decision", "Description", "FinishReason"];

function eventNote(event: WireEvent): string {
  const payload = payloadOf(event);
  return NOTED.map((key) => payload[key])
    .filter((value) => typeof value === "string" && value)
    .join(" · ");
}

// ── Controls ──────────────────────────────────────────────────────────────────────────────────────────────────────────

function ControlList({ run }: { run: RunView }) {
  if (run.controls.length === 0) return <p class="rail-none">Nobody has steered this run.</p>;
  const waits = openPauses(run).length > 0;
  return (
    <ol class="fates">
      {run.controls.toReversed().map((control) => (
        <ControlFate key={control.key} control={control} isRunWaiting={waits} />
      ))}
    </ol>
  );
}

function ControlFate({ control, isRunWaiting }: { control: ControlView; isRunWaiting: boolean }) {
  const fate = fateOf(control, isRunWaiting);
  const name = controlName(control.type);
  return (
    <li data-control={control.type} data-fate={control.outcome}>
      <Glyph name={fate.glyph} />
      <div>
        <b>{name.charAt(0).toUpperCase() + name.slice(1)}</b> {control.by?.user && <span class="soft">{control.by.user}</span>}
        <p class={fate.tone === "failed" ? "is-failed" : "soft"}>{fate.text}</p>
      </div>
      <span class="fate-way" aria-hidden="true">
        <Glyph name="sent" />
        {control.outcome !== "not_sent" && control.receivedAt !== null && (
          <>
            <i />
            <Glyph name="received" />
          </>
        )}
        {fate.isSettled && (
          <>
            <i />
            <Glyph name={fate.glyph} />
          </>
        )}
      </span>
      <span class="faint fate-time">
        <Moment at={control.settledAt ?? control.receivedAt ?? control.sentAt} />
      </span>
    </li>
  );
}

// ── Raw ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Everything that this page knows of the current step, or of the run, as it was folded. */
function Raw({ run, chosen }: { followed: Followed; run: RunView; chosen: Chosen | null }) {
  const step = chosen?.run.steps.find((one) => one.number === chosen.step);
  const { steps: _steps, ...facts } = run;
  return (
    <div class="raw">
      {step && (
        <section class="section">
          <h3>Step {step.number}</h3>
          <FoldedText text={exactLines(step as unknown as Json)} />
        </section>
      )}
      <section class="section">
        <h3>
          Run <span class="faint">{formatExact(run.steps.length)} steps left out</span>
        </h3>
        <FoldedText text={exactLines(facts as unknown as Json)} />
      </section>
    </div>
  );
}
