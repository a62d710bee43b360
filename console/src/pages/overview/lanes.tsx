import { useEffect, useState } from "preact/hooks";

import { leastWidth, type Bar } from "../../model/bars/bars.ts";
import { laneOf } from "../../model/bars/lanes.ts";
import type { RunView } from "../../model/events/views.ts";
import { formatMoney, formatTime } from "../../model/formats.ts";
import { stateOfRun } from "../../model/status.ts";
import { Legend, type BarFill } from "../../parts/figures.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { zone } from "../../parts/moments.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { now } from "../../shell/clock.ts";
import { call } from "../../wire/client.ts";
import { runs, runsChanged, touchRuns } from "../../wire/runs.ts";
import { hasCapability } from "../../wire/runtime.ts";

const WINDOW_MS = 15 * 60_000;
const SHOWN = 8;
const REDRAW_MS = 500;
const GONE_ON = new Set(["pending", "running", "paused"]);

/** Redraws twice a second at most, while the tab is in sight. */
function useTwiceASecond(): number {
  const [at, tick] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && tick(Date.now()), REDRAW_MS);
    return () => clearInterval(timer);
  }, []);
  return at;
}

/** The runs of the last fifteen minutes: those that go on first, then those that ended last. */
function shownRuns(at: number): RunView[] {
  return runs
    .all()
    .filter((run) => !run.parentId && (GONE_ON.has(run.status) || (run.endedAt ?? 0) > at - WINDOW_MS))
    .sort((a, b) => Number(GONE_ON.has(b.status)) - Number(GONE_ON.has(a.status)))
    .slice(0, SHOWN);
}

/** What was before the page opened comes from the record, where the runtime has one. */
function useHistory(shown: readonly RunView[]): void {
  const ids = shown.map((run) => run.id).join(" ");
  const canAsk = hasCapability("run_history");
  useEffect(() => {
    if (!canAsk) return;
    let isCurrent = true;
    for (const run of shown) {
      if (run.steps.length > 0 && run.isWhole) continue;
      call("runs.steps", { id: run.id, limit: 100 }, { session: run.identity.session }).then(
        (history) => {
          if (!isCurrent) return;
          runs.noteHistory(history as never);
          touchRuns();
        },
        () => undefined, // its lane begins with what came by the stream
      );
    }
    return () => {
      isCurrent = false;
    };
  }, [ids, canAsk]);
}

export function Lanes() {
  void runsChanged.value;
  const at = useTwiceASecond();
  const shown = shownRuns(at);
  useHistory(shown);
  const lanes = shown.map((run) => ({ run, bars: laneOf(run, { from: at - WINDOW_MS, to: at, nearest: WINDOW_MS / 600 }).bars }));
  const kinds = [...new Set<BarFill>(lanes.flatMap((lane) => lane.bars.map((bar) => (bar.end === null && bar.kind !== "wait" ? "live" : bar.kind))))];
  return (
    <section class="overview-section lanes-section" aria-label="Running now">
      <PaneHead title="Now" count="last 15 min">
        <span class="hide-narrow">
          <Legend kinds={kinds} />
        </span>
      </PaneHead>
      {shown.length === 0 && <p class="quiet-line">Nothing ran in the last 15 minutes.</p>}
      {lanes.map(({ run, bars }) => (
        <LaneRow key={run.id} run={run} bars={bars} at={at} />
      ))}
      {shown.length > 0 && (
        <div class="lane lane-axis" aria-hidden="true">
          <span class="lane-track">
            {[0, 1, 2, 3].map((tick) => (
              <span key={tick}>{formatTime(now.value - WINDOW_MS * (1 - tick / 3), { now: now.value, zone: zone() }).slice(0, 5)}</span>
            ))}
          </span>
        </div>
      )}
    </section>
  );
}

function LaneRow({ run, bars, at }: { run: RunView; bars: readonly Bar[]; at: number }) {
  const state = stateOfRun(run);
  const step = run.steps.at(-1)?.number;
  const place = (moment: number) => Math.max(0, Math.min(100, ((moment - (at - WINDOW_MS)) / WINDOW_MS) * 100));
  return (
    <a class="lane" href={`/tasks/${encodeURIComponent(run.id)}`}>
      <Glyph name={state.glyph} label={`${state.word}${state.on && `: ${state.on}`}`} />
      <b class="cut">{run.agent || "run"}</b>
      <span class="cut soft lane-goal">{run.goal}</span>
      <span class="track lane-track" aria-hidden="true">
        {bars.map((bar, index) => {
          const left = place(bar.start);
          const fill = bar.end === null && !["wait", "await", "lost", "child"].includes(bar.kind) ? "live" : bar.kind;
          return (
            <i
              key={index}
              class={`bar bar-${fill}`}
              style={{ left: `${left}%`, width: `${place(bar.end ?? at) - left}%`, minWidth: `${Math.min(4, leastWidth(bar.kind))}px` }}
            />
          );
        })}
      </span>
      <span class="number faint lane-step">{step ? `step ${step}` : ""}</span>
      <span class="number soft">{run.usd ? formatMoney(run.usd) : ""}</span>
    </a>
  );
}

