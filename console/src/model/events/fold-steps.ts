import { isEnd, type RunState, type WritableStep } from "./run-state.ts";
import type { Moment, StepView, Tokens } from "./views.ts";
import { flagAt, numberAt, objectAt, textAt, type WireEvent, payloadOf } from "./wire.ts";
import { isObject, type JsonObject } from "../json.ts";

/** The step that is being decided, opened if it is not there: the server's number, else the one after the last. */
export function decidingStep(state: RunState, payload: JsonObject, now: Moment): WritableStep {
  return openedStep(state, stepNumber(payload) ?? state.decided + 1, now);
}

/** The step that is being carried out: the server's number, else the last decided one. */
export function actingStep(state: RunState, payload: JsonObject, now: Moment): WritableStep {
  return openedStep(state, stepNumber(payload) ?? Math.max(state.decided, 1), now);
}

/** The step to which a wait belongs: the last decided one while it goes on, else the next. */
export function waitingStep(state: RunState, payload: JsonObject, now: Moment): WritableStep {
  const named = stepNumber(payload);
  if (named !== null) return openedStep(state, named, now);
  const last = state.step(state.decided);
  return openedStep(state, last && last.endedAt === null ? last.number : state.decided + 1, now);
}

function stepNumber(payload: JsonObject): number | null {
  const number = numberAt(payload, "Step");
  return number !== null && number >= 1 ? Math.floor(number) : null;
}

function openedStep(state: RunState, number: number, now: Moment): WritableStep {
  const known = state.step(number);
  if (known) return state.writeStep(number, now);
  const before = state.current;
  const isNext = before !== undefined && before.number < number;
  const start = isNext ? passStep(state, before.number, now) : (state.facts.startedAt ?? state.facts.spawnedAt ?? now);
  return state.writeStep(number, Math.min(start, now));
}

/**
 * Note that what follows a step has begun at `now`; the moment at which the step ended, as far as is known. Streamed
 * text overtakes stored events, so calls that are open may have ended all the same: their events are still to come.
 */
function passStep(state: RunState, number: number, now: Moment): Moment {
  const known = state.step(number);
  if (!known) return now;
  if (known.endedAt !== null) return known.endedAt;
  const step = state.writeStep(number, now);
  const isHeld = settleWaits(step, now);
  if (step.calls.some(isGoingOn)) return now;
  step.endedAt = isHeld ? now : lastMoment(step);
  step.status = endStatus(step);
  return step.endedAt;
}

/** End a step for good: calls without an end were cut off. */
export function closeStep(state: RunState, number: number, now: Moment): void {
  if (state.step(number)?.endedAt !== null) return;
  const step = state.writeStep(number, now);
  const isHeld = settleWaits(step, now);
  const open = step.calls.filter(isGoingOn);
  for (const call of open) Object.assign(call, { status: "cut", endedAt: now });
  step.endedAt = isHeld || open.length > 0 ? now : lastMoment(step);
  step.status = endStatus(step);
}

/** Whether some wait was open. */
function settleWaits(step: WritableStep, now: Moment): boolean {
  const open = step.waits.filter((wait) => wait.settledAt === null);
  for (const wait of open) wait.settledAt = now;
  return open.length > 0;
}

function isGoingOn(call: StepView["calls"][number]): boolean {
  return call.status === "open" || call.status === "waiting";
}

function lastMoment(step: StepView): Moment {
  const ends = [
    step.decidedAt ?? step.startedAt,
    ...step.calls.map((call) => call.endedAt ?? 0),
    ...step.waits.map((wait) => wait.settledAt ?? 0),
    ...step.children.map((child) => child.spawnedAt),
  ];
  return Math.max(...ends);
}

function endStatus(step: StepView): StepView["status"] {
  if (step.error) return "failed";
  if (step.decidedAt === null || step.calls.some((call) => call.status === "cut")) return "cut";
  return step.calls.length > 0 && step.calls.every((call) => call.status === "failed") ? "failed" : "done";
}

/** Bring a step's status and end in line with its calls and waits, after one of them changed at `now`. */
export function settleStep(step: WritableStep, now: Moment): void {
  const isWaiting = step.waits.some((wait) => wait.settledAt === null);
  const isOpen = step.calls.some(isGoingOn);
  if (isWaiting) return reopen(step, "waiting");
  if (step.decidedAt === null) return reopen(step, "deciding");
  if (isOpen || !hasActed(step)) return reopen(step, "running");
  if (step.endedAt !== null) return;
  step.endedAt = now;
  step.status = endStatus(step);
}

function hasActed(step: StepView): boolean {
  if (step.decision === "Finish") return true;
  return step.calls.length > 0 || step.children.length > 0 || step.waits.length > 0;
}

function reopen(step: WritableStep, status: StepView["status"]): void {
  step.status = status;
  step.endedAt = null;
}

export function foldDecision(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const step = decidingStep(state, payload, now);
  step.startedAt = startAfter(state, step, now);
  step.decidedAt = now;
  step.decision = textAt(payload, "DecisionKind") || "unknown";
  step.tool = textAt(payload, "Tool");
  step.reasoning = textAt(payload, "ReasoningTrace") || step.reasoning;
  state.decided = Math.max(state.decided, step.number);
  state.endedTexts.clear();
  if (step.decision === "AwaitTask" && step.waits.length === 0) step.waits.push(childWait(now));
  settleStep(step, now);
}

/** A step begins where the one before it ended, which may have been told after the text of this one. */
function startAfter(state: RunState, step: StepView, now: Moment): Moment {
  closeStep(state, step.number - 1, now);
  const ended = state.step(step.number - 1)?.endedAt ?? step.startedAt;
  return Math.min(Math.max(step.startedAt, ended), now);
}

function childWait(now: Moment): WritableStep["waits"][number] {
  return {
    reason: "child",
    token: "",
    callId: "",
    openedAt: now,
    settledAt: null,
    decision: "",
    by: null,
    deadline: null,
    default: "",
  };
}

export function foldPlannerError(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const step = decidingStep(state, {}, now);
  step.error = { class: textAt(payload, "ErrorCode"), message: textAt(payload, "ErrorMessage") };
}

/** Streamed text belongs to the step that is being decided. */
export function foldChunk(state: RunState, event: WireEvent, now: Moment): void {
  if (isEnd(state.facts.status)) return;
  const payload = payloadOf(event);
  const step = decidingStep(state, payload, now);
  const kind = textAt(payload, "Kind") === "reasoning" ? "reasoning" : "text";
  const delta = textAt(payload, "Delta");
  // The model was asked again in the same step: its new answer takes the place of the one before.
  if (delta && state.endedTexts.delete(`${step.number} ${kind}`)) step[kind] = "";
  step[kind] += delta;
  if (flagAt(payload, "Done")) state.endedTexts.add(`${step.number} ${kind}`);
}

export function foldCost(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const step = decidingStep(state, payload, now);
  const usage = objectAt(payload, "Usage");
  const latencyMs = numberAt(usage, "LatencyMS") ?? 0;
  const tokens = readTokens(usage);
  const usd = numberAt(objectAt(payload, "Cost"), "TotalCost") ?? 0;
  const model = textAt(payload, "Model");
  const windowTokens = numberAt(payload, "ContextWindowTokens") ?? 0;
  const startedAt = Math.max(now - latencyMs, step.startedAt);
  step.modelCalls.push({ model, startedAt, endedAt: now, latencyMs, tokens, usd, windowTokens });
  const facts = state.facts;
  facts.tokens = addTokens(facts.tokens, tokens);
  facts.usd += usd;
  facts.model = model || facts.model;
  facts.windowTokens = windowTokens || facts.windowTokens;
}

function readTokens(usage: JsonObject): Tokens {
  const prompt = numberAt(usage, "PromptTokens") ?? 0;
  const completion = numberAt(usage, "CompletionTokens") ?? 0;
  const reasoning = numberAt(usage, "ReasoningTokens") ?? 0;
  const cached = cachedTokens(objectAt(usage, "ProviderExtras"));
  return { prompt, completion, reasoning, cached, total: numberAt(usage, "TotalTokens") ?? prompt + completion };
}

const CACHED_NAMES = new Set([
  "cache_read_tokens",
  "cached_tokens",
  "cache_read_input_tokens",
  "cached_content_token_count",
  "prompt_cache_hit_tokens",
]);

/** How much of a prompt its provider had cached, under the name that this provider uses. */
function cachedTokens(extras: JsonObject): number {
  const flat = Object.values(extras).flatMap((value) => (isObject(value) ? Object.entries(value) : []));
  const counts = [...Object.entries(extras), ...flat].filter(([name]) => CACHED_NAMES.has(name));
  return Math.max(0, ...counts.map(([, count]) => (typeof count === "number" ? count : 0)));
}

export function addTokens(left: Tokens, right: Tokens): Tokens {
  return {
    prompt: left.prompt + right.prompt,
    completion: left.completion + right.completion,
    reasoning: left.reasoning + right.reasoning,
    cached: left.cached + right.cached,
    total: left.total + right.total,
  };
}

