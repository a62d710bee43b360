import "./gallery.css";

import { useState } from "preact/hooks";

import { Button, Segments, Tabs } from "../../parts/button.tsx";
import { Facts, Figure, Figures, Legend, ShareBars, Tag, type BarFill } from "../../parts/figures.tsx";
import { Field, FilterChip, SearchField, Select } from "../../parts/field.tsx";
import { GLYPHS, State, type GlyphName } from "../../parts/glyph.tsx";
import { Icon } from "../../parts/icon.tsx";
import { ICONS, type IconName } from "../../parts/icon-paths.ts";
import { Deadline, Id, Moment } from "../../parts/moments.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { MenuButton, PopoverButton } from "../../parts/popover.tsx";
import { Disconnected, Empty, Failure, NoMatch, PartFailure, SkeletonRows } from "../../parts/states.tsx";
import { Pager, Table, type Column } from "../../parts/table.tsx";
import { say } from "../../parts/toast.tsx";
import { WireError } from "../../wire/error.ts";

const FILLS: readonly BarFill[] = ["model", "tool", "effect", "child", "await", "wait", "lost", "unknown", "failed", "rejected", "live", "held"];
const BROKEN = new WireError("runtime_error", "the store did not answer in 5 s", 500);
const FORBIDDEN = new WireError("scope_mismatch", "tenant globex needs the scope admin", 403);

interface Row {
  id: string;
  state: GlyphName;
  goal: string;
}

const ROWS: readonly Row[] = Array.from({ length: 10_000 }, (_, at) => ({
  id: `row-${at}`,
  state: GLYPHS[at % 8] ?? "pending",
  goal: `Row ${at + 1} of ten thousand, of which the document has those in sight`,
}));
const COLUMNS: readonly Column<Row>[] = [
  { name: "Status", width: "120px", cell: (row) => <State name={row.state} />, phone: "first" },
  { name: "Goal", width: "minmax(0,1fr)", cell: (row) => row.goal, phone: "second" },
  { name: "Id", width: "120px", cell: (row) => <code>{row.id}</code>, from: "medium", phone: "hide" },
];
const keyOf = (row: Row): string => row.id;

/** Every part of the console in every state, to be looked at in both themes. */
export default function GalleryPage() {
  const [choice, choose] = useState<"table" | "board">("table");
  const [part, open] = useState<"step" | "events">("step");
  const [words, search] = useState("");
  const [current, move] = useState("row-2");
  const [selected, select] = useState<Set<string>>(new Set(["row-1"]));
  const [rows, setRows] = useState(25);
  return (
    <div class="gallery">
      <section>
        <h2>States: the shape says it, the colour repeats it</h2>
        <div class="gallery-row">
          {GLYPHS.map((name) => (
            <State key={name} name={name} />
          ))}
        </div>
      </section>
      <section>
        <h2>Bars: the fill says what it is</h2>
        <Legend kinds={FILLS} />
      </section>
      <section>
        <h2>Buttons, filters, tags</h2>
        <div class="gallery-row">
          <Button kind="primary" icon="check" hint="A">Approve</Button>
          <Button icon="edit" hint="E">Edit and approve</Button>
          <Button kind="quiet" icon="message">Message</Button>
          <Button kind="danger" icon="stop">Cancel</Button>
          <Button icon="pause" why="The run already waits">Pause</Button>
          <Button small icon="replay">Try again</Button>
          <Button icon="copy" label="Copy" />
          <Segments label="View" value={choice} choices={[{ value: "table", text: "Table" }, { value: "board", text: "Board" }]} onChange={choose} />
          <FilterChip name="Kind" onOpen={() => say({ text: "Opens the filter", glyph: "sent" })} />
          <FilterChip name="Status" value="failed" onOpen={() => undefined} onClear={() => undefined} />
          <MenuButton text="Allow for the run" icon="down" says="Allow" items={[{ text: "For this run", icon: "check" }, { text: "Always", why: "The tool asks each time" }]} />
          <PopoverButton text="Cancel…" kind="danger" says="Cancel the run">
            {(close) => (
              <div class="gallery-confirm">
                <Button onClick={close}>After this step</Button>
                <Button kind="danger" onClick={close}>Now, stops the call in flight</Button>
              </div>
            )}
          </PopoverButton>
          <Button onClick={() => say({ glyph: "applied", text: "ben approved refund 4 s ago", href: "/inbox", action: "View" })}>Say something</Button>
          <Tag>writes</Tag>
          <Tag tone="waiting">asks first</Tag>
          <Tag tone="failed">denied</Tag>
          <Tag tone="running">live</Tag>
          <Tag tone="unknown">unknown</Tag>
          <kbd>⌘K</kbd>
        </div>
      </section>
      <section>
        <h2>Fields</h2>
        <div class="gallery-fields">
          <Field label="Address" hint="Where the runtime listens">{(parts) => <input class="input" type="text" {...parts} />}</Field>
          <Field label="Token" problem="A token has three parts with dots between them">{(parts) => <input class="input" type="text" {...parts} />}</Field>
          <Field label="Model">{({ id }) => <Select id={id} label="Model" value="a" choices={[["a", "openai:gpt-5"], ["b", "openai:gpt-5-mini"]]} onChange={() => undefined} />}</Field>
          <SearchField label="Filter by goal" value={words} onChange={search} />
        </div>
      </section>
      <section>
        <h2>Figures, shares, facts, times</h2>
        <Figures label="Figures">
          <Figure name="Waiting for a person" glyph="waiting" value={5} note="next in 38 min" href="/inbox" />
          <Figure name="Running" glyph="running" value={7} line={[2, 3, 3, 5, 4, 6, 7]} href="/tasks" />
          <Figure name="Cost, 24 h" value="$18.42" note="of $60" href="/sessions" />
        </Figures>
        <div class="gallery-fields">
          <ShareBars
            label="Cost by agent"
            rows={[
              { name: "release", value: 7.92, limit: 20, text: <b>$7.92</b> },
              { name: "restock", value: 4.1, limit: 5, hot: true, text: <b>$4.10</b> },
            ]}
          />
          <Facts rows={[["Asks", "release, for ada"], ["Until", <Moment at={Date.now()} />], ["Run", <Id id="01M8GGSRM65SMJ02329AADTYXS" />]]} />
          <Deadline deadline={Date.now() + 38 * 60_000} opened={Date.now() - 40 * 60_000} />
          <Deadline deadline={Date.now() + 120_000} opened={Date.now() - 40 * 60_000} />
        </div>
      </section>
      <section>
        <h2>A table of any length</h2>
        <Tabs label="Parts" value={part} choices={[{ value: "step", text: "Step" }, { value: "events", text: "Events", count: 14 }]} onChange={open} />
        <div class="gallery-table">
          <Table label="Rows" rows={ROWS} columns={COLUMNS} keyOf={keyOf} current={current} onCurrent={(row) => move(row.id)} selected={selected} onSelect={select} describe={(row) => row.goal} />
          <Pager from={1} to={25} total={10_000} rows={rows} onRows={setRows} onNext={() => undefined} />
        </div>
      </section>
      <section>
        <h2>Nothing to show, and why</h2>
        <div class="gallery-states">
          <NoMatch noun="task" onClear={() => undefined}>4 filters are set; 41 tasks are in this session.</NoMatch>
          <Empty title="No tasks yet">A task appears when an agent starts.</Empty>
          <SkeletonRows noun="tasks" rows={6} />
          <Failure noun="tasks" error={BROKEN} onRetry={() => undefined} />
          <Disconnected />
          <Failure noun="tasks" error={FORBIDDEN} onRetry={() => undefined} />
          <div>
            <PaneHead title="Cost" level={3} />
            <PartFailure noun="Cost" error={BROKEN} onRetry={() => undefined} />
          </div>
        </div>
      </section>
      <section>
        <h2>Icons</h2>
        <div class="gallery-row">
          {(Object.keys(ICONS) as IconName[]).map((name) => (
            <span key={name} title={name}>
              <Icon name={name} />
            </span>
          ))}
        </div>
      </section>
    </div>
  );
}
