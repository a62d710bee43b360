import { isIdle } from "../../model/bars/bars.ts";
import type { Row } from "../../model/bars/rows.ts";
import type { Moment } from "../../model/events/views.ts";
import { formatDuration, formatMoney, spokenDuration } from "../../model/formats.ts";
import type { TimeMap } from "../../model/time-map.ts";
import { BAR_WORDS } from "../../parts/figures.tsx";
import { Glyph, type GlyphName } from "../../parts/glyph.tsx";
import { Icon } from "../../parts/icon.tsx";
import { drawnBars, type Drawn } from "./geometry.ts";

interface RowProps {
  row: Row;
  index: number;
  top: number;
  map: TimeMap;
  now: Moment;
  at: Moment | null;
  isCurrent: boolean;
  isTabbable: boolean;
  onPick: () => void;
  onToggle: () => void;
}

/** One row: what it is, how long it worked, what it cost, and its bars. Its name says all of it. */
export function TimelineRow(props: RowProps) {
  const { row, at, isCurrent } = props;
  const bars = drawnBars(row, props.map, props.now);
  const isLater = at !== null && (row.bars[0]?.start ?? 0) > at;
  return (
    <div
      class={`timeline-row ${isCurrent ? "is-current" : ""} ${isLater ? "is-later" : ""}`}
      role="row"
      aria-level={row.depth + 1}
      aria-posinset={row.position}
      aria-setsize={row.siblings}
      aria-rowindex={props.index + 1}
      aria-selected={isCurrent}
      aria-expanded={row.isExpandable ? row.isExpanded : undefined}
      aria-label={spokenRow(row)}
      tabIndex={props.isTabbable ? 0 : -1}
      style={{ top: `${props.top}px`, "--depth": row.depth }}
      onClick={props.onPick}
    >
      <div class="row-name" role="gridcell">
        {row.isExpandable ? (
          <button
            type="button"
            class="twist"
            tabIndex={-1}
            aria-label={`${row.isExpanded ? "Fold" : "Unfold"} ${row.label || row.title}`}
            onClick={(event) => {
              event.stopPropagation();
              props.onToggle();
            }}
          >
            <Icon name={row.isExpanded ? "down" : "right"} small />
          </button>
        ) : (
          <span class="twist" />
        )}
        <span class="row-label">{row.label}</span>
        <Mark row={row} />
        <span class="row-title" title={row.title}>
          {row.title}
        </span>
        {row.args && (
          <span class="row-args cut" title={row.args}>
            {row.args}
          </span>
        )}
      </div>
      <div class="row-figures" role="gridcell">
        <span>{row.activeMs === null ? "" : formatDuration(row.activeMs)}</span>
        <span>{row.usd === null || row.usd === 0 ? "" : formatMoney(row.usd, "step")}</span>
      </div>
      <div class="scale" role="gridcell">
        {bars.map((drawn, at) => (
          <BarMark key={at} drawn={drawn} now={props.now} />
        ))}
        <Note row={row} bars={bars} width={props.map.width} />
      </div>
    </div>
  );
}

const GLYPHS: Partial<Record<Row["tone"], GlyphName>> = { failed: "failed", unknown: "unknown", waiting: "waiting", running: "running" };

/** The fill that its bar has, or the state where that is news. */
function Mark({ row }: { row: Row }) {
  const glyph = GLYPHS[row.tone];
  if (glyph && (glyph !== "failed" || row.kind === "call" || row.mark === "failed")) return <Glyph name={glyph} />;
  if (row.kind === "step" && row.isExpandable && row.mark !== "child") return <i class="row-mark mark-many" aria-hidden="true" />;
  return <i class={`row-mark mark-${row.mark}`} aria-hidden="true" />;
}

function BarMark({ drawn, now }: { drawn: Drawn; now: Moment }) {
  const { bar, kind, x, width } = drawn;
  const length = (bar.end ?? now) - bar.start;
  const tries = bar.attempts > 1 ? `, ${bar.attempts} attempts` : "";
  return (
    <i class={`bar bar-${kind}`} style={{ left: `${x}px`, width: `${width}px` }} title={`${BAR_WORDS[kind]}, ${formatDuration(length)}${tries}`}>
      {bar.attempts > 1 &&
        width > 3 * bar.attempts &&
        Array.from({ length: Math.min(bar.attempts, 9) - 1 }, (_, at) => <u key={at} style={{ left: `${((at + 1) * 100) / bar.attempts}%` }} />)}
    </i>
  );
}

const CHARACTER = 6;
const GAP = 6;

/** What is said behind the last bar; before the first one where there is no room behind. */
function Note({ row, bars, width }: { row: Row; bars: readonly Drawn[]; width: number }) {
  const text = row.note;
  const last = bars.reduce((most, one) => Math.max(most, one.x + one.width), 0);
  const first = bars.reduce((least, one) => Math.min(least, one.x), width);
  if (!text || bars.length === 0) return null;
  const wanted = text.length * CHARACTER + GAP;
  const tone = row.tone === "failed" || row.tone === "unknown" ? ` is-${row.tone}` : "";
  if (width - last >= wanted || width - last >= first) {
    return (
      <span class={`row-note cut${tone}`} title={text} style={{ left: `${last + GAP}px`, right: 0 }}>
        {text}
      </span>
    );
  }
  return (
    <span class={`row-note before cut${tone}`} title={text} style={{ right: `${width - first + GAP}px`, left: 0 }}>
      {text}
    </span>
  );
}

/** "step 5, place_order, waited 2 hours 14 minutes, 1.0 second, 1.9 cents". */
export function spokenRow(row: Row): string {
  const waited = row.bars.filter((bar) => bar.kind === "wait" && bar.end !== null).reduce((sum, bar) => sum + (bar.end as number) - bar.start, 0);
  const isWaiting = row.bars.some((bar) => bar.end === null && isIdle(bar.kind) && bar.kind !== "child");
  const cost = row.usd ? (row.usd < 1 ? `${(row.usd * 100).toFixed(1)} cents` : formatMoney(row.usd)) : "";
  const parts = [
    row.kind === "child" ? "child run" : row.kind === "step" ? `step ${row.label}` : `call ${row.label}`,
    row.title,
    row.tone === "failed" ? "failed" : row.tone === "unknown" ? "may have acted" : isWaiting ? "waits" : row.tone === "running" ? "goes on" : "",
    waited > 0 ? `waited ${spokenDuration(waited)}` : "",
    row.activeMs === null ? "" : spokenDuration(row.activeMs),
    cost,
  ];
  return parts.filter(Boolean).join(", ");
}
