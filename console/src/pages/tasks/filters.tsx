import { useEffect, useState } from "preact/hooks";

import { formatDuration } from "../../model/formats.ts";
import { keptViews, keepViews } from "./views.ts";
import { toggleFilter, type ListQuery } from "../../model/query.ts";
import { stateOf } from "../../model/status.ts";
import { Button, Segments } from "../../parts/button.tsx";
import { Field, FilterChip, SearchField } from "../../parts/field.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { Toolbar } from "../../parts/pane.tsx";
import { Menu, Popover, PopoverButton } from "../../parts/popover.tsx";
import { useKeys } from "../../shell/keys.ts";
import type { TaskPage } from "../../wire/types.ts";
import { isNarrowed, narrow, one, queryOfView, STATUSES, viewSearch, widen, type SavedView } from "./query.ts";

interface Props {
  query: ListQuery;
  set: (query: ListQuery) => void;
}

/** The saved views, and how the list is shown. */
export function Views({ query, set, views, place }: Props & { views: readonly SavedView[]; place: string }) {
  const [own, setOwn] = useState(() => keptViews(place));
  const all = [...views, ...own];
  const now = viewSearch(query);
  useKeys(
    "Saved views",
    all.slice(0, 9).map((view, at) => ({ keys: String(at + 1), does: view.name, run: () => set(queryOfView(view, query)), isMovement: true })),
  );
  const isKnown = all.some((view) => view.search === now);
  const keep = (next: readonly SavedView[]): void => {
    keepViews(place, next);
    setOwn([...next]);
  };
  const chosen = own.find((view) => view.search === now);
  return (
    <div class="task-views" role="group" aria-label="Saved views">
      <div class="task-view-list">
        {all.map((view) => (
          <button key={view.name} type="button" class="task-view" aria-pressed={view.search === now} onClick={() => set(queryOfView(view, query))}>
            {view.name}
          </button>
        ))}
      </div>
      {!isKnown && (
        <PopoverButton small kind="quiet" icon="plus" text="Save view" says="Save these filters as a view">
          {(close) => (
            <form
              class="task-form"
              onSubmit={(event) => {
                event.preventDefault();
                const name = String(new FormData(event.currentTarget).get("name")).trim();
                if (!name) return;
                keep([...own.filter((view) => view.name !== name), { name, search: now }]);
                close();
              }}
            >
              <Field label="Name" hint="Kept in this browser.">
                {(parts) => <input {...parts} class="input" name="name" maxLength={40} required />}
              </Field>
              <Button kind="primary" type="submit">
                Save
              </Button>
            </form>
          )}
        </PopoverButton>
      )}
      {chosen && (
        <Button small kind="quiet" icon="close" label={`Forget the view ${chosen.name}`} onClick={() => keep(own.filter((view) => view !== chosen))} />
      )}
      <span class="grow" />
      <Segments
        small
        label="Shown as"
        value={one(query, "layout") === "board" ? "board" : "table"}
        choices={[
          { value: "table", text: "Table" },
          { value: "board", text: "Board" },
        ]}
        onChange={(value) => set(narrow(query, "layout", value === "board" ? ["board"] : []))}
      />
    </div>
  );
}

/** One button a status, with how many pass the other filters. */
export function StatusToggles({ query, set, counts }: Props & { counts: TaskPage["aggregates"] | null }) {
  const chosen = query.filters["status"] ?? [];
  return (
    <Toolbar label="Status">
      {STATUSES.map((status) => {
        const { word, glyph } = stateOf({ status });
        return (
          <Button key={status} small kind="quiet" pressed={chosen.includes(status)} onClick={() => set(toggleFilter(narrow(query, "cursor", []), "status", status))}>
            <Glyph name={glyph} />
            {word}
            {counts && <b>{counts[status].toLocaleString("en-US")}</b>}
          </Button>
        );
      })}
    </Toolbar>
  );
}

const OVERS: readonly (readonly [string, string])[] = [["10000", "10 s"], ["60000", "1 min"], ["600000", "10 min"], ["3600000", "1 h"]];
const SINCES: readonly (readonly [string, string])[] = [["today", "today"], ["24h", "24 hours"]];

/** Words, and the other filters; each stands in the address. */
export function Filters({ query, set, kind, errors, onExport }: Props & { kind: string; errors: readonly string[]; onExport: () => void }) {
  const [text, write] = useState(query.text);
  useEffect(() => write(query.text), [query.text]);
  useEffect(() => {
    if (text === query.text) return;
    const timer = setTimeout(() => set({ ...narrow(query, "cursor", []), text }), 250);
    return () => clearTimeout(timer);
  }, [text]);
  const over = one(query, "over");
  const since = one(query, "since");
  const chip = (name: string, key: string, choices: readonly (readonly [string, string])[], said: string) => (
    <Choice name={name} value={said} choices={choices} onPick={(value) => set(narrow(query, key, value ? [value] : []))} />
  );
  return (
    <Toolbar label="Filters">
      <SearchField label="Filter by goal or query" value={text} onChange={write} />
      {chip("Session", "scope", [["session", "the one in view"]], one(query, "scope") ? "the one in view" : "")}
      {!kind && chip("Kind", "kind", [["foreground", "foreground"], ["background", "background"]], one(query, "kind"))}
      {(errors.length > 0 || one(query, "error")) && chip("Error class", "error", errors.map((name) => [name, name] as const), one(query, "error"))}
      {chip("Active over", "over", OVERS, over ? (OVERS.find(([value]) => value === over)?.[1] ?? formatDuration(Number(over) || 0)) : "")}
      {chip("Started", "since", SINCES, since ? (SINCES.find(([value]) => value === since)?.[1] ?? since.slice(0, 16).replace("T", " ")) : "")}
      {chip("Approval", "approval", [["1", "pending"]], one(query, "approval") ? "pending" : "")}
      {one(query, "agent") && chip("Agent", "agent", [], one(query, "agent"))}
      <span class="grow" />
      <Button small kind="quiet" icon="download" onClick={onExport}>
        Export
      </Button>
      <Button small kind="quiet" why={isNarrowed(query) ? undefined : "No filter is set"} onClick={() => set(widen(query))}>
        Clear
      </Button>
    </Toolbar>
  );
}

function Choice(props: { name: string; value: string; choices: readonly (readonly [string, string])[]; onPick: (value: string) => void }) {
  const [anchor, open] = useState<HTMLElement | null>(null);
  return (
    <span class="task-chip">
      <FilterChip name={props.name} value={props.value} expanded={anchor !== null} onOpen={() => open(anchor ? null : (document.activeElement as HTMLElement))} onClear={() => props.onPick("")} />
      {anchor && (
        <Popover anchor={anchor} label={props.name} role="menu" onClose={() => open(null)}>
          <Menu
            onClose={() => open(null)}
            items={[...props.choices.map(([value, text]) => ({ text, onPick: () => props.onPick(value) })), ...(props.value ? [{ text: "Any", onPick: () => props.onPick("") }] : [])]}
          />
        </Popover>
      )}
    </span>
  );
}

