import { foldCallEnd, foldInterrupted, foldInvoked, foldProgress, foldRecorded } from "./fold-calls.ts";
import { foldControl } from "./fold-controls.ts";
import { foldApprovalAnswer, foldApprovalRequested, foldPauseRequested, foldPauseResumed, foldSignIn } from "./fold-pauses.ts";
import { foldChunk, foldCost, foldDecision, foldPlannerError } from "./fold-steps.ts";
import { foldTask, noteChild } from "./fold-tasks.ts";
import { entryOf } from "../json.ts";
import type { RunState } from "./run-state.ts";
import type { Moment } from "./views.ts";
import { numberAt, payloadOf, textAt, type WireEvent } from "./wire.ts";

/** How the store hands the birth of a child to the parent's fold. No server sends it. */
export const CHILD_SPAWNED = "child.spawned";

type Fold = (state: RunState, event: WireEvent, now: Moment) => void;

const FOLDS: Readonly<Record<string, Fold>> = {
  "task.spawned": foldTask,
  "task.started": foldTask,
  "task.paused": foldTask,
  "task.resumed": foldTask,
  "task.completed": foldTask,
  "task.failed": foldTask,
  "task.cancelled": foldTask,
  "task.prioritised": foldTask,
  [CHILD_SPAWNED]: noteChild,
  "planner.decision": foldDecision,
  "planner.error": foldPlannerError,
  "llm.completion.chunk": foldChunk,
  "llm.cost.recorded": foldCost,
  "llm.image.materialized": foldImage,
  "tool.invoked": foldInvoked,
  "tool.completed": foldCallEnd,
  "tool.failed": foldCallEnd,
  "tool.invalid_args": foldCallEnd,
  "tool.policy_exhausted": foldCallEnd,
  "tool.interrupted": foldInterrupted,
  "tool.progress": foldProgress,
  "tool.approval_requested": foldApprovalRequested,
  "tool.approved": foldApprovalAnswer,
  "tool.rejected": foldApprovalAnswer,
  "tool.auth_required": foldSignIn,
  "tool.auth_completed": foldSignIn,
  "pause.requested": foldPauseRequested,
  "pause.resumed": foldPauseResumed,
  "control.received": foldControl,
  "control.applied": foldControl,
  "control.rejected": foldControl,
};

/** Events that a person should notice beside the steps, and the key of their payload that says most. */
const NOTED: Readonly<Record<string, string>> = {
  "governance.budget_exceeded": "Tier",
  "governance.rate_limited": "Model",
  "governance.maxtokens_exceeded": "Model",
  "llm.context_leak": "LeakSite",
  "llm.context_window_exceeded": "Model",
  "llm.mode_downgraded": "Reason",
  "llm.retry_with_feedback": "Reason",
  "planner.max_steps_exceeded": "LastTool",
  "planner.repair_exhausted": "",
  "runtime.error": "Message",
  "trajectory.compressed": "",
  "trajectory.compression_failed": "ErrorMessage",
};

/** Fold one event of a run into its state, in the time that the event takes, however long the run is. */
export function foldEvent(state: RunState, event: WireEvent, now: Moment): void {
  const fold = entryOf(FOLDS, event.type);
  if (isRecorded(state, event)) foldRecorded(state, event, now);
  else if (fold) fold(state, event, now);
  else if (Object.hasOwn(NOTED, event.type)) foldNote(state, event, now);
  state.facts.sequence = Math.max(state.facts.sequence, event.sequence);
}

/** What the record tells of a step; the rest, such as who approved a call, only events tell. */
const RECORDED = /^(planner|llm)\.|^tool\.(invoked|completed|failed|invalid_args|policy_exhausted|interrupted|progress)$/;

/** Whether the event speaks of a step whose end the record has told already. */
function isRecorded(state: RunState, event: WireEvent): boolean {
  if (state.recorded === 0 || !RECORDED.test(event.type)) return false;
  const step = numberAt(payloadOf(event), "Step");
  return step !== null && step >= 1 && step <= state.recorded;
}

/** Whether events of this type change what is known of a run. */
export function isFolded(type: string): boolean {
  return Object.hasOwn(FOLDS, type) || Object.hasOwn(NOTED, type);
}

/** The types of events that a page asks for to follow runs. */
export const FOLDED_TYPES: readonly string[] = [
  ...Object.keys(FOLDS).filter((type) => type !== CHILD_SPAWNED),
  ...Object.keys(NOTED),
];

function foldNote(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  state.touch();
  state.notes.push({ type: event.type, at: now, step: state.decided + 1, text: textAt(payload, NOTED[event.type] ?? "") });
}

function foldImage(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const id = textAt(payload, "ArtifactRef");
  if (!id || state.artifacts.some((artifact) => artifact.id === id)) return;
  state.touch();
  const size = numberAt(payload, "SizeBytes");
  state.artifacts.push({ id, mime: textAt(payload, "MIME"), size, source: "image", step: state.decided + 1, at: now });
}
