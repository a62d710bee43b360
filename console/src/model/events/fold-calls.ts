import type { JsonObject } from "../json.ts";
import { actingStep, settleStep } from "./fold-steps.ts";
import type { RunState, Writable } from "./run-state.ts";
import type { CallStatus, CutValue, Failure, Moment, ToolCall } from "./views.ts";
import { flagAt, numberAt, objectAt, payloadOf, textAt, timeAt, valueAt, type WireEvent } from "./wire.ts";

export const NEW_CALL: Omit<ToolCall, "id" | "step" | "tool" | "askedAt"> = {
  branch: 1,
  transport: "",
  status: "open",
  startedAt: null,
  endedAt: null,
  lostAt: null,
  attempts: 0,
  args: undefined,
  argsCut: null,
  result: undefined,
  resultCut: null,
  isMasked: false,
  isEdited: false,
  error: null,
  progress: null,
  sideEffect: "",
  key: "",
  pauseToken: "",
};

/** A cut value of a payload; null if the key is absent. */
export function cutAt(payload: JsonObject, key: string): CutValue | null {
  const cut = objectAt(payload, key);
  if (!("Preview" in cut)) return null;
  return { preview: textAt(cut, "Preview"), bytes: numberAt(cut, "Bytes") ?? 0, artifactId: textAt(cut, "ArtifactID") };
}

/** A tool call begins: a new one, the one that a person let run, or one that is made again. */
export function foldInvoked(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const tool = textAt(payload, "ToolName");
  const call = findCall(state, payload, tool, ["waiting", "unknown"], now) ?? newCall(state, payload, tool, now);
  const startedAt = timeAt(payload, "StartedAt") ?? now;
  Object.assign(call, { status: "open", endedAt: null, transport: textAt(payload, "Transport") });
  call.startedAt ??= startedAt;
  readArgs(call, payload);
  settle(state, call, now);
}

export function foldCallEnd(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const tool = textAt(payload, "ToolName");
  const call = findCall(state, payload, tool, ["open", "unknown", "cut"], now) ?? newCall(state, payload, tool, now);
  call.status = event.type === "tool.completed" ? "done" : "failed";
  call.endedAt = now;
  call.startedAt ??= now - (numberAt(payload, "DurationMS") ?? 0);
  call.attempts = numberAt(payload, "Attempts") ?? Math.max(call.attempts, 1);
  call.progress = null;
  call.error = failureOf(event.type, payload);
  readResult(call, payload);
  noteResultArtifact(state, call, now);
  settle(state, call, now);
}

function failureOf(type: string, payload: JsonObject): Failure | null {
  switch (type) {
    case "tool.failed":
      return { class: textAt(payload, "ErrorClass"), message: textAt(payload, "ErrorMessage") };
    case "tool.invalid_args":
      return { class: "invalid_args", message: textAt(payload, "ValidationError") };
    case "tool.policy_exhausted":
      return { class: textAt(payload, "LastClass"), message: textAt(payload, "LastError") };
    default:
      return null;
  }
}

/** A worker was lost in a call, and this is what is known of it. */
export function foldInterrupted(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const tool = textAt(payload, "ToolName");
  const call = findCall(state, payload, tool, ["unknown", "open"], now) ?? newCall(state, payload, tool, now);
  call.lostAt ??= now;
  const outcome = textAt(payload, "Outcome");
  const status: CallStatus = outcome === "known" ? "done" : outcome === "repeated" ? "open" : "unknown";
  call.status = status;
  call.endedAt = status === "open" ? null : now;
  settle(state, call, now);
}

/** Of a call whose step the record has told, an event adds the whole arguments and result. */
export function foldRecorded(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const call = state.writeCall(textAt(payload, "CallID"), now);
  if (!call) return;
  readArgs(call, payload);
  readResult(call, payload);
}

export function foldProgress(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const call = findCall(state, payload, textAt(payload, "ToolName"), ["open"], now);
  if (!call || call.endedAt !== null) return;
  call.progress = {
    done: numberAt(payload, "Done"),
    total: numberAt(payload, "Total"),
    message: textAt(payload, "Message"),
  };
}

/** The call that an event speaks of: by its id, else the first of this tool in one of these states. */
export function findCall(
  state: RunState,
  payload: JsonObject,
  tool: string,
  among: readonly CallStatus[],
  now: Moment,
): Writable<ToolCall> | undefined {
  const id = textAt(payload, "CallID");
  if (id) return state.writeCall(id, now);
  const first = state.unnamed.get(tool)?.find((other) => {
    const call = state.call(other);
    return call !== undefined && among.includes(call.status);
  });
  return first === undefined ? undefined : state.writeCall(first, now);
}

/** A call that is seen for the first time. Without an id of the server's it gets one of ours. */
export function newCall(state: RunState, payload: JsonObject, tool: string, now: Moment): Writable<ToolCall> {
  const step = actingStep(state, payload, now).number;
  const id = textAt(payload, "CallID") || nameCall(state, tool);
  return state.addCall({ ...NEW_CALL, id, step, tool, askedAt: now }, now);
}

function nameCall(state: RunState, tool: string): string {
  const id = `~${++state.synthesized}`;
  const open = (state.unnamed.get(tool) ?? []).filter((other) => state.call(other)?.endedAt === null);
  state.unnamed.set(tool, [...open, id]);
  return id;
}

export function readArgs(call: Writable<ToolCall>, payload: JsonObject): void {
  if ("Args" in payload) call.args = valueAt(payload, "Args");
  call.argsCut = cutAt(payload, "ArgsCut") ?? call.argsCut;
  call.isMasked ||= flagAt(payload, "Masked");
}

function readResult(call: Writable<ToolCall>, payload: JsonObject): void {
  if ("Result" in payload) call.result = valueAt(payload, "Result");
  call.resultCut = cutAt(payload, "ResultCut") ?? call.resultCut;
  call.isMasked ||= flagAt(payload, "Masked");
}

function settle(state: RunState, call: ToolCall, now: Moment): void {
  settleStep(state.writeStep(call.step, now), now);
}

function noteResultArtifact(state: RunState, call: ToolCall, now: Moment): void {
  const id = call.resultCut?.artifactId;
  if (!id || state.artifacts.some((artifact) => artifact.id === id)) return;
  state.artifacts.push({ id, mime: "", size: call.resultCut?.bytes ?? null, source: "result", step: call.step, at: now });
}
