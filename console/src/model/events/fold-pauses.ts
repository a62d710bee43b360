import { isObject, type JsonObject } from "../json.ts";
import { cutAt, findCall, newCall, readArgs } from "./fold-calls.ts";
import { settleStep, waitingStep } from "./fold-steps.ts";
import type { RunState, Writable } from "./run-state.ts";
import type { Moment, PauseView, ToolCall, Wait } from "./views.ts";
import { flagAt, payloadOf, principalAt, textAt, textsAt, timeAt, valueAt, type WireEvent } from "./wire.ts";

export function foldPauseRequested(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const token = textAt(payload, "Token");
  const known = findPause(state, token);
  if (known) return updatePause(state, token, { approvers: textsAt(payload, "Approvers") });
  const step = waitingStep(state, payload, now);
  const callId = textAt(payload, "CallID");
  const pause: PauseView = {
    ...NEW_PAUSE,
    token,
    callId,
    reason: textAt(payload, "Reason"),
    step: step.number,
    openedAt: now,
    deadline: timeAt(payload, "Deadline"),
    default: textAt(payload, "Default"),
    approvers: textsAt(payload, "Approvers"),
  };
  state.pauses.push(pause);
  if (!step.waits.some((wait) => wait.token === token)) step.waits.push(waitOf(pause));
  markLost(state, pause, now);
  settleStep(state.writeStep(step.number, now), now);
}

const NEW_PAUSE: Omit<PauseView, "token" | "reason" | "step" | "openedAt"> = {
  callId: "",
  tool: "",
  why: "",
  args: undefined,
  argsCut: null,
  isMasked: false,
  settledAt: null,
  decision: "",
  by: null,
  eventId: "",
  isEdited: false,
  signIn: "",
  link: "",
  deadline: null,
  default: "",
  approvers: [],
};

function waitOf(pause: PauseView): Wait {
  const { reason, token, callId, openedAt, deadline } = pause;
  return { reason, token, callId, openedAt, settledAt: null, decision: "", by: null, deadline, default: pause.default };
}

/** A question about a call in flight means that its worker was lost in it. */
function markLost(state: RunState, pause: PauseView, now: Moment): void {
  if (pause.reason !== "await_input" || state.call(pause.callId)?.status !== "open") return;
  const call = state.writeCall(pause.callId, now);
  if (call) Object.assign(call, { status: "unknown", lostAt: now });
}

export function foldApprovalRequested(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const tool = textAt(payload, "Tool");
  const token = textAt(payload, "PauseToken");
  const call = findCall(state, payload, tool, ["waiting"], now) ?? newCall(state, payload, tool, now);
  const asked = withSummary(payload);
  call.pauseToken = token;
  if (call.startedAt === null && call.endedAt === null) {
    call.status = "waiting";
    readArgs(call, asked);
  }
  updatePause(state, token, {
    tool,
    why: textAt(payload, "Reason"),
    callId: call.id,
    args: "Args" in asked ? valueAt(asked, "Args") : undefined,
    argsCut: cutAt(payload, "ArgsCut"),
    isMasked: flagAt(asked, "Masked"),
  });
  updateWait(state, token, now, { callId: call.id });
  settleStep(state.writeStep(call.step, now), now);
}

/** A server without our additions has the arguments in its redacted summary alone. */
function withSummary(payload: JsonObject): JsonObject {
  if ("Args" in payload || "ArgsCut" in payload) return payload;
  const summary = valueAt(payload, "ArgsSummary");
  if (!isObject(summary)) return payload;
  return { ...payload, Args: isObject(summary["args"]) ? summary["args"] : summary, Masked: true };
}

export function foldPauseResumed(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const token = textAt(payload, "Token");
  const decision = textAt(payload, "Decision");
  const by = principalAt(payload, "By");
  updatePause(state, token, { settledAt: now, decision, by, eventId: textAt(payload, "EventID") });
  updateWait(state, token, now, { settledAt: now, decision, by });
}

/** Approved: the call goes on as soon as its `tool.invoked` comes. Rejected: it has ended. */
export function foldApprovalAnswer(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const call = findCall(state, payload, textAt(payload, "Tool"), ["waiting"], now);
  const isApproved = event.type === "tool.approved";
  const reason = textAt(payload, isApproved ? "ApproverReason" : "Reason");
  const token = textAt(payload, "PauseToken");
  const known = findPause(state, token);
  if (known && known.settledAt === null) foldPauseResumed(state, answered(event, payload, isApproved), now);
  updatePause(state, token, { isEdited: flagAt(payload, "Edited"), why: reason || known?.why || "" });
  if (!call) return;
  if (isApproved) call.isEdited = flagAt(payload, "Edited");
  else reject(call, reason, now);
  settleStep(state.writeStep(call.step, now), now);
}

function answered(event: WireEvent, payload: JsonObject, isApproved: boolean): WireEvent {
  const resumed = { ...payload, Token: textAt(payload, "PauseToken"), Decision: isApproved ? "approve" : "reject" };
  return { ...event, type: "pause.resumed", payload: resumed };
}

function reject(call: Writable<ToolCall>, reason: string, now: Moment): void {
  Object.assign(call, { status: "rejected", endedAt: now, error: { class: "rejected", message: reason } });
}

export function foldSignIn(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const token = textAt(payload, "PauseToken");
  if (event.type === "tool.auth_completed") {
    updatePause(state, token, { settledAt: now, decision: "resume" });
    updateWait(state, token, now, { settledAt: now, decision: "resume" });
    return;
  }
  if (!findPause(state, token)) {
    foldPauseRequested(state, { ...event, payload: { ...payload, Token: token, Reason: "sign_in" } }, now);
  }
  updatePause(state, token, {
    signIn: textAt(payload, "SourceName") || textAt(payload, "Source"),
    link: textAt(payload, "AuthorizeURL") || textAt(payload, "VerificationURI"),
  });
}

export function findPause(state: RunState, token: string): PauseView | undefined {
  return state.pauses.findLast((pause) => pause.token === token);
}

function updatePause(state: RunState, token: string, change: Partial<PauseView>): void {
  const at = state.pauses.findLastIndex((pause) => pause.token === token);
  const pause = state.pauses[at];
  if (!pause) return;
  state.touch();
  state.pauses[at] = { ...pause, ...change };
}

function updateWait(state: RunState, token: string, now: Moment, change: Partial<Writable<Wait>>): void {
  const pause = findPause(state, token);
  if (!pause) return;
  const step = state.writeStep(pause.step, now);
  const wait = step.waits.find((other) => other.token === token);
  if (wait) Object.assign(wait, change);
  settleStep(step, now);
}
