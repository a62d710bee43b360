import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { fateOf, controlName } from "../../model/fates.ts";
import { standAt } from "../../model/events/moment.ts";
import type { RunView } from "../../model/events/views.ts";
import { isEnd } from "../../model/events/run-state.ts";
import { formatTime, shortId } from "../../model/formats.ts";
import { Button } from "../../parts/button.tsx";
import { Disconnected, Failure, Notice, SkeletonRows } from "../../parts/states.tsx";
import { announce } from "../../parts/toast.tsx";
import { now } from "../../shell/clock.ts";
import { useKeys } from "../../shell/keys.ts";
import type { PageProps } from "../../shell/pages.ts";
import { useQuery } from "../../shell/router.ts";
import { useHeading } from "../../shell/title.ts";
import { connection } from "../../wire/connection.ts";
import { hasCapability } from "../../wire/runtime.ts";
import { CallStrip, WaitStrip } from "./call-strip.tsx";
import { ControlBar, whysOf } from "./controls.tsx";
import { ForkForm } from "./fork.tsx";
import { useMedia } from "./geometry.ts";
import { Head } from "./head.tsx";
import { EventDock, Rail, type Chosen } from "./rail.tsx";
import { RecordActions } from "./record-actions.tsx";
import { useEffectsOf, useRun, type Followed } from "./source.ts";
import { Timeline } from "./timeline.tsx";
import { lookAtRow, nextStop, setWall, stepEndedAt, travelTo, useLooking, type Looking } from "./view.ts";
import "./run.css";

/** One run: what it does and did, in time, and everything that can be done with it. */
export default function Run({ rest }: PageProps) {
  const id = rest.split("/")[0] ?? "";
  const [session] = useQuery("session");
  const followed = useRun(id, session);
  const run = followed.run;
  useHeading(run ? `${run.agent || "run"} · ${shortId(id).replace("…", "")}` : shortId(id), crumbsOf(run, followed));
  if (!connection.value) return <Disconnected />;
  if (followed.error) return <RunFailure id={id} followed={followed} />;
  if (!run || followed.isLoading) return <SkeletonRows noun="the run" rows={12} />;
  return <RunBody key={id} run={run} followed={followed} />;
}

function crumbsOf(run: RunView | undefined, followed: Followed): { text: string; href: string }[] {
  const tasks = { text: "Tasks", href: "/tasks" };
  if (!run) return [tasks];
  const parent = followed.header?.parent?.id || run.parentId;
  return parent ? [tasks, { text: shortId(parent), href: `/tasks/${encodeURIComponent(parent)}` }] : [tasks];
}

function RunFailure({ id, followed }: { id: string; followed: Followed }) {
  const error = followed.error;
  if (!error) return null;
  if (error.status === 404) {
    return (
      <Notice
        icon="search"
        title="No such run"
        actions={
          <>
            <a class="button primary" href="/tasks">
              Tasks
            </a>
            <Button onClick={followed.reload}>Try again</Button>
          </>
        }
      >
        The runtime knows no run <code>{id}</code> in this session, or does not keep it any more.
      </Notice>
    );
  }
  return <Failure noun="run" error={error} onRetry={followed.reload} />;
}

function RunBody({ run, followed }: { run: RunView; followed: Followed }) {
  const looking = useLooking(run.id);
  const [isDiff, diff] = useState(true);
  const [forkAt, fork] = useState<number | null>(null);
  const hasDock = useMedia("(min-height: 960px) and (min-width: 1024px)") && looking.tab !== "events";
  const effectsOf = useEffectsOf(run, followed.session);
  // A run that has ended is not drawn again because a second passed.
  const time = isEnd(run.status) ? (run.endedAt ?? now.peek()) : now.value;
  const stood = useMemo(() => (looking.at === null ? run : standAt(run, looking.at)), [run, looking.at]);
  const row = looking.row || defaultRow(run, looking);
  const chosen = useMemo(() => chosenOf(row, stood, followed, looking.at), [row, stood, looking.at]);
  const canFork = hasCapability("run_fork");
  const forkStep = forkStepOf(run, looking, chosen);
  const forkWhy = run.steps.length === 0 ? "There is no step yet" : "";
  useFatesAnnounced(run);
  usePageKeys({ run, followed, looking, isDiff, diff, canFork: canFork && !forkWhy, openFork: () => fork(forkStep), row });
  const step = (by: 1 | -1): void => {
    const next = Math.max(1, Math.min(run.steps.length, (chosen?.run.id === run.id ? chosen.step : 0) + by));
    lookAtRow(run.id, `${run.id}/${next}`);
  };
  const actions = canFork && <RecordActions run={run} session={followed.session} forkWhy={forkWhy} onFork={() => fork(forkStep)} />;
  return (
    <div class="run-page">
      <Head run={stood} header={followed.header} now={time} at={looking.at} isWall={looking.isWall} />
      {looking.at !== null ? (
        <PastStrip run={run} at={looking.at} />
      ) : (
        <WaitStrip run={run} session={followed.session} now={now.value} send={followed.send} />
      )}
      {looking.at === null && <ConditionStrip run={run} />}
      {looking.at !== null ? (
        <TravelBar run={run} at={looking.at}>{actions}</TravelBar>
      ) : (
        <ControlBar run={run} send={followed.send}>{actions}</ControlBar>
      )}
      <div class="run-split">
        <div class="run-main">
          <Timeline store={followed.store} run={run} effectsOf={effectsOf} now={time} at={looking.at} isWall={looking.isWall} current={row} />
          {hasDock && <EventDock events={followed.events} at={looking.at} chosen={chosen} />}
        </div>
        <Rail followed={followed} run={stood} chosen={chosen} tab={looking.tab} at={looking.at} isDiff={isDiff} onStep={step} effectsOf={effectsOf} />
        {forkAt !== null && <ForkForm key={forkAt} run={run} step={forkAt} session={followed.session} onClose={() => fork(null)} />}
      </div>
    </div>
  );
}

/** Without a row of its own the page shows the newest step, or the one that had ended at the moment. */
function defaultRow(run: RunView, looking: Looking): string {
  const number = looking.at === null ? run.steps.at(-1)?.number : stepEndedAt(run, looking.at);
  return number ? `${run.id}/${number}` : "";
}

/** The run, step and call that a row's id names: `run/5`, `run/5.2`, `run/2/child/3`. */
function chosenOf(row: string, run: RunView, followed: Followed, at: number | null): Chosen | null {
  const parts = row.split("/");
  const last = parts.at(-1) ?? "";
  const match = /^(\d+)(?:\.(\d+))?×?$/.exec(last);
  if (!match) return null;
  const id = parts.at(-2) ?? "";
  const known = id === run.id ? run : followed.store.run(id);
  if (!known) return null;
  const of = id === run.id || at === null ? known : standAt(known, at);
  const step = Number(match[1]);
  const call = match[2] ? of.steps.find((one) => one.number === step)?.calls[Number(match[2]) - 1] : undefined;
  return { run: of, step, callId: call?.id ?? "" };
}

/** The step that a fork decides anew: the one after what is looked at in time travel, else the current one. */
function forkStepOf(run: RunView, looking: Looking, chosen: Chosen | null): number {
  const last = run.steps.at(-1)?.number ?? 1;
  if (looking.at !== null) return Math.min(last, stepEndedAt(run, looking.at) + 1);
  return chosen && chosen.run.id === run.id ? Math.min(last, chosen.step) : last;
}

function PastStrip({ run, at }: { run: RunView; at: number }) {
  const step = stepEndedAt(run, at);
  const when = formatTime(at, { now: Date.now() });
  return (
    <CallStrip
      tone="idle"
      glyph="timer"
      title={step ? `The run as it stood after step ${step}, at ${when}` : `The run as it stood at ${when}`}
      note="Nothing below is live. Controls are off until you are back."
      actions={
        <Button hint="Esc" onClick={() => travelTo(null)}>
          Back to now
        </Button>
      }
    />
  );
}

function TravelBar({ run, at, children }: { run: RunView; at: number; children: preact.ComponentChildren }) {
  return (
    <div class="run-controls" role="toolbar" aria-label="Time travel">
      <Button small icon="left" label="A step back" onClick={() => travelTo(nextStop(run, at, -1))} />
      <Button small icon="right" label="A step on" onClick={() => travelTo(nextStop(run, at, 1))} />
      <span class="soft whole travel-place">
        step <b>{stepEndedAt(run, at)}</b> of {run.steps.length}
      </span>
      <i class="rule" />
      <span class="faint cut">
        Drag the line, or press <kbd>,</kbd> <kbd>.</kbd>
      </span>
      <span class="grow" />
      {children}
    </div>
  );
}

/** A run that goes on only when somebody mends something. */
function ConditionStrip({ run }: { run: RunView }) {
  if (isEnd(run.status)) return null;
  if (run.condition === "blocked") {
    return <CallStrip tone="failed" glyph="blocked" title="Blocked: the code that serves this run is not the code that began it" note="It goes on by itself when a worker with the right code is back." />;
  }
  if (run.condition === "interrupted") {
    return <CallStrip tone="idle" glyph="interrupted" title="Interrupted: no worker runs it now" note="It goes on by itself when a worker takes it." />;
  }
  return null;
}

/** A screen reader hears what became of a control that was sent here. */
function useFatesAnnounced(run: RunView): void {
  const told = useRef(new Set<string>());
  useEffect(() => {
    for (const control of run.controls) {
      const fate = fateOf(control);
      if (control.sentAt === null || !fate.isSettled || told.current.has(control.key)) continue;
      told.current.add(control.key);
      announce(`${controlName(control.type)}: ${fate.text}`);
    }
  }, [run.controls]);
}

interface KeyContext {
  run: RunView;
  followed: Followed;
  looking: Looking;
  isDiff: boolean;
  diff: (isOn: boolean) => void;
  canFork: boolean;
  openFork: () => void;
  row: string;
}

function usePageKeys({ run, followed, looking, isDiff, diff, canFork, openFork, row }: KeyContext): void {
  const why = whysOf(run);
  const past = looking.at === null ? "" : "Controls are off in the past";
  const focus = (): void => document.querySelector<HTMLElement>(".timeline-rows [role=row][tabindex='0']")?.focus();
  const steps = run.steps.length ? "" : "There is no step yet";
  const press = (text: string): void => {
    const all = [...document.querySelectorAll<HTMLButtonElement>(".run-controls button")];
    all.find((one) => one.textContent?.startsWith(text))?.click();
  };
  const bindings = [
    { keys: "j", does: "Go into the steps", run: focus, isMovement: true },
    { keys: "k", does: "Go into the steps ", run: focus, isMovement: true },
    { keys: ",", does: "A step back in time", why: steps, run: () => travelTo(nextStop(run, looking.at, -1)), isMovement: true },
    { keys: ".", does: "A step on in time", why: looking.at === null ? "This is now" : "", run: () => travelTo(nextStop(run, looking.at, 1)), isMovement: true },
    { keys: "Escape", does: "Back to now", why: looking.at === null ? "This is now" : "", run: () => travelTo(null) },
    { keys: "End", does: "Follow the run", run: () => dispatchEvent(new Event("run-follow")) },
    { keys: "w", does: looking.isWall ? "Show working time" : "Show the wall clock", run: () => setWall(!looking.isWall) },
    { keys: "d", does: isDiff ? "Show the whole prompt" : "Show the prompt as a difference to the step before", run: () => diff(!isDiff) },
    { keys: "m", does: "Message the run", why: past || why.steer, run: () => press("Message") },
    {
      keys: "⇧P",
      does: why.resume ? "Pause the run" : "Resume the run",
      why: past || (why.resume ? why.pause : ""),
      run: () => void followed.send(why.resume ? "pause" : "resume"),
    },
    { keys: "⇧C", does: "Cancel the run…", why: past || why.cancel, run: () => press("Cancel") },
    ...(canFork ? [{ keys: "f", does: "Fork from here", run: openFork }] : []),
  ];
  void row;
  useKeys("Run", bindings);
}
