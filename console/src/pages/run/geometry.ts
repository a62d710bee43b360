import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import type { RefObject } from "preact";

import { spansOf, type Bar, type BarKind } from "../../model/bars/bars.ts";
import type { Row } from "../../model/bars/rows.ts";
import type { Moment } from "../../model/events/views.ts";
import { extentOf, LEAST_WIDTH, timeMap, type Extent, type Span, type TimeMap } from "../../model/time-map.ts";

export interface Sight {
  readonly top: number;
  readonly height: number;
  /** The width of the column of bars. */
  readonly bars: number;
  readonly row: number;
  /** The height of what stands above the rows and stays there. */
  readonly head: number;
}

const START: Sight = { top: 0, height: 600, bars: 400, row: 26, head: 100 };

/** What of the rows is in sight, how wide their bars may be, and how high a row is at this density. */
export function useSight(box: RefObject<HTMLDivElement | null>): Sight {
  const [sight, setSight] = useState<Sight>(START);
  useLayoutEffect(() => {
    const shown = box.current;
    if (!shown) return;
    let asked = 0;
    const look = (): void => {
      asked = 0;
      const head = shown.querySelector<HTMLElement>(".timeline-head");
      const bars = shown.querySelector<HTMLElement>(".timeline-axis .scale");
      const row = shown.querySelector<HTMLElement>(".timeline-probe");
      const next: Sight = {
        top: shown.scrollTop,
        height: shown.clientHeight,
        bars: Math.max(80, bars?.clientWidth ?? START.bars),
        row: row?.offsetHeight || START.row,
        head: head?.offsetHeight ?? 0,
      };
      setSight((now) => (isSameSight(now, next) ? now : next));
    };
    const ask = (): void => {
      asked ||= requestAnimationFrame(look);
    };
    look();
    const resized = new ResizeObserver(ask);
    resized.observe(shown);
    const head = shown.querySelector(".timeline-head");
    if (head) resized.observe(head);
    const probe = shown.querySelector(".timeline-probe");
    if (probe) resized.observe(probe);
    shown.addEventListener("scroll", ask, { passive: true });
    return () => {
      cancelAnimationFrame(asked);
      resized.disconnect();
      shown.removeEventListener("scroll", ask);
    };
  }, [box]);
  return sight;
}

function isSameSight(one: Sight, other: Sight): boolean {
  return one.top === other.top && one.height === other.height && one.bars === other.bars && one.row === other.row && one.head === other.head;
}

/** Whether a media query holds. */
export function useMedia(query: string): boolean {
  const [holds, set] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const changed = (): void => set(list.matches);
    changed();
    list.addEventListener("change", changed);
    return () => list.removeEventListener("change", changed);
  }, [query]);
  return holds;
}

/** The map of time for some rows: of all, or in a long run of those in sight. */
export function mapOfRows(rows: readonly Row[], spans: readonly Span[], options: { width: number; now: Moment; isWall: boolean }): TimeMap {
  const known = spans.length ? spans : spansOf(rows.flatMap((row) => row.bars));
  return timeMap(known, { width: options.width, now: options.now, mode: options.isWall ? "wall" : "working" });
}

export interface Drawn extends Extent {
  readonly bar: Bar;
  readonly kind: BarKind | "live";
}

/** The bars of a row in pixels; what goes on now reaches the live edge. */
export function drawnBars(row: Row, map: TimeMap, now: Moment): Drawn[] {
  return row.bars.map((bar) => {
    const isLive = bar.end === null && (bar.kind === "tool" || bar.kind === "effect" || bar.kind === "model");
    const least = bar.kind === "failed" ? LEAST_WIDTH.failed : bar.kind === "unknown" ? LEAST_WIDTH.unknown : isLive ? 6 : LEAST_WIDTH.plain;
    return { ...extentOf(map, bar.start, bar.end ?? Math.max(now, bar.start), least), bar, kind: isLive ? "live" : bar.kind };
  });
}
