import { useState } from "preact/hooks";

import { activeTime } from "../../model/bars/rows.ts";
import type { Moment, RunView } from "../../model/events/views.ts";
import { formatCount, formatDuration, formatExact, formatMoney, formatTime, isoTime, shortId } from "../../model/formats.ts";
import { stateOfRun } from "../../model/status.ts";
import { Segments } from "../../parts/button.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { CopyButton } from "../../parts/states.tsx";
import type { RunHeader } from "../../wire/types.ts";
import { setWall } from "./view.ts";
import { budgetOf } from "./words.ts";

/** What the run is: its state and goal on one line, its facts below. They are those of `run`, which may be a past one. */
export function Head(props: { run: RunView; header: RunHeader | null; now: Moment; at: Moment | null; isWall: boolean }) {
  const { run, header, now } = props;
  const [isWhole, unfold] = useState(false);
  const state = stateOfRun(run);
  const said = [state.word, state.on, state.code].filter(Boolean).join(", ");
  return (
    <header class="run-head">
      <div class="run-goal">
        <Glyph name={state.glyph} label={said} />
        <h2 class={isWhole ? "is-whole" : "cut"}>
          <button type="button" title={run.goal} aria-expanded={isWhole} onClick={() => unfold(!isWhole)}>
            {run.goal || (run.kind ? `A ${run.kind} run without a goal` : "Run")}
          </button>
        </h2>
        {state.code && <code class="is-failed whole">{state.code}</code>}
        <span class="grow" />
        <span class="run-time-mode">
          <Segments
            label="Time"
            value={props.isWall ? "wall" : "working"}
            choices={[
              { value: "working", text: "Working time" },
              { value: "wall", text: "Wall clock" },
            ]}
            onChange={(value) => setWall(value === "wall")}
          />
        </span>
        <CopyButton text={location.href} label="Copy link" />
      </div>
      <Facts {...props} run={run} header={header} now={props.at ?? now} />
    </header>
  );
}

function Facts({ run, header, now, at }: { run: RunView; header: RunHeader | null; now: Moment; at: Moment | null }) {
  const calls = run.steps.reduce((sum, step) => sum + step.calls.length, 0);
  const budget = budgetOf(run, header);
  const share = budget ? Math.min(1, budget.used / budget.limit) : 0;
  const shown = at ?? run.startedAt;
  return (
    <div class="run-facts">
      {(run.agent || run.model) && (
        <span>
          <b>{run.agent}</b>
          {run.model && ` · ${run.model}`}
        </span>
      )}
      {shown !== null && (
        <span title={isoTime(shown)}>
          {at === null ? "started" : "at"} <b>{formatTime(shown, { now: Date.now() })}</b>
        </span>
      )}
      <ActiveFact run={run} now={now} />
      <span>
        <b>{formatCount(run.steps.length)}</b> {run.steps.length === 1 ? "step" : "steps"}
        {calls > 0 && (
          <>
            {" · "}
            <b>{formatCount(calls)}</b> {calls === 1 ? "call" : "calls"}
          </>
        )}
        {run.children.length > 0 && (
          <>
            {" · "}
            <b>{run.children.length}</b> {run.children.length === 1 ? "child" : "children"}
          </>
        )}
      </span>
      {run.tokens.total > 0 && (
        <span title={`${formatExact(run.tokens.prompt)} in, ${formatExact(run.tokens.completion)} out, ${formatExact(run.tokens.cached)} cached`}>
          <b>{formatCount(run.tokens.total)}</b> tokens
        </span>
      )}
      {(run.usd > 0 || budget) && (
        <span title={formatMoney(run.usd, "exact")}>
          <b>{formatMoney(run.usd)}</b>
          {budget && ` of ${formatMoney(budget.limit)}`}
          {budget && (
            <span class="meter" aria-hidden="true">
              <i class={share >= 0.6 ? "hot" : undefined} style={{ width: `${share * 100}%` }} />
            </span>
          )}
        </span>
      )}
      {header?.rehearsal && <span class="tag is-tinted-running">effects held back</span>}
      {header?.forked_from?.id && (
        <span>
          fork of{" "}
          <a class="link" href={`/tasks/${header.forked_from.id}`}>
            {shortId(header.forked_from.id)}
          </a>{" "}
          at step {header.forked_from.step}
          {" · "}
          <a class="link" href={`/tasks/${header.forked_from.id}/compare/${run.id}`}>
            compare
          </a>
        </span>
      )}
      {run.identity.session && (
        <span>
          session{" "}
          <a class="link" href={`/sessions/${encodeURIComponent(run.identity.session)}`}>
            {run.identity.session}
          </a>
        </span>
      )}
      <span class="run-id" title={run.id}>
        <code>{shortId(run.id)}</code>
        <CopyButton text={run.id} label="Copy the run's id" />
      </span>
    </div>
  );
}

function ActiveFact({ run, now }: { run: RunView; now: Moment }) {
  if (run.startedAt === null) return null;
  const active = activeTime(run, now);
  const whole = (run.endedAt ?? now) - run.startedAt;
  return (
    <span>
      active <b>{formatDuration(active)}</b>
      {whole > active * 1.2 + 2_000 && ` of ${formatDuration(whole)}`}
    </span>
  );
}
