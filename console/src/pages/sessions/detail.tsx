import { exportEvents } from "../../model/event-list.ts";
import { controlName, fateOf } from "../../model/fates.ts";
import type { WireEvent } from "../../model/events/wire.ts";
import type { RunView } from "../../model/events/views.ts";
import { formatBytes, formatCount, formatDuration, formatMoney } from "../../model/formats.ts";
import { stateOf, stateOfRun, waitingOnSnapshot } from "../../model/status.ts";
import { Button, ButtonLink, Tabs } from "../../parts/button.tsx";
import { download } from "../../parts/download.ts";
import { EventTable, keyOfEvent } from "../../parts/events.tsx";
import { Facts, ShareBars } from "../../parts/figures.tsx";
import { Glyph, State } from "../../parts/glyph.tsx";
import { useTwiceASecond } from "../../parts/lane-track.tsx";
import { Deadline, Id, Moment } from "../../parts/moments.tsx";
import { Split, Toolbar } from "../../parts/pane.tsx";
import { CopyButton, Disconnected, Empty, Failure, Notice, PartFailure, SkeletonRows } from "../../parts/states.tsx";
import { say } from "../../parts/toast.tsx";
import { navigate, useQuery } from "../../shell/router.ts";
import { useHeading } from "../../shell/title.ts";
import { call } from "../../wire/client.ts";
import { asWireError } from "../../wire/error.ts";
import { useSessionEvents } from "../../wire/event-history.ts";
import { useEvents } from "../../wire/feed.ts";
import { useAsked, useCall } from "../../wire/resource.ts";
import { useRunHistory } from "../../wire/run-history.ts";
import { runNow, runs, touchRuns } from "../../wire/runs.ts";
import type { SessionDetail, TaskRow } from "../../wire/types.ts";
import { EventDetail } from "../events/detail.tsx";
import { SessionState } from "./state.tsx";
import { RunStrip } from "./strip.tsx";

const MOST_RUNS = 50;
type Tab = "runs" | "events" | "cost" | "controls" | "pauses" | "artifacts";

async function look(id: string, signal: AbortSignal): Promise<{ found: SessionDetail; tasks: TaskRow[] }> {
  const options = { signal, session: id };
  const [found, tasks] = await Promise.all([call("sessions.inspect", { session_id: id }, options), call("tasks.list", { page_size: MOST_RUNS }, options)]);
  for (const row of tasks.rows) runs.noteTask(row);
  touchRuns();
  return { found, tasks: tasks.rows };
}

/** One session: its runs as one row of time, and everything that happened in it. */
export function SessionPageOf({ id }: { id: string }) {
  const [asked, reload] = useAsked((signal) => look(id, signal), `session ${id}`, { everyMs: 15_000 });
  useHeading(id, [{ text: "Sessions", href: "/sessions" }]);
  useEvents((events) => {
    if (events.some((event) => event.session === id && /^(task|pause)\./.test(event.type))) reload();
  });
  switch (asked.state) {
    case "disconnected":
      return <Disconnected />;
    case "loading":
      return <SkeletonRows noun="the session" />;
    case "failed":
      return asked.error.status === 404 ? (
        <Notice icon="search" title="No such session" actions={<ButtonLink kind="primary" href="/sessions">All sessions</ButtonLink>}>
          This runtime has no session <code>{id}</code> that you may see.
        </Notice>
      ) : (
        <Failure noun="the session" error={asked.error} onRetry={reload} />
      );
    case "ready":
      return <Session id={id} found={asked.data.found} tasks={asked.data.tasks} />;
  }
}

function Session({ id, found, tasks }: { id: string; found: SessionDetail; tasks: readonly TaskRow[] }) {
  const { row } = found;
  const events = useSessionEvents(id).read();
  const known = tasks.map((task) => runNow(task.id)).filter((run) => run !== undefined);
  useRunHistory(known);
  const [open, show] = useQuery("tab");
  const tab = (open || "runs") as Tab;
  const newest = tasks[0];
  const clone = async (): Promise<void> => {
    if (!newest) return;
    try {
      const session = `sess-${crypto.randomUUID().replaceAll("-", "").slice(0, 12)}`;
      await call("start", { query: newest.query, description: newest.description, ...(newest.agent_name ? { agent: newest.agent_name } : {}) }, { session });
      navigate(`/sessions/${session}`);
    } catch (error) {
      const failed = asWireError(error);
      say({ glyph: "failed", text: `Not started: ${failed.code}: ${failed.message}` });
    }
  };
  return (
    <>
      <Toolbar label="The session">
        <SessionState row={row} />
        <CopyButton text={id} label="Copy the session's id" />
        <span class="grow" />
        <ButtonLink small icon="live" href={`/live-runtime/${encodeURIComponent(id)}`}>
          Watch live
        </ButtonLink>
        <ButtonLink small icon="playground" href={`/playground/${encodeURIComponent(id)}`}>
          Continue
        </ButtonLink>
        <Button small kind="quiet" icon="fork" why={newest ? undefined : "It has no run to start again"} title="Start the goal of the newest run in a session of its own" onClick={() => void clone()}>
          Clone
        </Button>
        <Button small kind="quiet" icon="download" why={events.length ? undefined : "No event of it is held"} onClick={() => download(`${id}.jsonl`, exportEvents(events, "ndjson"))}>
          Export JSONL
        </Button>
      </Toolbar>
      <div class="session-facts">
        <Facts
          label="Session"
          rows={[
            ["Agent", row.agent_name],
            ["Identity", `${row.tenant_id} / ${row.user_id}`],
            ["Started", <Moment at={row.started_at} />],
            ["Last activity", <Moment at={row.last_activity_at} />],
            ["Active", formatDuration(row.duration / 1e6)],
            ["Runs", formatCount(row.tasks_count)],
            ["Events", formatCount(row.events_count)],
            ["Tokens", row.total_tokens ? formatCount(row.total_tokens) : ""],
            ["Cost", row.total_cost_cents ? <b>{formatMoney(row.total_cost_cents / 100)}</b> : ""],
          ]}
        />
      </div>
      <RunStrip runs={known} />
      <Tabs
        label="Parts of the session"
        value={tab}
        onChange={show}
        choices={[
          { value: "runs", text: "Runs", count: tasks.length },
          { value: "events", text: "Events", count: events.length },
          { value: "cost", text: "Cost" },
          { value: "controls", text: "Controls", count: known.reduce((sum, run) => sum + run.controls.length, 0) },
          { value: "pauses", text: "Pauses" },
          { value: "artifacts", text: "Artifacts", count: found.recent_artifacts.length },
        ]}
      />
      {tab === "runs" && <Runs tasks={tasks} />}
      {tab === "events" && <Events events={events} />}
      {tab === "cost" && <Cost tasks={tasks} />}
      {tab === "controls" && <Controls runs={known} />}
      {tab === "pauses" && <Pauses id={id} />}
      {tab === "artifacts" && <Artifacts found={found} />}
    </>
  );
}

function Runs({ tasks }: { tasks: readonly TaskRow[] }) {
  const at = useTwiceASecond();
  if (!tasks.length) return <Empty title="No runs yet">A run begins when somebody asks an agent of this session.</Empty>;
  return (
    <ul class="session-list">
      {tasks.map((task) => {
        const run = runNow(task.id);
        const state = run ? stateOfRun(run) : stateOf({ status: task.status, condition: task.condition ?? "", errorClass: task.error_class ?? "" });
        const usd = run?.usd || task.cost_usd;
        const ended = run?.endedAt ?? (run ? at : null);
        return (
          <li key={task.id} class={task.parent_task_id ? "is-child" : undefined}>
            <a class="session-row" href={`/tasks/${encodeURIComponent(task.id)}`}>
              <State name={state.glyph} word={state.on ? `${state.word}: ${state.on}` : state.word} />
              <b class="cut">{task.agent_name || run?.agent || task.kind}</b>
              <span class="cut soft" title={task.query || task.description}>
                {task.query || task.description}
              </span>
              <span class="number faint">{ended && run?.startedAt ? formatDuration(Math.max(0, ended - run.startedAt)) : formatDuration(task.duration_ms)}</span>
              <span class="number soft">{usd ? formatMoney(usd) : ""}</span>
              <span class="number faint">
                <Moment at={task.started_at} />
              </span>
            </a>
          </li>
        );
      })}
    </ul>
  );
}

function Events({ events }: { events: readonly WireEvent[] }) {
  const [at, choose] = useQuery("at");
  const current = events.find((event) => keyOfEvent(event) === at);
  if (!events.length) return <Empty title="No events yet">They appear here as they happen.</Empty>;
  return (
    <Split label="Event" rail={current && <EventDetail event={current} onClose={() => choose("")} />}>
      <EventTable events={events} isOfOneSession current={at} onCurrent={(event) => choose(keyOfEvent(event))} />
    </Split>
  );
}

/** What each run cost. A runtime that names no cost of a run has none to show. */
function Cost({ tasks }: { tasks: readonly TaskRow[] }) {
  const spent = tasks.map((task) => ({ task, usd: runNow(task.id)?.usd || task.cost_usd || 0 })).filter(({ usd }) => usd > 0);
  if (!spent.length) return <Empty title="Nothing was spent">A call of a model with a price adds its cost here.</Empty>;
  return (
    <div class="session-cost">
      <ShareBars
        label="Cost by run"
        rows={spent
          .sort((a, b) => b.usd - a.usd)
          .map(({ task, usd }) => ({ name: `${task.agent_name || "run"}: ${task.query || task.description}`, value: usd, text: <b>{formatMoney(usd)}</b>, href: `/tasks/${encodeURIComponent(task.id)}` }))}
      />
    </div>
  );
}

function Controls({ runs: known }: { runs: readonly RunView[] }) {
  const sent = known.flatMap((run) => run.controls.map((control) => ({ run, control }))).sort((a, b) => (b.control.receivedAt ?? b.control.settledAt ?? 0) - (a.control.receivedAt ?? a.control.settledAt ?? 0));
  if (!sent.length) return <Empty title="No controls yet">Messages, pauses and answers that people sent to its runs stand here with their fate.</Empty>;
  return (
    <ul class="session-list">
      {sent.map(({ run, control }) => {
        const fate = fateOf(control);
        return (
          <li key={control.key}>
            <a class="session-row is-short" href={`/tasks/${encodeURIComponent(run.id)}?tab=controls`}>
              <State name={fate.glyph} word={fate.text} />
              <b class="cut">{controlName(control.type)}</b>
              <span class="cut soft">{[control.by?.user && `by ${control.by.user}`, run.agent].filter(Boolean).join(" · ")}</span>
              <span class="number faint">
                <Moment at={control.receivedAt ?? control.settledAt} />
              </span>
            </a>
          </li>
        );
      })}
    </ul>
  );
}

function Pauses({ id }: { id: string }) {
  const [listed, reload] = useCall("pause.list", { filter: { session_ids: [id] }, page_size: 50 }, { session: id, everyMs: 5_000 });
  if (listed.state === "failed") return <PartFailure noun="Pauses" error={listed.error} onRetry={reload} />;
  if (listed.state !== "ready") return <SkeletonRows noun="pauses" rows={3} />;
  if (!listed.data.snapshots.length) return <Empty title="Nothing waited for a person">A call that must be approved, or a question, stands here.</Empty>;
  return (
    <ul class="session-list">
      {listed.data.snapshots.map((pause) => {
        const isOpen = pause.state === "paused";
        const state = stateOf({ status: "paused", waitingOn: waitingOnSnapshot(pause.reason, pause.payload) });
        const ended = [pause.decision || pause.state, pause.by?.user && `by ${pause.by.user}`].filter(Boolean).join(" ");
        return (
          <li key={pause.token}>
            <div class="session-row is-short">
              <span class="state">
                <Glyph name={isOpen ? state.glyph : "complete"} />
                {isOpen ? state.on : ended}
              </span>
              <b class="cut">{pause.agent_name || (pause.identity.run && <Id id={pause.identity.run} />)}</b>
              <span class="cut soft">
                {isOpen ? (
                  <ButtonLink small href={`/inbox/${encodeURIComponent(pause.token)}`}>
                    Review
                  </ButtonLink>
                ) : (
                  state.on
                )}
                {isOpen && <Deadline deadline={pause.deadline} opened={pause.paused_at} />}
              </span>
              <span class="number faint">
                <Moment at={pause.paused_at} />
              </span>
            </div>
          </li>
        );
      })}
    </ul>
  );
}

function Artifacts({ found }: { found: SessionDetail }) {
  if (!found.recent_artifacts.length) return <Empty title="No artifacts yet">Files that people send and large results are kept here.</Empty>;
  return (
    <ul class="session-list">
      {found.recent_artifacts.map((one, index) => (
        <li key={index}>
          <a class="session-row is-short" href={`/artifacts?q=${encodeURIComponent(one.filename)}`}>
            <code class="cut">{one.mime}</code>
            <b class="cut">{one.filename}</b>
            <span class="soft">{formatBytes(one.size_bytes)}</span>
            <span class="number faint">
              <Moment at={one.created_at} />
            </span>
          </a>
        </li>
      ))}
    </ul>
  );
}
