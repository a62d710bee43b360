import { laneOf } from "../../model/bars/lanes.ts";
import { argsPreview } from "../../model/bars/rows.ts";
import type { RunView } from "../../model/events/views.ts";
import { formatDuration } from "../../model/formats.ts";
import { stateOfRun } from "../../model/status.ts";
import { Legend } from "../../parts/figures.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { fillOf, LaneTrack } from "../../parts/lane-track.tsx";
import { PaneHead } from "../../parts/pane.tsx";

const GOES_ON = new Set(["pending", "running", "paused"]);
const MOST = 60;

/** A run in its place: behind its parent, as deep as it is below it. */
interface Placed {
  run: RunView;
  depth: number;
}

/** The runs of a window, by session; children stand below their parent. */
export function sessionsOf(all: readonly RunView[], from: number, session: string): [string, Placed[]][] {
  const shown = all.filter((run) => (!session || run.identity.session === session) && (GOES_ON.has(run.status) || (run.endedAt ?? 0) >= from));
  const ids = new Set(shown.map((run) => run.id));
  const byParent = groupBy(shown, (run) => (ids.has(run.parentId) ? run.parentId : ""));
  const below = (parent: string, depth: number): Placed[] =>
    (byParent.get(parent) ?? []).flatMap((run) => [{ run, depth }, ...(depth < 8 ? below(run.id, depth + 1) : [])]);
  return [...groupBy(below("", 0).slice(0, MOST), ({ run }) => run.identity.session)].sort(([a], [b]) => (a < b ? -1 : 1));
}

function groupBy<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
}

/** What a run does now: the call or wait that goes on, else the last that it did. */
function doing(run: RunView, at: number): string {
  const state = stateOfRun(run);
  if (state.on) return state.on;
  if (run.endedAt !== null) return state.code || state.word.toLowerCase();
  const step = run.steps.at(-1);
  const call = step?.calls.findLast((one) => one.status === "open");
  if (call) return `${call.tool}${call.startedAt === null ? "" : ` · ${formatDuration(Math.max(0, at - call.startedAt))}`} ${argsPreview(call)}`;
  const child = step?.children.at(-1);
  if (child && step?.endedAt === null) return "waits for a child run";
  return step ? (step.text ? "writes its answer" : `thinks, step ${step.number}`) : "begins";
}

/** The runs of the last minutes as lanes on one clock, now at the right. */
export function Lanes({ sessions, at, windowMs }: { sessions: readonly [string, Placed[]][]; at: number; windowMs: number }) {
  const from = at - windowMs;
  const count = sessions.reduce((sum, [, placed]) => sum + placed.length, 0);
  const lanes = new Map(sessions.flatMap(([, placed]) => placed.map(({ run }) => [run.id, laneOf(run, { from, to: at, nearest: windowMs / 600 }).bars] as const)));
  const kinds = [...new Set([...lanes.values()].flatMap((bars) => bars.map(fillOf)))];
  return (
    <section class="live-lanes" aria-label="Activity">
      <PaneHead title="Activity" count={count ? `${count} ${count === 1 ? "run" : "runs"} in ${sessions.length} ${sessions.length === 1 ? "session" : "sessions"}` : undefined}>
        <span class="hide-small">
          <Legend kinds={kinds} />
        </span>
      </PaneHead>
      {count === 0 && <p class="live-quiet">Nothing runs now, and nothing ran in this window. A run appears here as it starts.</p>}
      {sessions.map(([session, placed]) => (
        <div key={session} class="live-session">
          <p class="small">
            <a class="link" href={`/sessions/${encodeURIComponent(session)}`}>
              {session}
            </a>{" "}
            <span class="faint">{placed[0]?.run.identity.user}</span>
          </p>
          {placed.map(({ run, depth }) => {
            const state = stateOfRun(run);
            return (
              <a key={run.id} class="live-lane" href={`/tasks/${encodeURIComponent(run.id)}`} title={run.goal}>
                <Glyph name={state.glyph} label={state.word} />
                <b class="cut" style={{ paddingLeft: `${Math.min(depth, 6) * 12}px` }}>
                  {run.agent || "run"}
                </b>
                <span class="cut soft live-doing">{doing(run, at)}</span>
                <LaneTrack bars={lanes.get(run.id) ?? []} from={from} to={at} />
              </a>
            );
          })}
        </div>
      ))}
      {count > 0 && (
        <div class="live-axis" aria-hidden="true">
          {[1, 0.75, 0.5, 0.25].map((share) => (
            <span key={share}>−{formatDuration(windowMs * share)}</span>
          ))}
          <span class="is-running">now</span>
        </div>
      )}
    </section>
  );
}
