import { useEffect, useState } from "preact/hooks";

import { leastWidth, type Bar } from "../model/bars/bars.ts";
import type { BarFill } from "./figures.tsx";

const REDRAW_MS = 500;

/** The time, twice a second at most, while the tab is in sight and `isOn`. */
export function useTwiceASecond(isOn = true): number {
  const [at, tick] = useState(Date.now());
  useEffect(() => {
    if (!isOn) return;
    const timer = setInterval(() => !document.hidden && tick(Date.now()), REDRAW_MS);
    return () => clearInterval(timer);
  }, [isOn]);
  return at;
}

/** The fill of a bar in a lane: what works now is drawn as live. */
export function fillOf(bar: Bar): BarFill {
  return bar.end === null && !["wait", "await", "lost", "child"].includes(bar.kind) ? "live" : bar.kind;
}

/** Bars on a window of the clock, from `from` to `to`. */
export function LaneTrack({ bars, from, to }: { bars: readonly Bar[]; from: number; to: number }) {
  const place = (moment: number) => Math.max(0, Math.min(100, ((moment - from) / (to - from)) * 100));
  return (
    <span class="track lane-track" aria-hidden="true">
      {bars.map((bar, index) => {
        const left = place(bar.start);
        return (
          <i
            key={index}
            class={`bar bar-${fillOf(bar)}`}
            style={{ left: `${left}%`, width: `${place(bar.end ?? to) - left}%`, minWidth: `${Math.min(4, leastWidth(bar.kind))}px` }}
          />
        );
      })}
    </span>
  );
}
