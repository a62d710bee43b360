import "./overview.css";

import { Disconnected, Failure, SkeletonRows } from "../../parts/states.tsx";
import { seesFleet } from "../../wire/connection.ts";
import { useAsked } from "../../wire/resource.ts";
import { runs, touchRuns } from "../../wire/runs.ts";
import { call } from "../../wire/client.ts";
import { Activity } from "./activity.tsx";
import { AnswerTimes } from "./answers.tsx";
import { CostCard } from "./cost.tsx";
import { FirstRun } from "./first-run.tsx";
import { FigureStrip } from "./figure-strip.tsx";
import { Lanes } from "./lanes.tsx";
import { Needs } from "./needs.tsx";
import { Outcomes } from "./outcomes.tsx";
import { Wrong } from "./wrong.tsx";

const SESSIONS = 20;

/** The sessions that were busy last, and the tasks of them: those of all that the viewer may see. */
async function look(signal: AbortSignal) {
  const sessions = await call("sessions.list", { filter: {}, sort: "last_activity_desc", cursor: "", limit: SESSIONS }, { signal }).catch(() =>
    call("sessions.list", { filter: {}, limit: SESSIONS }, { signal }),
  );
  const named = [...new Set(sessions.rows.map((row) => row.session_id))];
  const mine = sessions.rows.filter((row) => row.tasks_count > 0).length ? named : [];
  const pages = await Promise.allSettled(
    mine.slice(0, SESSIONS).map((session) => call("tasks.list", { page_size: 25 }, { signal, session })),
  );
  const tasks = pages.flatMap((page) => (page.status === "fulfilled" ? page.value.rows : []));
  for (const row of tasks) runs.noteTask(row);
  if (tasks.length) touchRuns();
  return { sessions: sessions.rows, tasks, isTruncated: sessions.truncated, hasRun: tasks.length > 0 || sessions.rows.some((row) => row.tasks_count > 0) };
}

/** Four questions at a glance: who waits for me, what runs, what went wrong, what does it cost. */
export default function OverviewPage() {
  const [seen, reload] = useAsked(look, `overview ${seesFleet.value}`, { everyMs: 30_000 });
  switch (seen.state) {
    case "disconnected":
      return <Disconnected />;
    case "loading":
      return <SkeletonRows noun="the overview" />;
    case "failed":
      return <Failure noun="the overview" error={seen.error} onRetry={reload} />;
    case "ready":
      break;
  }
  if (!seen.data.hasRun) return <FirstRun onStarted={reload} />;
  return (
    <>
      <FigureStrip sessions={seen.data.sessions} />
      <div class="overview">
        <div class="overview-column">
          <Needs />
          <Lanes />
          <Outcomes />
        </div>
        <div class="overview-column">
          <Wrong />
          <CostCard sessions={seen.data.sessions} tasks={seen.data.tasks} isTruncated={seen.data.isTruncated} />
          <AnswerTimes />
          <Activity />
        </div>
      </div>
    </>
  );
}
