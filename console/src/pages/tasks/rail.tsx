import { formatCount, formatDuration, formatMoney } from "../../model/formats.ts";
import type { InboxItem } from "../../model/inbox.ts";
import { answerOfResult } from "../../model/conversation.ts";
import { ButtonLink } from "../../parts/button.tsx";
import { Facts } from "../../parts/figures.tsx";
import { State } from "../../parts/glyph.tsx";
import { Id, Moment } from "../../parts/moments.tsx";
import { Button } from "../../parts/button.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { Text } from "../../parts/rich.tsx";
import { PartFailure, SkeletonRows } from "../../parts/states.tsx";
import { useCall } from "../../wire/resource.ts";
import type { TaskDetail } from "../../wire/types.ts";
import { goalOf, runLink, stateOfRow, waitWords } from "./table.tsx";

/** The task under the keyboard: what it is, what it waits for, and what each of its steps cost. It fails alone. */
export function TaskRail({ id, wait, orphan, onClose }: { id: string; wait: InboxItem | undefined; orphan: string; onClose: () => void }) {
  const [asked, reload] = useCall("tasks.get", { id }, { everyMs: 5_000 });
  return (
    <>
      <PaneHead title="Summary">
        <ButtonLink small href={runLink({ id })}>
          Open run
        </ButtonLink>
        <Button small kind="quiet" icon="close" label="Close" onClick={onClose} />
      </PaneHead>
      {asked.state === "loading" && <SkeletonRows noun="the task" rows={4} />}
      {asked.state === "failed" && <PartFailure noun="The task" error={asked.error} onRetry={reload} />}
      {asked.state === "ready" && <Detail detail={asked.data} wait={wait} orphan={orphan} />}
    </>
  );
}

function Detail({ detail, wait, orphan }: { detail: TaskDetail; wait: InboxItem | undefined; orphan: string }) {
  const { task, cost, parent_session: session, parent_task: parent } = detail;
  const state = stateOfRow(task, wait);
  const answer = detail.result_inline ? answerOfResult(detail.result_inline) : "";
  return (
    <>
      <div class="section">
        <p class="task-rail-goal">{goalOf(task)}</p>
        <Facts
          rows={[
            ["Status", <State name={state.glyph} word={state.word} />],
            ["Waits for", wait ? <a class="link" href={`/inbox/${encodeURIComponent(wait.token)}`}>{waitWords(state, wait) || "a person"}</a> : undefined],
            ["Failed", state.code ? <code>{state.code}</code> : undefined],
            ["Orphan", orphan],
            ["Run", <Id id={task.id} href={runLink(task)} />],
            ["Agent", task.agent_name ? <a class="link" href={`/agents/${encodeURIComponent(task.agent_name)}`}>{task.agent_name}</a> : undefined],
            ["Session", <a class="link" href={`/sessions/${encodeURIComponent(session.session_id)}`}>{session.session_id}</a>],
            ["Parent", parent ? <Id id={parent.task_id} href={runLink({ id: parent.task_id })} /> : undefined],
            ["Kind", task.kind],
            ["Priority", task.priority === 0 ? undefined : String(task.priority)],
            ["Started", <Moment at={task.started_at} />],
            ["Active", formatDuration(task.duration_ms)],
            ["Tools", String(task.tool_count)],
            ["Tags", task.tags?.join(", ")],
          ]}
        />
      </div>
      <Cost detail={detail} />
      {answer && (
        <div class="section">
          <h3>Answer</h3>
          <Text text={answer} />
        </div>
      )}
      {cost.per_step.length === 0 && cost.total_tokens === 0 && <p class="task-quiet">No model was called yet.</p>}
    </>
  );
}

/** A bar a step: what its model calls cost, or used where there is no price. */
function Cost({ detail }: { detail: TaskDetail }) {
  const { cost, task } = detail;
  if (cost.per_step.length === 0 && cost.total_tokens === 0) return null;
  const isPriced = cost.usd > 0;
  const most = Math.max(...cost.per_step.map((step) => (isPriced ? step.usd : step.tokens)), 1e-9);
  return (
    <section class="section" aria-label="Cost per step">
      <h3>
        Cost {isPriced && <b>{formatMoney(cost.usd, "run")}</b>}{" "}
        <span class="faint">
          {formatCount(cost.total_tokens)} tokens: {formatCount(cost.prompt_tokens)} in, {formatCount(cost.output_tokens)} out
        </span>
      </h3>
      <ul class="task-costs">
        {cost.per_step.map((step) => (
          <li key={step.step_index}>
            <a href={`${runLink(task)}?step=${step.step_index + 1}`}>step {step.step_index + 1}</a>
            <i aria-hidden="true">
              <i style={{ width: `${((isPriced ? step.usd : step.tokens) / most) * 100}%` }} />
            </i>
            <span>{isPriced ? formatMoney(step.usd, "step") : formatCount(step.tokens)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
