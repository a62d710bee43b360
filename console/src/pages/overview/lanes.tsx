import type { Bar } from "../../model/bars/bars.ts";
import { laneOf } from "../../model/bars/lanes.ts";
import type { RunView } from "../../model/events/views.ts";
import { formatMoney, formatTime } from "../../model/formats.ts";
import { stateOfRun } from "../../model/status.ts";
import { Legend, type BarFill } from "../../parts/figures.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { zone } from "../../parts/moments.tsx";
import { fillOf, LaneTrack, useTwiceASecond } from "../../parts/lane-track.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { now } from "../../shell/clock.ts";
import { useRunHistory } from "../../wire/run-history.ts";
import { runs, runsChanged } from "../../wire/runs.ts";

const WINDOW_MS = 15 * 60_000;
const SHOWN = 8;
const GONE_ON = new Set(["pending", "running", "paused"]);

/** The runs of the last fifteen minutes: those that go on first, then those that ended last. */
function shownRuns(at: number): RunView[] {
  return runs
    .all()
    .filter((run) => !run.parentId && (GONE_ON.has(run.status) || (run.endedAt ?? 0) > at - WINDOW_MS))
    .sort((a, b) => Number(GONE_ON.has(b.status)) - Number(GONE_ON.has(a.status)))
    .slice(0, SHOWN);
}

export function Lanes() {
  void runsChanged.value;
  const at = useTwiceASecond();
  const shown = shownRuns(at);
  useRunHistory(shown);
  const lanes = shown.map((run) => ({ run, bars: laneOf(run, { from: at - WINDOW_MS, to: at, nearest: WINDOW_MS / 600 }).bars }));
  const kinds = [...new Set<BarFill>(lanes.flatMap((lane) => lane.bars.map(fillOf)))];
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
  return (
    <a class="lane" href={`/tasks/${encodeURIComponent(run.id)}`}>
      <Glyph name={state.glyph} label={`${state.word}${state.on && `: ${state.on}`}`} />
      <b class="cut">{run.agent || "run"}</b>
      <span class="cut soft lane-goal">{run.goal}</span>
      <LaneTrack bars={bars} from={at - WINDOW_MS} to={at} />
      <span class="number faint lane-step">{step ? `step ${step}` : ""}</span>
      <span class="number soft">{run.usd ? formatMoney(run.usd) : ""}</span>
    </a>
  );
}
