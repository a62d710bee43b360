import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { spansOfRun } from "../../model/bars/bars.ts";
import { laneOf } from "../../model/bars/lanes.ts";
import type { RunView } from "../../model/events/views.ts";
import { formatDuration } from "../../model/formats.ts";
import { stateOfRun } from "../../model/status.ts";
import { extentOf, timeMap } from "../../model/time-map.ts";
import { Legend } from "../../parts/figures.tsx";
import { fillOf, useTwiceASecond } from "../../parts/lane-track.tsx";
import { PaneHead } from "../../parts/pane.tsx";

/** The runs of a session as one row of bars: working time, with the time between them folded. */
export function RunStrip({ runs }: { runs: readonly RunView[] }) {
  const box = useRef<HTMLDivElement>(null);
  const [width, measure] = useState(800);
  const isLive = runs.some((run) => run.endedAt === null);
  const at = useTwiceASecond(isLive);
  useLayoutEffect(() => {
    const shown = box.current;
    if (!shown) return;
    const watcher = new ResizeObserver(() => measure(Math.max(120, shown.clientWidth)));
    watcher.observe(shown);
    return () => watcher.disconnect();
  }, [runs.length > 0]);
  const begun = runs.filter((run) => run.startedAt !== null);
  if (!begun.length) return null;
  const map = timeMap(
    begun.flatMap((run) => spansOfRun(run, () => undefined)),
    { width, now: at },
  );
  const lanes = begun.map((run) => ({ run, bars: laneOf(run, { from: map.start, to: at, nearest: (map.end - map.start) / 600 }).bars }));
  return (
    <section class="session-strip" aria-label="Runs over time">
      <PaneHead title="Runs over time" count="working time" level={3}>
        <span class="hide-small">
          <Legend kinds={[...new Set(lanes.flatMap((lane) => lane.bars.map(fillOf)))]} />
        </span>
      </PaneHead>
      <div ref={box} class="session-time">
        {map.folds.map((fold) => (
          <span key={fold.start} class="session-fold" style={{ left: `${fold.x}px`, width: `${fold.width}px` }} title={`${formatDuration(fold.end - fold.start)} without work`}>
            {fold.width > 40 && formatDuration(fold.end - fold.start)}
          </span>
        ))}
        {lanes.map(({ run, bars }) => {
          const state = stateOfRun(run);
          const whole = extentOf(map, run.startedAt ?? map.start, run.endedAt ?? at, 4);
          return (
            <a key={run.id} class="session-lane" href={`/tasks/${encodeURIComponent(run.id)}`} aria-label={`${run.agent || "run"}, ${state.word}: ${run.goal}`} title={`${run.agent}: ${run.goal}`}>
              <i class="session-run" style={{ left: `${whole.x}px`, width: `${whole.width}px` }} />
              {bars.map((bar, index) => {
                const extent = extentOf(map, bar.start, bar.end ?? at, 2);
                return <i key={index} class={`bar bar-${fillOf(bar)}`} style={{ left: `${extent.x}px`, width: `${extent.width}px` }} />;
              })}
            </a>
          );
        })}
      </div>
    </section>
  );
}
