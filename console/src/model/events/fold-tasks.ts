import { entryOf, type JsonObject } from "../json.ts";
import { actingStep, closeStep, settleStep } from "./fold-steps.ts";
import { isEnd, type RunState } from "./run-state.ts";
import type { Moment, RunStatus } from "./views.ts";
import { numberAt, payloadOf, textAt, type WireEvent } from "./wire.ts";

const STATUS_AFTER: Readonly<Record<string, RunStatus>> = {
  "task.spawned": "pending",
  "task.started": "running",
  "task.paused": "paused",
  "task.resumed": "running",
  "task.completed": "complete",
  "task.failed": "failed",
  "task.cancelled": "cancelled",
};

export function foldTask(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const status = entryOf(STATUS_AFTER, event.type);
  if (event.type === "task.spawned") noteSpawned(state, payload, now);
  if (event.type === "task.started") state.facts.startedAt ??= now;
  if (event.type === "task.prioritised") state.facts.priority = numberAt(payload, "NewPriority") ?? state.facts.priority;
  state.touch();
  if (!status) return;
  state.isToldByEvents = true;
  if (isEnd(status)) endSteps(state, status, textAt(payload, "ErrorCode"), now);
  state.setStatus(status, now, textAt(payload, "ErrorCode"));
}

function noteSpawned(state: RunState, payload: JsonObject, now: Moment): void {
  const facts = state.facts;
  facts.spawnedAt = now;
  facts.isWhole = true;
  facts.kind = textAt(payload, "Kind");
  facts.parentId = textAt(payload, "ParentTaskID");
  facts.priority = numberAt(payload, "Priority") ?? 0;
}

function endSteps(state: RunState, status: RunStatus, error: string, now: Moment): void {
  const last = state.current;
  if (!last) return;
  const isUndecided = last.decidedAt === null;
  closeStep(state, last.number, now);
  if (!isUndecided) return;
  const step = state.writeStep(last.number, now);
  step.endedAt = now;
  if (status === "failed") Object.assign(step, { status: "failed", error: step.error ?? { class: error, message: "" } });
}

/** A run of the parent's began: it stands at the step that started it. */
export function noteChild(parent: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const id = textAt(payload, "TaskID");
  if (parent.children.some((child) => child.id === id)) return;
  const step = actingStep(parent, {}, now);
  const child = { id, kind: textAt(payload, "Kind"), step: step.number, spawnedAt: now, agent: "", description: "" };
  parent.children.push(child);
  step.children.push(child);
  settleStep(step, now);
}
