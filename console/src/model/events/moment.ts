import { addTokens } from "./fold-steps.ts";
import { isEnd } from "./run-state.ts";
import {
  NO_TOKENS,
  type CallStatus,
  type ControlView,
  type Moment,
  type PauseView,
  type RunView,
  type StepStatus,
  type StepView,
  type ToolCall,
  type Wait,
} from "./views.ts";

/**
 * The run as it stood at a moment, cut from what is known of it now; steps that had ended stay the same objects.
 *
 * Text streams without times of its own, so a step that was not decided yet shows none.
 */
export function standAt(run: RunView, moment: Moment): RunView {
  const steps = run.steps.filter((step) => step.startedAt <= moment).map((step) => stepAt(step, moment, run.pauses));
  const paid = steps.flatMap((step) => step.modelCalls);
  const change = run.changes.findLast((one) => one.at <= moment);
  const status = change?.status ?? "pending";
  const isOver = isEnd(status);
  return {
    ...run,
    status,
    condition: isOver || moment >= lastMoment(run) ? run.condition : "",
    errorClass: change?.error ?? "",
    startedAt: before(run.startedAt, moment),
    endedAt: isOver ? (change?.at ?? null) : null,
    answer: isOver ? run.answer : null,
    changes: run.changes.filter((one) => one.at <= moment),
    steps,
    controls: run.controls.filter((one) => firstMoment(one) <= moment).map((one) => controlAt(one, moment)),
    pauses: run.pauses.filter((one) => one.openedAt <= moment).map((one) => settledAt(one, moment)),
    children: run.children.filter((child) => child.spawnedAt <= moment),
    artifacts: run.artifacts.filter((one) => one.at <= moment),
    notes: run.notes.filter((one) => one.at <= moment),
    tokens: isOver ? run.tokens : paid.reduce((sum, call) => addTokens(sum, call.tokens), NO_TOKENS),
    usd: isOver ? run.usd : paid.reduce((sum, call) => sum + call.usd, 0),
  };
}

/** The moments at which the run changed, in order and each once: where time travel stops. */
export function momentsOf(run: RunView): Moment[] {
  const found = run.steps.flatMap((step) => [step.startedAt, step.decidedAt, step.endedAt]);
  const known = found.filter((moment) => moment !== null);
  return [...new Set(known)].sort((a, b) => a - b);
}

/** The last moment that is known of a run; its end if it has ended. */
export function lastMoment(run: RunView): Moment {
  if (run.endedAt !== null) return run.endedAt;
  const step = run.steps[run.steps.length - 1];
  const change = run.changes[run.changes.length - 1];
  const ends = [run.startedAt ?? 0, change?.at ?? 0];
  if (step) ends.push(...stepMoments(step));
  return Math.max(...ends);
}

function stepMoments(step: StepView): Moment[] {
  const calls = step.calls.map((call) => call.endedAt ?? call.startedAt ?? call.askedAt);
  const waits = step.waits.map((wait) => wait.settledAt ?? wait.openedAt);
  return [step.endedAt ?? step.decidedAt ?? step.startedAt, ...calls, ...waits];
}

function stepAt(step: StepView, moment: Moment, pauses: readonly PauseView[]): StepView {
  if (step.endedAt !== null && step.endedAt <= moment) return step;
  const isDecided = step.decidedAt !== null && step.decidedAt <= moment;
  const waits = step.waits.filter((wait) => wait.openedAt <= moment).map((wait) => settledAt(wait, moment));
  return {
    ...step,
    status: statusAt(isDecided, waits),
    decision: isDecided ? step.decision : "",
    tool: isDecided ? step.tool : "",
    decidedAt: isDecided ? step.decidedAt : null,
    endedAt: null,
    reasoning: isDecided ? step.reasoning : "",
    text: isDecided ? step.text : "",
    preview: isDecided ? step.preview : "",
    modelCalls: step.modelCalls.filter((call) => call.endedAt <= moment),
    calls: step.calls.filter((call) => call.askedAt <= moment).map((call) => callAt(call, moment, pauses)),
    waits,
    children: step.children.filter((child) => child.spawnedAt <= moment),
    error: null,
  };
}

function statusAt(isDecided: boolean, waits: readonly Wait[]): StepStatus {
  if (waits.some((wait) => wait.settledAt === null)) return "waiting";
  return isDecided ? "running" : "deciding";
}

function callAt(call: ToolCall, moment: Moment, pauses: readonly PauseView[]): ToolCall {
  if (call.endedAt !== null && call.endedAt <= moment) return call;
  const hasStarted = call.startedAt !== null && call.startedAt <= moment;
  const isLost = call.lostAt !== null && call.lostAt <= moment;
  const status: CallStatus = isLost ? "unknown" : hasStarted ? "open" : "waiting";
  const asked = hasStarted ? undefined : pauses.find((pause) => pause.callId === call.id && pause.args !== undefined);
  return {
    ...call,
    status: call.endedAt === null && hasStarted ? call.status : status,
    startedAt: hasStarted ? call.startedAt : null,
    endedAt: null,
    lostAt: isLost ? call.lostAt : null,
    attempts: call.endedAt === null ? call.attempts : 0,
    args: asked ? asked.args : call.args,
    isEdited: hasStarted && call.isEdited,
    result: undefined,
    resultCut: null,
    error: null,
    progress: null,
  };
}

function settledAt<T extends Wait | PauseView>(wait: T, moment: Moment): T {
  if (wait.settledAt === null || wait.settledAt <= moment) return wait;
  return { ...wait, settledAt: null, decision: "", by: null };
}

function firstMoment(control: ControlView): Moment {
  return control.sentAt ?? control.receivedAt ?? control.settledAt ?? 0;
}

function controlAt(control: ControlView, moment: Moment): ControlView {
  if (control.settledAt !== null && control.settledAt <= moment) return control;
  const isReceived = control.receivedAt !== null && control.receivedAt <= moment;
  const isSettled = control.settledAt === null;
  return {
    ...control,
    outcome: isSettled ? control.outcome : isReceived ? "received" : "sent",
    receivedAt: isReceived ? control.receivedAt : null,
    settledAt: null,
    error: isSettled ? control.error : "",
    step: isSettled ? control.step : null,
  };
}

function before(moment: Moment | null, now: Moment): Moment | null {
  return moment !== null && moment <= now ? moment : null;
}
