import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { barsOfStep, spansOf } from "../../model/bars/bars.ts";
import { activeTime } from "../../model/bars/rows.ts";
import { isEnd } from "../../model/events/run-state.ts";
import { RunStore } from "../../model/events/store.ts";
import type { RunView } from "../../model/events/views.ts";
import { formatChange, formatCount, formatDuration, formatMoney, formatPercent, shortId } from "../../model/formats.ts";
import { stateOf } from "../../model/status.ts";
import { extentOf, timeMap } from "../../model/time-map.ts";
import { Button } from "../../parts/button.tsx";
import { Tag } from "../../parts/figures.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { Icon } from "../../parts/icon.tsx";
import { Disconnected, Failure, Notice, SkeletonRows } from "../../parts/states.tsx";
import { now } from "../../shell/clock.ts";
import { useKeys } from "../../shell/keys.ts";
import type { PageProps } from "../../shell/pages.ts";
import { useQuery } from "../../shell/router.ts";
import { useHeading } from "../../shell/title.ts";
import { call } from "../../wire/client.ts";
import { useAsked } from "../../wire/resource.ts";
import { hasCapability, runtime } from "../../wire/runtime.ts";
import type { CompareAnswer, RunHeader, StepRow } from "../../wire/types.ts";
import { FreezeButton } from "../run/record-actions.tsx";
import { ComparedRows, Shared, StepDifference } from "./rows.tsx";
import "./compare.css";

const AGAIN_MS = 2_000;
const ROWS = 500;

interface Both {
  readonly answer: CompareAnswer;
  readonly runs: readonly [RunView, RunView];
  readonly shared: readonly StepRow[];
}

/** Two runs side by side, with their first difference. */
export default function Compare({ rest }: PageProps) {
  const [id = "", , other = ""] = rest.split("/");
  const [session] = useQuery("session");
  const [isOver, over] = useState(false);
  const [asked, reload] = useAsked((signal) => both(id, other, session, signal), `${id} ${other} ${session}`, {
    everyMs: isOver ? 0 : AGAIN_MS,
    when: hasCapability("run_fork"),
  });
  const answer = asked.state === "ready" ? asked.data.answer : null;
  useEffect(() => {
    if (answer?.runs.every((run) => isEnd(run.status as never))) over(true);
  }, [answer]);
  const name = answer?.runs[0]?.agent_name || "run";
  useHeading(`${shortId(id).replace("…", "")} and ${shortId(other).replace("…", "")}`, [
    { text: "Tasks", href: "/tasks" },
    { text: name, href: `/tasks/${encodeURIComponent(id)}` },
  ]);
  if (asked.state === "disconnected") return <Disconnected />;
  if (runtime.value && !hasCapability("run_fork")) {
    return (
      <Notice icon="fork" title="This runtime cannot compare runs" actions={<a class="button primary" href={`/tasks/${encodeURIComponent(id)}`}>Open the run</a>}>
        It does not have <code>run_fork</code>.
      </Notice>
    );
  }
  if (asked.state === "loading") return <SkeletonRows noun="the comparison" />;
  if (asked.state === "failed") return <Failure noun="comparison" error={asked.error} onRetry={reload} />;
  return <Compared both={asked.data} session={session} />;
}

/** The comparison, and both runs with their times for the strips. */
async function both(id: string, other: string, session: string, signal: AbortSignal): Promise<Both> {
  const options = session ? { session, signal } : { signal };
  const [answer, left, right] = await Promise.all([
    call("runs.compare", { id, other, limit: ROWS }, options),
    call("runs.steps", { id, limit: 1_000 }, options),
    call("runs.steps", { id: other, limit: 1_000 }, options),
  ]);
  const store = new RunStore();
  store.noteHistory(left as never);
  store.noteHistory(right as never);
  const shared = left.steps.slice(0, answer.shared_steps);
  return { answer, runs: [store.run(id) as RunView, store.run(other) as RunView], shared };
}

function Compared({ both: { answer, runs, shared }, session }: { both: Both; session: string }) {
  const [left, right] = answer.runs as [RunHeader, RunHeader];
  const [current, go] = useState(-1);
  const body = useRef<HTMLDivElement>(null);
  const different = useMemo(() => answer.rows.flatMap((row, at) => (row.same ? [] : [at])), [answer.rows]);
  const first = different[0] ?? -1;
  const shown = current >= 0 ? current : first;
  const next = (): void => {
    const to = different.find((at) => at > (current < 0 ? first : current)) ?? first;
    if (to < 0) return;
    go(to);
    body.current?.querySelector(`[data-row="${to}"]`)?.scrollIntoView({ block: "center" });
  };
  const none = different.length ? "" : "Nothing differs";
  useKeys("Comparison", [{ keys: "n", does: "Go to the next difference", run: next, why: none }]);
  const row = shown >= 0 ? answer.rows[shown] : undefined;
  return (
    <div ref={body} class="compare">
      <Figures left={left} right={right} runs={runs} rows={answer.rows} />
      <Strips left={left} right={right} runs={runs} session={session} />
      <Shared steps={shared} forkedAt={right.forked_from?.step ?? 0} />
      {row ? (
        <div class="first-difference">
          <Icon name="fork" />
          <span>{firstWords(answer)}</span>
          <span class="grow" />
          <Button small kind="quiet" hint="N" why={none || undefined} onClick={next}>
            Next difference
          </Button>
        </div>
      ) : (
        <p class="first-difference is-none">
          <Glyph name="complete" />
          {isEnd(left.status as never) && isEnd(right.status as never) ? "The two runs are the same, step by step" : "No difference until now"}
        </p>
      )}
      <ComparedRows rows={answer.rows} current={shown} onPick={go} />
      {answer.more && <p class="compare-note">More steps follow; the first {answer.rows.length} are shown.</p>}
      {row?.left && row.right && <StepDifference key={`${row.left.step} ${row.right.step}`} row={row} ids={[left.id, right.id]} session={session} />}
    </div>
  );
}

/** "First difference: step 5, `count` of `place_order`". */
function firstWords(answer: CompareAnswer) {
  const row = answer.rows.find((one) => !one.same);
  const change = row?.changes?.[0];
  const step = row?.right?.step ?? row?.left?.step ?? answer.difference?.step;
  const tool = row?.left?.calls[0]?.tool ?? row?.right?.calls[0]?.tool ?? "";
  const path = /^decision\.args\.(.+)$/.exec(change?.path ?? "")?.[1];
  if (path && tool) {
    return (
      <>
        First difference: step {step}, <code>{path}</code> of <code>{tool}</code>
      </>
    );
  }
  return (
    <>
      First difference: step {step}
      {answer.difference?.what ? `, ${answer.difference.what}` : ""}
    </>
  );
}

// ── Figures ───────────────────────────────────────────────────────────────────────────────────────────────────────────

function Figures({ left, right, runs, rows }: { left: RunHeader; right: RunHeader; runs: Both["runs"]; rows: CompareAnswer["rows"] }) {
  const tokens = (run: RunHeader): number => run.totals.prompt_tokens + run.totals.completion_tokens;
  const active = runs.map((run) => activeTime(run, now.peek())) as [number, number];
  const held = rows.reduce((sum, row) => sum + (row.right?.calls.filter((one) => one.status === "held_back").length ?? 0), 0);
  const ran = (side: "left" | "right"): number =>
    rows.reduce((sum, row) => sum + (row[side]?.calls.filter((one) => one.status === "done" && ["write", "external", "stateful"].includes(one.side_effect)).length ?? 0), 0);
  return (
    <dl class="deltas">
      <Delta name="Outcome" left={outcome(left)} right={outcome(right)} />
      <Delta name="Steps" left={formatCount(left.totals.steps)} right={formatCount(right.totals.steps)} change={formatChange(right.totals.steps - left.totals.steps, formatCount)} />
      <Delta name="Tokens" left={formatCount(tokens(left))} right={formatCount(tokens(right))} change={share(tokens(left), tokens(right))} worse={tokens(right) - tokens(left)} />
      {(left.totals.usd > 0 || right.totals.usd > 0) && (
        <Delta name="Cost" left={formatMoney(left.totals.usd)} right={formatMoney(right.totals.usd)} change={share(left.totals.usd, right.totals.usd)} worse={right.totals.usd - left.totals.usd} />
      )}
      <Delta name="Active" left={formatDuration(active[0])} right={formatDuration(active[1])} change={share(active[0], active[1])} worse={active[1] - active[0]} />
      <Delta name="Effects" left={`${ran("left")} run`} right={held ? `${held} held back` : `${ran("right")} run`} />
    </dl>
  );
}

function outcome(run: RunHeader): string {
  return stateOf({ status: run.status, condition: run.condition ?? "", errorClass: run.error_class ?? "" }).word.toLowerCase();
}

function share(before: number, after: number): string {
  if (before === after) return "";
  return before > 0 ? formatChange((after - before) / before, formatPercent) : "";
}

function Delta(props: { name: string; left: string; right: string; change?: string; worse?: number }) {
  const tone = !props.change || !props.worse ? "soft" : props.worse > 0 ? "is-failed" : "is-complete";
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>
        <span class="faint">{props.left}</span>
        <Icon name="right" small />
        <b>{props.right}</b>
        {props.change && <span class={tone}>{props.change}</span>}
      </dd>
    </div>
  );
}

// ── Strips ────────────────────────────────────────────────────────────────────────────────────────────────────────────

function Strips({ left, right, runs, session }: { left: RunHeader; right: RunHeader; runs: Both["runs"]; session: string }) {
  const active = runs.map((run) => Math.max(1, activeTime(run, now.peek()))) as [number, number];
  const most = Math.max(...active);
  return (
    <div class="strips">
      <Strip header={left} run={runs[0]} share={active[0] / most} other={right} session={session} />
      <div class="middle" />
      <Strip header={right} run={runs[1]} share={active[1] / most} other={left} session={session} />
    </div>
  );
}

const UNITS = 1_000;

/** A run as one row of bars. Both are on one scale of working time. */
function Strip({ header, run, share: part, other, session }: { header: RunHeader; run: RunView; share: number; other: RunHeader; session: string }) {
  const state = stateOf({ status: header.status, condition: header.condition ?? "", errorClass: header.error_class ?? "" });
  const at = header.forked_from?.id === other.id ? header.forked_from.step : 0;
  const bars = run.steps.flatMap((step) => barsOfStep(step, () => "").map((bar) => ({ bar, step: step.number })));
  const map = timeMap(spansOf(bars.map(({ bar }) => bar)), { width: UNITS, now: run.endedAt ?? now.peek() });
  const forked = at ? run.steps.find((step) => step.number >= at) : undefined;
  const served = at ? (forked ? map.x(forked.startedAt) : UNITS) : 0;
  const percent = (units: number): string => `${((units / UNITS) * part * 100).toFixed(2)}%`;
  return (
    <div class="strip-side">
      <p class="strip-name">
        {at > 0 && <Icon name="fork" />}
        <Glyph name={state.glyph} label={state.word} />
        <a class="cut" href={`/tasks/${encodeURIComponent(header.id)}${session ? `?session=${encodeURIComponent(session)}` : ""}`}>
          <b>
            {header.agent_name || "run"} · {shortId(header.id).replace("…", "")}
          </b>
        </a>
        {header.model && (header.model === other.model ? <span class="faint cut">{header.model}</span> : <Tag tone="running">{header.model}</Tag>)}
        {at > 0 && <span class="faint whole">fork at step {at}</span>}
        <span class="grow" />
        {at > 0 && <FreezeButton run={run} session={session} text="Freeze fork as test" />}
      </p>
      <div class="track" role="img" aria-label={`Working time ${formatDuration(activeTime(run, now.peek()))}`}>
        {served > 0 && (
          <span class="served" style={{ width: percent(served) }}>
            from the record
          </span>
        )}
        {bars
          .filter(({ step }) => step >= at)
          .map(({ bar }, index) => {
            const extent = extentOf(map, bar.start, bar.end ?? now.peek());
            return <i key={index} class={`bar bar-${bar.kind}`} style={{ left: percent(extent.x), width: percent(extent.width) }} />;
          })}
      </div>
    </div>
  );
}

