import type { TargetedPointerEvent } from "preact";
import { useMemo } from "preact/hooks";

import { axisTicks } from "../../model/axis.ts";
import { costAt, ledgerOf, type Ledger } from "../../model/bars/strip.ts";
import { controlName, fateOf } from "../../model/fates.ts";
import type { ControlView, Moment, RunView } from "../../model/events/views.ts";
import type { RunStore } from "../../model/events/store.ts";
import { formatCount, formatDuration, formatMoney } from "../../model/formats.ts";
import { markAt, type TimeMap } from "../../model/time-map.ts";
import { Glyph } from "../../parts/glyph.tsx";
import { lookAtTab } from "./view.ts";

interface HeadProps {
  run: RunView;
  map: TimeMap;
  store: RunStore;
  now: Moment;
  at: Moment | null;
  isLong: boolean;
  onTravel: (at: Moment | null) => void;
}

/** What stands above the rows: the axis, tokens and cost along it, and the controls at the moment they were sent. */
export function TimelineHead(props: HeadProps) {
  const { run, map, store, at, isLong } = props;
  const ledger = useMemo(() => ledgerOf([run, ...below(run, store)]), [run]);
  const hasLedger = ledger.tokens > 0 && !isLong;
  return (
    <div class="timeline-head">
      <div class="timeline-axis timeline-grid" aria-hidden="true">
        <div class="head-name">Step</div>
        <div class="head-figures">
          <span>time</span>
          <span>{ledger.usd > 0 ? "cost" : ""}</span>
        </div>
        <div class="scale" title="Drag to see the run as it stood" {...dragging(map, props.onTravel)}>
          <Ticks run={run} map={map} isLong={isLong} />
        </div>
      </div>
      {hasLedger && <LedgerStrip ledger={ledger} map={map} at={at} />}
      {run.controls.length > 0 && !isLong && <Flags controls={run.controls} map={map} at={at} />}
    </div>
  );
}

function below(run: RunView, store: RunStore, depth = 0): RunView[] {
  if (depth > 6) return [];
  const children = run.children.map((child) => store.run(child.id)).filter((child) => child !== undefined);
  return children.flatMap((child) => [child, ...below(child, store, depth + 1)]);
}

/** Dragging along the axis travels in time. */
function dragging(map: TimeMap, onTravel: (at: Moment | null) => void) {
  const to = (event: TargetedPointerEvent<HTMLElement>): void => {
    const box = event.currentTarget.getBoundingClientRect();
    const x = Math.max(0, event.clientX - box.left);
    onTravel(x >= box.width - 1 ? null : map.t(x));
  };
  return {
    onPointerDown: (event: TargetedPointerEvent<HTMLElement>) => {
      if (event.button !== 0) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      to(event);
    },
    onPointerMove: (event: TargetedPointerEvent<HTMLElement>) => {
      if (event.currentTarget.hasPointerCapture(event.pointerId)) to(event);
    },
  };
}

const TICK_ROOM = 40;

function Ticks({ run, map, isLong }: { run: RunView; map: TimeMap; isLong: boolean }) {
  const start = run.startedAt ?? map.start;
  const ticks = axisTicks(map);
  const gap = (ticks[1]?.moment ?? 0) - (ticks[0]?.moment ?? 0);
  const isFree = (x: number): boolean => map.folds.every((fold) => x < fold.x - TICK_ROOM / 2 || x > fold.x + fold.width + TICK_ROOM / 2);
  return (
    <>
      {ticks.map((tick) =>
        isFree(tick.x) && tick.x < map.width - TICK_ROOM / 2 ? (
          <span key={tick.moment} class={tick.x < TICK_ROOM / 2 ? "is-first" : undefined} style={{ left: `${tick.x}px` }}>
            {isLong ? elapsed(tick.moment - start, gap) : tick.label}
          </span>
        ) : null,
      )}
      {map.folds.map((fold) => (
        <em key={fold.start} style={{ left: `${fold.x}px`, width: `${fold.width}px` }} title={`Nothing worked for ${formatDuration(fold.end - fold.start)}`}>
          {fold.width >= 34 ? formatDuration(fold.end - fold.start) : ""}
        </em>
      ))}
    </>
  );
}

/** Time since the run began, as exact as the ticks are near: `9:04`, `22.15 s`. */
function elapsed(ms: number, gap: number): string {
  const from = Math.max(0, ms);
  if (gap >= 1_000) return from < 3_600_000 ? `${Math.floor(from / 60_000)}:${String(Math.floor(from / 1_000) % 60).padStart(2, "0")}` : formatDuration(from);
  return `${(from / 1_000).toFixed(gap >= 100 ? 1 : gap >= 10 ? 2 : 3)} s`;
}

const STRIP = 47;
const STRIP_TOP = 8;

function LedgerStrip({ ledger, map, at }: { ledger: Ledger; map: TimeMap; at: Moment | null }) {
  const usd = at === null ? ledger.usd : costAt(ledger.costs, at);
  const tokens = at === null ? ledger.tokens : ledger.bars.filter((bar) => bar.end <= at).reduce((sum, bar) => sum + bar.tokens, 0);
  const height = (part: number): number => (part / Math.max(1, ledger.mostTokens)) * (STRIP - STRIP_TOP);
  return (
    <div class="ledger-strip timeline-grid" role="img" aria-label={`${formatCount(tokens)} tokens${ledger.usd > 0 ? `, ${formatMoney(usd)}` : ""} along the run`}>
      <div class="head-name">
        <span class="legend">
          <span>
            <span class="track">
              <i class="bar bar-model" />
            </span>
            tokens
          </span>
          {ledger.usd > 0 && (
            <span>
              <svg width="20" height="8" aria-hidden="true">
                <path d="M0 7H8V2H20" />
              </svg>
              cost
            </span>
          )}
        </span>
      </div>
      <div class="head-sums">
        {formatCount(tokens)}
        {ledger.usd > 0 && <b>{formatMoney(usd)}</b>}
      </div>
      <div class="scale">
        <svg class="ledger" width={map.width} height={STRIP} aria-hidden="true">
          {ledger.bars.map((bar, index) => {
            const x = map.x(bar.start);
            const width = Math.max(2, map.x(bar.end) - x);
            const [all, cached] = [height(bar.tokens), height(bar.cached)];
            return (
              <g key={index} class={at !== null && bar.end > at ? "is-later" : undefined}>
                <rect class="ledger-tokens" x={x} y={STRIP - all} width={width} height={all}>
                  <title>{`step ${bar.step}: ${formatCount(bar.tokens)} tokens, ${formatCount(bar.cached)} cached`}</title>
                </rect>
                <rect class="ledger-fresh" x={x} y={STRIP - Math.max(1.5, all - cached)} width={width} height={Math.max(1.5, Math.min(all, all - cached) * (cached > 0 ? 1 : 0))} />
              </g>
            );
          })}
          {ledger.usd > 0 && <path class="ledger-cost" d={costLine(ledger, map)} />}
        </svg>
      </div>
    </div>
  );
}

function costLine(ledger: Ledger, map: TimeMap): string {
  const y = (usd: number): string => (STRIP - 3 - (usd / ledger.usd) * (STRIP - STRIP_TOP - 4)).toFixed(1);
  const steps = ledger.costs.map((point) => `H${map.x(point.at).toFixed(1)}V${y(point.usd)}`);
  return `M0 ${y(0)}${steps.join("")}H${map.width.toFixed(0)}`;
}

const FLAG_CHARACTER = 6;
const FLAG_GLYPH = 16;

/** The controls as flags with their fate; where two would collide only the glyph of the first stays. */
function Flags({ controls, map, at }: { controls: readonly ControlView[]; map: TimeMap; at: Moment | null }) {
  const placed = useMemo(() => placeFlags(controls, map), [controls, map]);
  return (
    <div class="flag-row timeline-grid">
      <div class="head-name">Controls</div>
      <div />
      <div class="scale">
        {placed.map(({ control, x, hasName, isLeft }) => {
          const fate = fateOf(control);
          const isLater = at !== null && momentOf(control) > at;
          const style = isLeft ? { right: `${map.width - x - 7}px` } : { left: `${x - 6}px` };
          return (
            <button
              key={control.key}
              type="button"
              class={`flag ${isLeft ? "is-left" : ""} ${isLater ? "is-later" : ""}`}
              style={style}
              title={`${controlName(control.type)}: ${fate.text}`}
              aria-label={`${controlName(control.type)}: ${fate.text}`}
              onClick={() => lookAtTab("controls")}
            >
              <Glyph name={fate.glyph} />
              {hasName && controlName(control.type)}
            </button>
          );
        })}
      </div>
    </div>
  );
}

function momentOf(control: ControlView): Moment {
  return control.sentAt ?? control.receivedAt ?? control.settledAt ?? 0;
}

interface Placed {
  readonly control: ControlView;
  readonly x: number;
  readonly hasName: boolean;
  readonly isLeft: boolean;
}

function placeFlags(controls: readonly ControlView[], map: TimeMap): Placed[] {
  const points = controls.map((control) => ({ control, x: markAt(map, momentOf(control)) })).sort((a, b) => a.x - b.x);
  let until = -Infinity;
  const found: Placed[] = [];
  points.forEach(({ control, x }, at) => {
    const width = controlName(control.type).length * FLAG_CHARACTER + FLAG_GLYPH + 6;
    const next = points[at + 1]?.x ?? Infinity;
    const fitsRight = x + width <= Math.min(next - 8, map.width);
    const fitsLeft = !fitsRight && x - width >= until + 4;
    const shownX = Math.min(Math.max(x, Number.isFinite(until) ? until + 7 : 6), map.width - 8);
    found.push({ control, x: shownX, hasName: fitsRight || fitsLeft, isLeft: fitsLeft });
    until = fitsRight ? shownX + width : shownX + 8;
  });
  return found;
}

/** The lines of the axis behind the rows, the folds, the live edge, and the line of time travel with what it greys. */
export function GridLines({ map, at, isLive, isLong, onTravel }: { map: TimeMap; at: Moment | null; isLive: boolean; isLong: boolean; onTravel: (at: Moment | null) => void }) {
  const x = at === null ? null : map.x(at);
  return (
    <div class="grid-lines" aria-hidden="true">
      {axisTicks(map)
        .filter((tick) => tick.x > 1)
        .map((tick) => (
          <i key={tick.moment} style={{ left: `${tick.x}px` }} />
        ))}
      {map.folds.map((fold) => (
        <u key={fold.start} class={fold.isOpen ? "is-open" : undefined} style={{ left: `${fold.x}px`, width: `${fold.width}px` }} />
      ))}
      {isLive && at === null && !isLong && <s style={{ left: `${map.width - 1.5}px` }} />}
      {x !== null && (
        <>
          <span class="later" style={{ left: `${x}px`, right: 0 }} />
          <span class="travel-line" style={{ left: `${x - 1}px` }} />
          <span
            class="travel-grip"
            style={{ left: `${x - 8}px` }}
            onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
            onPointerMove={(event) => {
              if (!event.currentTarget.hasPointerCapture(event.pointerId)) return;
              const box = event.currentTarget.parentElement?.getBoundingClientRect();
              if (box) onTravel(map.t(Math.max(0, Math.min(box.width, event.clientX - box.left))));
            }}
          />
        </>
      )}
    </div>
  );
}
