import { useEffect, useRef, useState } from "preact/hooks";

import { activeTime } from "../../model/bars/rows.ts";
import { laneOf } from "../../model/bars/lanes.ts";
import { leastWidth } from "../../model/bars/bars.ts";
import { conversationOf } from "../../model/conversation.ts";
import { isEnd } from "../../model/events/run-state.ts";
import type { RunView } from "../../model/events/views.ts";
import { formatBytes, formatCount, formatDuration, formatMoney } from "../../model/formats.ts";
import { openPauses, stateOfRun } from "../../model/status.ts";
import { Facts } from "../../parts/figures.tsx";
import { Field, Select } from "../../parts/field.tsx";
import { State } from "../../parts/glyph.tsx";
import { Icon } from "../../parts/icon.tsx";
import { Deadline, Moment } from "../../parts/moments.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { now } from "../../shell/clock.ts";
import { call } from "../../wire/client.ts";
import { connection, hasScope } from "../../wire/connection.ts";
import { asWireError } from "../../wire/error.ts";
import type { Conversation } from "./source.ts";
import { typedAnswer, TypedAnswer } from "./turns.tsx";

/** Beside the conversation: its newest run, what waits, what the next message is sent with, what came of it. */
export function Rail({ talk }: { talk: Conversation }) {
  const run = talk.turns.at(-1);
  return (
    <>
      {run && <RunSection run={run} />}
      {run && <Waits run={run} />}
      <Overrides session={talk.session} />
      {run && <SoFar run={run} />}
      {run && <Artifacts run={run} />}
    </>
  );
}

function RunSection({ run }: { run: RunView }) {
  const at = isEnd(run.status) ? (run.endedAt ?? now.peek()) : now.value;
  const isStreaming = conversationOf(run).isAnswering;
  const state = stateOfRun(run);
  const link = `/tasks/${encodeURIComponent(run.id)}?session=${encodeURIComponent(run.identity.session)}`;
  const used = run.steps.findLast((step) => step.modelCalls.length > 0)?.modelCalls.at(-1)?.tokens.prompt ?? 0;
  const { tenant = "", user = "" } = connection.value ?? {};
  return (
    <section aria-label="Run">
      <PaneHead title="Run">
        <a class="link" href={link}>
          Open
        </a>
      </PaneHead>
      <div class="rail-inside">
        <Strip run={run} at={at} />
        <Facts
          rows={[
            ["State", <State key="s" name={state.glyph} word={isStreaming ? "Streaming" : state.word + (state.on ? `: ${state.on}` : "")} />],
            ["Started", run.startedAt !== null && <Moment at={run.startedAt} />],
            ["Active", run.startedAt !== null && formatDuration(activeTime(run, at))],
            ["Tokens", run.tokens.total > 0 && formatCount(run.tokens.total)],
            ["Cost", run.usd > 0 && formatMoney(run.usd)],
            ["Context", run.windowTokens > 0 && used > 0 && <Window used={used} of={run.windowTokens} />],
            ["Model", run.model && <code>{run.model}</code>],
            ["Identity", `${tenant} / ${user} / ${run.identity.session}`],
            ["Scope", hasScope("admin") ? "admin" : "owner_user"],
          ].map(([name, value]) => [String(name), value || undefined] as const)}
        />
      </div>
    </section>
  );
}

function Window({ used, of }: { used: number; of: number }) {
  return (
    <span class="window">
      {formatCount(used)} of {formatCount(of)}
      <span class="share-track" aria-hidden="true">
        <i class={used / of > 0.8 ? "hot" : undefined} style={{ width: `${Math.min(100, (used / of) * 100)}%` }} />
      </span>
    </span>
  );
}

function Strip({ run, at }: { run: RunView; at: number }) {
  const from = run.startedAt ?? run.steps[0]?.startedAt;
  if (from === undefined || run.steps.length === 0) return null;
  const whole = Math.max(1, at - from);
  const place = (moment: number): number => Math.max(0, Math.min(100, ((moment - from) / whole) * 100));
  return (
    <div class="track rail-strip" aria-hidden="true">
      {laneOf(run, { from, to: at, nearest: whole / 300 }).bars.map((bar, index) => {
        const fill = bar.end === null && !["wait", "await", "lost", "child"].includes(bar.kind) ? "live" : bar.kind;
        const left = place(bar.start);
        return <i key={index} class={`bar bar-${fill}`} style={{ left: `${left}%`, width: `${place(bar.end ?? at) - left}%`, minWidth: `${Math.min(4, leastWidth(bar.kind))}px` }} />;
      })}
    </div>
  );
}

function Waits({ run }: { run: RunView }) {
  const open = openPauses(run).filter((pause) => pause.reason !== "external_event");
  if (open.length === 0) return null;
  return (
    <section class="rail-section" aria-label="Waits for a person">
      <PaneHead title="Waits for a person" count={open.length} />
      {open.map((pause) => (
        <a key={pause.token} class="rail-inside rail-wait" href={`/inbox/${encodeURIComponent(pause.token)}`}>
          <b>{pause.tool ? <code>{pause.tool}</code> : pause.reason === "await_input" ? "an answer" : pause.reason.replaceAll("_", " ")}</b>
          <Deadline deadline={pause.deadline} opened={pause.openedAt} />
        </a>
      ))}
    </section>
  );
}

function SoFar({ run }: { run: RunView }) {
  const said = conversationOf(run);
  const typed = isEnd(run.status) ? null : typedAnswer(said.answer);
  if (!typed) return null;
  return (
    <section class="rail-section" aria-label="Answer so far">
      <PaneHead title="Answer so far" />
      <div class="rail-inside small">
        <TypedAnswer value={typed} />
      </div>
    </section>
  );
}

function Artifacts({ run }: { run: RunView }) {
  if (run.artifacts.length === 0) return null;
  return (
    <section class="rail-section" aria-label="Artifacts">
      <PaneHead title="Artifacts" count={run.artifacts.length} />
      <ul class="rail-inside small">
        {run.artifacts.map((one) => (
          <li key={one.id}>
            <a class="link" href={`/artifacts?artifact=${encodeURIComponent(one.id)}`}>
              <Icon name="artifacts" small /> {one.mime || "artifact"}
            </a>{" "}
            {one.size !== null && <span class="faint">{formatBytes(one.size)}</span>}
          </li>
        ))}
      </ul>
    </section>
  );
}

interface Wanted {
  effort: string;
  temperature: string;
  most: string;
  prompt: string;
}

const NOTHING: Wanted = { effort: "", temperature: "", most: "", prompt: "" };
const AFTER_MS = 400;

/** What the next message is sent with: the runtime keeps it for the session, and says so. */
function Overrides({ session }: { session: string }) {
  const [wanted, want] = useState<Wanted>(NOTHING);
  const [fate, tell] = useState({ text: "", isBad: false });
  const isTouched = useRef(false);
  const problem = problemOf(wanted);
  useEffect(() => {
    if (!isTouched.current || problem) return;
    const timer = setTimeout(() => {
      const overrides = {
        session_id: session,
        ...(wanted.effort ? { reasoning_effort: wanted.effort } : {}),
        ...(wanted.temperature ? { temperature: Number(wanted.temperature) } : {}),
        ...(wanted.most ? { max_tokens: Number(wanted.most) } : {}),
        ...(wanted.prompt ? { system_prompt_override: wanted.prompt } : {}),
      };
      call("runs.set_overrides", { overrides }, { session }).then(
        () => tell({ text: wanted === NOTHING ? "As configured" : "Kept for the next message", isBad: false }),
        (error: unknown) => {
          const said = asWireError(error);
          tell({ text: `Not kept. ${said.code}: ${said.message}`, isBad: true });
        },
      );
    }, AFTER_MS);
    return () => clearTimeout(timer);
  }, [wanted, problem, session]);
  const change = (part: Partial<Wanted>): void => {
    isTouched.current = true;
    tell({ text: "", isBad: false });
    want((was) => ({ ...was, ...part }));
  };
  const reset = (): void => {
    isTouched.current = true;
    want(NOTHING);
  };
  return (
    <section class="rail-section" aria-label="Next message">
      <PaneHead title="Next message">
        {wanted !== NOTHING && (
          <button type="button" class="fold-button" onClick={reset}>
            Reset
          </button>
        )}
      </PaneHead>
      <div class="rail-inside overrides">
        <Field label="Effort">
          {(parts) => (
            <Select
              {...parts}
              label="Effort"
              value={wanted.effort}
              choices={[["", "Default"], ["low", "Low"], ["medium", "Medium"], ["high", "High"]]}
              onChange={(effort) => change({ effort })}
            />
          )}
        </Field>
        <Field label="Temperature" problem={problem === "temperature" ? "From 0 to 2" : undefined}>
          {(parts) => <input {...parts} class="input" inputMode="decimal" placeholder="as configured" value={wanted.temperature} onInput={(event) => change({ temperature: event.currentTarget.value.trim() })} />}
        </Field>
        <Field label="Max tokens" problem={problem === "most" ? "A whole number from 1" : undefined}>
          {(parts) => <input {...parts} class="input" inputMode="numeric" placeholder="as configured" value={wanted.most} onInput={(event) => change({ most: event.currentTarget.value.trim() })} />}
        </Field>
        <Field label="Instructions">
          {(parts) => <textarea {...parts} class="input" rows={2} placeholder="as configured" value={wanted.prompt} onInput={(event) => change({ prompt: event.currentTarget.value })} />}
        </Field>
        <p class={fate.isBad ? "is-failed small" : "faint small"} role="status">
          {fate.text}
        </p>
      </div>
    </section>
  );
}

function problemOf(wanted: Wanted): "" | "temperature" | "most" {
  const heat = Number(wanted.temperature);
  if (wanted.temperature && !(heat >= 0 && heat <= 2)) return "temperature";
  return wanted.most && !/^[1-9]\d*$/.test(wanted.most) ? "most" : "";
}
