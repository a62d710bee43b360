import type { ComponentChildren, TargetedKeyboardEvent, TargetedMouseEvent } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

export interface Column<Row> {
  /** The head, and what a narrow screen calls the value. "" for a column whose cells say it themselves. */
  name: string;
  /** A track of a CSS grid: "110px", "minmax(0,1fr)". */
  width: string;
  cell: (row: Row) => ComponentChildren;
  align?: "end";
  /** From which width of the window on it is shown: `medium` is 1024 px, `wide` is 1500 px. */
  from?: "medium" | "wide";
  /** On a phone a row has two lines: which one, or neither. */
  phone?: "first" | "second" | "hide";
  sort?: { is: "ascending" | "descending" | "none"; onSort: () => void };
}

export interface TableProps<Row> {
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  keyOf: (row: Row) => string;
  /** The row under the keyboard, by its key; the one whose detail is open. */
  current?: string | undefined;
  onCurrent?: (row: Row) => void;
  onOpen?: (row: Row) => void;
  selected?: ReadonlySet<string>;
  onSelect?: (selected: Set<string>) => void;
  /** What a screen reader is told of a row beside its cells. */
  describe?: (row: Row) => string;
  /** How many rows there are in all, when `rows` is a page of them. */
  total?: number;
  tone?: (row: Row) => "past" | undefined;
}

const MORE = 10;

/**
 * A table of any length: only the rows in sight, and ten more, are in the document.
 *
 * `j k ↑ ↓ Home End` move, Enter opens, `x` selects, with Shift up to here.
 */
export function Table<Row>(props: TableProps<Row>) {
  const { rows, columns, keyOf, selected, onSelect } = props;
  const box = useRef<HTMLDivElement>(null);
  const view = useView(box);
  const keys = useMemo(() => rows.map(keyOf), [rows, keyOf]);
  const at = props.current === undefined ? -1 : keys.indexOf(props.current);
  const lastSelected = useRef(-1);
  const first = Math.max(0, Math.floor(view.top / view.row) - MORE);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / view.row) + MORE);
  // A column that a width leaves out leaves out its track, too.
  const tracksOf = (hidden: readonly Column<Row>["from"][]) =>
    [onSelect ? "16px" : "", ...columns.filter((one) => !one.from || !hidden.includes(one.from)).map((one) => one.width)].filter(Boolean).join(" ");
  const named = columns.map((one) => `col-${one.from ?? "always"} ${one.phone ? `phone-${one.phone}` : ""} ${one.align === "end" ? "number" : ""}`);

  const show = (index: number) => {
    const shown = box.current;
    if (!shown) return;
    const top = index * view.row;
    const head = view.head;
    if (top < shown.scrollTop) shown.scrollTop = top;
    else if (top + view.row > shown.scrollTop + shown.clientHeight - head) shown.scrollTop = top + view.row - shown.clientHeight + head;
  };
  const moveTo = (index: number) => {
    const to = Math.max(0, Math.min(rows.length - 1, index));
    const row = rows[to];
    if (!row) return;
    show(to);
    props.onCurrent?.(row);
    requestAnimationFrame(() => box.current?.querySelector<HTMLElement>(`[data-index="${to}"]`)?.focus());
  };
  const toggle = (index: number, isRange: boolean) => {
    if (!onSelect) return;
    const now = new Set(selected);
    const from = isRange && lastSelected.current >= 0 ? lastSelected.current : index;
    const isOn = !now.has(keys[index] ?? "");
    for (let one = Math.min(from, index); one <= Math.max(from, index); one++) {
      const key = keys[one];
      if (key !== undefined) isOn ? now.add(key) : now.delete(key);
    }
    lastSelected.current = index;
    onSelect(now);
  };
  const onKeyDown = (event: TargetedKeyboardEvent<HTMLDivElement>) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if ((event.target as HTMLElement).closest("input, select, textarea, .popover")) return;
    const here = Number((event.target as HTMLElement).closest<HTMLElement>("[data-index]")?.dataset.index ?? at);
    const page = Math.max(1, Math.floor(view.height / view.row) - 1);
    const to: Record<string, number> = {
      j: here + 1, ArrowDown: here + 1, k: here - 1, ArrowUp: here - 1,
      PageDown: here + page, PageUp: here - page, Home: 0, End: rows.length - 1,
    };
    const next = to[event.key];
    const row = rows[here];
    if (next !== undefined) moveTo(next);
    else if (event.key === "Enter" && row && event.target instanceof HTMLElement && event.target.matches("[data-index]")) props.onOpen?.(row);
    else if (event.key.toLowerCase() === "x" && onSelect && here >= 0) toggle(here, event.shiftKey);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div
      ref={box}
      class={`table ${onSelect ? "has-boxes" : ""}`}
      role="grid"
      aria-label={props.label}
      aria-rowcount={(props.total ?? rows.length) + 1}
      aria-multiselectable={onSelect ? true : undefined}
      style={{ "--tracks": tracksOf([]), "--tracks-medium": tracksOf(["wide"]), "--tracks-small": tracksOf(["wide", "medium"]) }}
      onKeyDown={onKeyDown}
      tabIndex={rows.length ? undefined : 0}
      data-list
    >
      <div class="table-row table-head" role="row" aria-rowindex={1}>
        {onSelect && (
          <span role="columnheader">
            <input
              type="checkbox"
              aria-label="Select all rows"
              checked={rows.length > 0 && keys.every((key) => selected?.has(key))}
              onChange={(event) => onSelect(event.currentTarget.checked ? new Set(keys) : new Set())}
            />
          </span>
        )}
        {columns.map((column, index) => (
          <span key={column.name || index} role="columnheader" class={named[index]} aria-sort={column.sort?.is}>
            {column.sort ? (
              <button type="button" class="sort" onClick={column.sort.onSort}>
                {column.name}
                <span aria-hidden="true">{column.sort.is === "ascending" ? " ↑" : column.sort.is === "descending" ? " ↓" : ""}</span>
              </button>
            ) : (
              column.name || <span class="hidden-text">{index === 0 ? "State" : "More"}</span>
            )}
          </span>
        ))}
      </div>
      <div class="table-rows" role="rowgroup" style={{ height: `${rows.length * view.row}px` }}>
        {rows.slice(first, last).map((row, offset) => {
          const index = first + offset;
          const key = keys[index] ?? String(index);
          const isCurrent = index === at;
          return (
            <div
              key={key}
              class={`table-row ${isCurrent ? "is-current" : ""} ${props.tone?.(row) ?? ""}`}
              role="row"
              data-index={index}
              aria-rowindex={index + 2}
              aria-selected={onSelect ? (selected?.has(key) ?? false) : isCurrent}
              aria-label={props.describe?.(row)}
              tabIndex={isCurrent || (at < 0 && index === first) ? 0 : -1}
              style={{ top: `${index * view.row}px` }}
              onClick={(event: TargetedMouseEvent<HTMLDivElement>) => {
                if ((event.target as HTMLElement).closest("a, button, input, label")) return;
                props.onCurrent?.(row);
                if (event.detail === 2 || !props.onCurrent) props.onOpen?.(row);
              }}
            >
              {onSelect && (
                <span role="gridcell">
                  <input
                    type="checkbox"
                    tabIndex={-1}
                    aria-label={`Select ${props.describe?.(row) ?? key}`}
                    checked={selected?.has(key) ?? false}
                    onClick={(event) => toggle(index, event.shiftKey)}
                  />
                </span>
              )}
              {columns.map((column, cell) => (
                <span key={column.name || cell} role="gridcell" class={`cut ${named[cell]}`}>
                  {column.cell(row)}
                </span>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}

interface View {
  top: number;
  height: number;
  row: number;
  head: number;
}

/** What of a scrolling box is in sight, and how high a row is at this density. */
function useView(box: { current: HTMLDivElement | null }): View {
  const [view, setView] = useState<View>({ top: 0, height: 800, row: 32, head: 28 });
  useLayoutEffect(() => {
    const shown = box.current;
    if (!shown) return;
    let asked = 0;
    const look = () => {
      asked = 0;
      const row = Number.parseFloat(getComputedStyle(shown).getPropertyValue("--table-row")) || 32;
      const rowHeight = shown.querySelector<HTMLElement>(".table-rows > .table-row")?.offsetHeight || row;
      const head = shown.querySelector<HTMLElement>(".table-head")?.offsetHeight ?? 28;
      const next = { top: shown.scrollTop, height: shown.clientHeight, row: rowHeight, head };
      setView((now) => (now.top === next.top && now.height === next.height && now.row === next.row ? now : next));
    };
    const ask = () => {
      asked ||= requestAnimationFrame(look);
    };
    look();
    const resized = new ResizeObserver(ask);
    resized.observe(shown);
    shown.addEventListener("scroll", ask, { passive: true });
    const density = new MutationObserver(ask);
    density.observe(document.documentElement, { attributes: true, attributeFilter: ["data-density"] });
    return () => {
      cancelAnimationFrame(asked);
      resized.disconnect();
      density.disconnect();
      shown.removeEventListener("scroll", ask);
    };
  }, [box]);
  return view;
}

/** Where a list stands in all of its rows, and how to go on. */
export function Pager(props: {
  from: number;
  to: number;
  total?: number | undefined;
  rows: number;
  onRows: (rows: number) => void;
  onPrevious?: (() => void) | undefined;
  onNext?: (() => void) | undefined;
  note?: string;
}) {
  return (
    <div class="pager" role="group" aria-label="Pages">
      <span>
        <b>
          {props.from} to {props.to}
        </b>
        {props.total !== undefined && ` of ${props.total.toLocaleString("en-US")}`}
        {props.note && ` · ${props.note}`}
      </span>
      <span class="grow" />
      <label>
        Rows{" "}
        <select class="input small" value={props.rows} onChange={(event) => props.onRows(Number(event.currentTarget.value))}>
          {[25, 50, 100].map((count) => (
            <option key={count} value={count}>
              {count}
            </option>
          ))}
        </select>
      </label>
      <PagerButton name="Previous page" sign="‹" onClick={props.onPrevious} />
      <PagerButton name="Next page" sign="›" onClick={props.onNext} />
    </div>
  );
}

function PagerButton({ name, sign, onClick }: { name: string; sign: string; onClick?: (() => void) | undefined }) {
  return (
    <button
      type="button"
      class="button quiet only-icon"
      aria-label={name}
      aria-disabled={onClick ? undefined : true}
      title={onClick ? name : `There is no ${name.toLowerCase()}`}
      onClick={onClick}
    >
      {sign}
    </button>
  );
}
