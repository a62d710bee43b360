import "./events.css";

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import { exportEvents, matches } from "../../model/event-list.ts";
import { runOf, type WireEvent } from "../../model/events/wire.ts";
import { shortId } from "../../model/formats.ts";
import { clearFilters, isFiltered, readQuery, withFilter, withText, writeQuery, type ListQuery, type QuerySpec } from "../../model/query.ts";
import { Button } from "../../parts/button.tsx";
import { download } from "../../parts/download.ts";
import { EventTable, keyOfEvent } from "../../parts/events.tsx";
import { SearchField } from "../../parts/field.tsx";
import { ChoiceFilter } from "../../parts/filters.tsx";
import { Split, Toolbar } from "../../parts/pane.tsx";
import { MenuButton } from "../../parts/popover.tsx";
import { Disconnected, Empty, Failure, NoMatch, SkeletonRows } from "../../parts/states.tsx";
import { useKeys } from "../../shell/keys.ts";
import { location$, navigate } from "../../shell/router.ts";
import { connection } from "../../wire/connection.ts";
import { useEventList } from "../../wire/event-history.ts";
import { SHARED_TYPES, streamState, tryNow } from "../../wire/feed.ts";
import { EventDetail } from "./detail.tsx";
import { Rate } from "./rate.tsx";

const SPEC: QuerySpec = {
  filters: { type: { kind: "many" }, tenant: { kind: "one" }, user: { kind: "one" }, session: { kind: "one" }, run: { kind: "one" } },
};
const TYPES = SHARED_TYPES.map((value) => ({ value }));

/** What happens, as it happens: the newest 500 events, what they are about, and how many come. */
export default function EventsPage() {
  const { list, touch, isWhole } = useEventList();
  const query = readQuery(location$.value.query.toString(), SPEC);
  const change = (next: ListQuery) => navigate(`/events${prefixed(writeQuery(next, SPEC))}`, { replace: true });
  const filter = {
    types: query.filters["type"] ?? [],
    tenant: query.filters["tenant"]?.[0] ?? "",
    user: query.filters["user"]?.[0] ?? "",
    session: query.filters["session"]?.[0] ?? "",
    run: query.filters["run"]?.[0] ?? "",
    text: query.text,
  };
  const all = list.read();
  const shown = all.filter((event) => matches(event, filter));
  const current = all.find((event) => keyOfEvent(event) === query.current);
  const pause = () => {
    if (list.isPaused) list.goOn();
    else list.pause();
    touch();
  };
  useKeys("Events", [{ keys: "Space", does: list.isPaused ? "Let events in again" : "Hold events back", run: pause }]);
  if (!connection.value) return <Disconnected />;
  const state = streamState.value;
  if (state.kind === "refused") return <Failure noun="events" error={state.error} onRetry={tryNow} />;
  return (
    <>
      <Filters query={query} all={all} change={change}>
        <Button icon={list.isPaused ? "play" : "pause"} pressed={list.isPaused} hint="Space" onClick={pause}>
          {list.isPaused ? `Go on · ${list.waitingCount} held back` : "Pause stream"}
        </Button>
        <MenuButton
          kind="quiet"
          icon="download"
          text={<span class="hide-phone">Export</span>}
          label="Export what is shown"
          says="Export"
          items={(["ndjson", "csv"] as const).map((as) => ({
            text: as === "csv" ? "CSV" : "NDJSON",
            note: `${shown.length} events`,
            why: shown.length ? undefined : "Nothing is shown",
            onPick: () => download(`events.${as}`, exportEvents(shown, as)),
          }))}
        />
      </Filters>
      <Split
        label="Event"
        rail={
          current && (
            <EventDetail
              event={current}
              onFilter={(name, value) => change(withFilter(query, name, [value]))}
              onClose={() => change({ ...query, current: "" })}
            />
          )
        }
      >
        <Rate filter={aggregateFilter(filter)} />
        {shown.length > 0 ? (
          <EventTable events={shown} current={query.current} onCurrent={(event) => change({ ...query, current: keyOfEvent(event) })} />
        ) : isFiltered(query) && all.length > 0 ? (
          <NoMatch noun="event" onClear={() => change(clearFilters(query))}>
            {all.length} events are held; new ones that match appear by themselves.
          </NoMatch>
        ) : state.kind === "connecting" || (!isWhole && state.kind === "live" && all.length > 0) ? (
          <SkeletonRows noun="events" />
        ) : (
          <Empty title="No events yet" actions={<a class="button primary" href="/playground">Start a run</a>}>
            They appear here as they happen: what agents decide, what tools do, what people answer.
          </Empty>
        )}
      </Split>
    </>
  );
}

function prefixed(query: string): string {
  return query && `?${query}`;
}

/** The filter of the table, as `events.aggregate` takes it; words narrow the table alone. */
function aggregateFilter(filter: { types: readonly string[]; tenant: string; user: string; session: string; run: string }) {
  return {
    ...(filter.types.length ? { event_types: [...filter.types] } : {}),
    ...(filter.tenant ? { tenant_ids: [filter.tenant] } : {}),
    ...(filter.user ? { user_ids: [filter.user] } : {}),
    ...(filter.session ? { session_ids: [filter.session] } : {}),
    ...(filter.run ? { run_ids: [filter.run] } : {}),
  };
}

function Filters(props: { query: ListQuery; all: readonly WireEvent[]; change: (next: ListQuery) => void; children: ComponentChildren }) {
  const { query, all, change } = props;
  const newest = all[0]?.sequence;
  const known = useMemo(() => {
    const of = (read: (event: WireEvent) => string) => [...new Set(all.map(read))].filter(Boolean).sort();
    return {
      tenant: of((event) => event.tenant).map((value) => ({ value })),
      user: of((event) => event.user).map((value) => ({ value })),
      session: of((event) => event.session).map((value) => ({ value })),
      run: of(runOf).map((value) => ({ value, text: shortId(value) })),
    };
  }, [newest, all.length]);
  const one = (name: "tenant" | "user" | "session" | "run", title: string) => (
    <ChoiceFilter
      key={name}
      name={title}
      single
      isOpen
      values={query.filters[name] ?? []}
      choices={known[name]}
      onChange={(values) => change(withFilter(query, name, values))}
    />
  );
  return (
    <Toolbar label="Filters">
      <SearchField label="Filter what is shown" value={query.text} onChange={(text) => change(withText(query, text))} />
      <ChoiceFilter name="Types" values={query.filters["type"] ?? []} choices={TYPES} onChange={(values) => change(withFilter(query, "type", values))} />
      {(known.tenant.length > 1 || query.filters["tenant"]) && one("tenant", "Tenant")}
      {one("user", "User")}
      {one("session", "Session")}
      {one("run", "Run")}
      {isFiltered(query) && (
        <Button small kind="quiet" onClick={() => change(clearFilters(query))}>
          Clear
        </Button>
      )}
      <span class="grow" />
      {props.children}
    </Toolbar>
  );
}
