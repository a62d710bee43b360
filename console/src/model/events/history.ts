import { entryOf } from "../json.ts";
import { NEW_CALL } from "./fold-calls.ts";
import { isEnd, type RunState } from "./run-state.ts";
import type {
  CallStatus,
  ChildRef,
  ControlOutcome,
  ControlView,
  ModelCall,
  Moment,
  Principal,
  StepStatus,
  StepView,
  ToolCall,
  Wait,
} from "./views.ts";
import { parseTime } from "./wire.ts";

interface RecordedPrincipal {
  readonly tenant?: string;
  readonly user?: string;
  readonly session?: string;
}

export interface RecordedCall {
  readonly call_id: string;
  readonly tool: string;
  readonly branch?: number;
  readonly side_effect: string;
  readonly status: string;
  readonly attempts: number;
  readonly key?: string;
  readonly started_at: string;
  readonly ended_at: string;
  readonly error?: { readonly class: string; readonly message: string };
  readonly args_preview: string;
  readonly result_preview?: string;
}

export interface RecordedWait {
  readonly reason: string;
  readonly token?: string;
  readonly call_id?: string;
  readonly opened_at: string;
  readonly settled_at: string;
  readonly decision?: string;
  readonly by?: RecordedPrincipal;
  readonly deadline?: string;
  readonly default?: string;
}

export interface RecordedStep {
  readonly step: number;
  readonly status: string;
  readonly decision?: string;
  readonly preview: string;
  readonly started_at: string;
  readonly decided_at: string;
  readonly ended_at: string;
  readonly latency_ms: number;
  readonly tokens: { readonly prompt: number; readonly completion: number; readonly reasoning: number; readonly cached: number };
  readonly usd: number;
  readonly error?: { readonly class: string; readonly message: string };
  readonly calls: readonly RecordedCall[];
  readonly children: readonly { id: string; kind: string; agent_name: string; description: string }[];
  readonly waits: readonly RecordedWait[];
}

/** An answer of `runs.steps`, as far as it is read here. */
export interface RunHistory {
  readonly run: {
    readonly id: string;
    readonly identity: RecordedPrincipal;
    readonly goal: string;
    readonly agent_name: string;
    readonly model: string;
    readonly status: string;
    readonly condition?: string;
    readonly error_class?: string;
    readonly started_at: string;
    readonly ended_at: string;
    readonly totals: {
      readonly prompt_tokens: number;
      readonly completion_tokens: number;
      readonly reasoning_tokens: number;
      readonly cached_tokens: number;
      readonly usd: number;
    };
  };
  readonly steps: readonly RecordedStep[];
  readonly controls: readonly {
    readonly type: string;
    readonly event_id: string;
    readonly at: string;
    readonly by?: RecordedPrincipal;
    readonly outcome: string;
    readonly err?: string;
    readonly step?: number;
  }[];
}

/** Put what the record says over what events said; streamed text, arguments and results that events brought stay. */
export function addHistory(state: RunState, history: RunHistory): void {
  addHeader(state, history.run);
  for (const row of history.steps) {
    const step = recordedStep(row, state.step(row.step), history.run.model);
    state.putStep(step);
    if (step.endedAt !== null) state.recorded = Math.max(state.recorded, step.number);
    for (const child of step.children) {
      const at = state.children.findIndex((other) => other.id === child.id);
      if (at < 0) state.children.push(child);
      else state.children[at] = child;
    }
    addPauses(state, step);
  }
  for (const control of history.controls) addControl(state, control);
}

function addHeader(state: RunState, run: RunHistory["run"]): void {
  const facts = state.facts;
  const startedAt = parseTime(run.started_at);
  const { prompt_tokens: prompt, completion_tokens: completion, reasoning_tokens, cached_tokens, usd } = run.totals;
  const tokens = { prompt, completion, reasoning: reasoning_tokens, cached: cached_tokens, total: prompt + completion };
  Object.assign(facts, { goal: run.goal, agent: run.agent_name, model: run.model, isWhole: true });
  if (tokens.total >= facts.tokens.total) Object.assign(facts, { tokens, usd });
  facts.condition = run.condition ?? "";
  facts.startedAt ??= startedAt;
  facts.spawnedAt ??= startedAt;
  const status = run.status as RunState["facts"]["status"];
  const endedAt = parseTime(run.ended_at);
  if (state.changes.length === 0 && startedAt !== null && status !== "pending") state.setStatus("running", startedAt);
  if (isEnd(status) && !isEnd(facts.status)) state.setStatus(status, endedAt ?? startedAt ?? 0, run.error_class ?? "");
}

/** A step of the record; what events told of it beside stays. */
export function recordedStep(row: RecordedStep, known: StepView | undefined, model: string): StepView {
  const startedAt = parseTime(row.started_at) ?? known?.startedAt ?? 0;
  const decidedAt = parseTime(row.decided_at);
  return {
    number: row.step,
    status: row.status === "running" && !row.decision ? "deciding" : (row.status as StepStatus),
    decision: row.decision ?? "",
    tool: row.decision === "CallTool" ? (row.calls[0]?.tool ?? known?.tool ?? "") : "",
    startedAt,
    decidedAt,
    endedAt: parseTime(row.ended_at),
    reasoning: known?.reasoning ?? "",
    text: known?.text ?? "",
    preview: row.preview,
    modelCalls: known?.modelCalls.length ? known.modelCalls : modelCallsOf(row, startedAt, decidedAt, model),
    calls: row.calls.map((call, at) => callOf(call, row.step, at, known, decidedAt ?? startedAt)),
    waits: row.waits.map(waitOf),
    children: row.children.map((child) => childOf(child, row, known)),
    error: row.error ?? null,
  };
}

function modelCallsOf(row: RecordedStep, startedAt: Moment, decidedAt: Moment | null, model: string): ModelCall[] {
  const { prompt, completion, reasoning, cached } = row.tokens;
  if (prompt + completion + row.usd === 0) return [];
  const endedAt = decidedAt ?? startedAt + row.latency_ms;
  const tokens = { prompt, completion, reasoning, cached, total: prompt + completion };
  return [{ model, startedAt, endedAt, latencyMs: row.latency_ms, tokens, usd: row.usd, windowTokens: 0 }];
}

function callOf(row: RecordedCall, step: number, at: number, known: StepView | undefined, askedAt: Moment): ToolCall {
  const before = known?.calls.find((call) => call.id === row.call_id);
  const isLost = before?.status === "unknown" && row.status === "open";
  return {
    ...NEW_CALL,
    ...before,
    id: row.call_id,
    step,
    tool: row.tool,
    branch: at + 1,
    status: isLost ? "unknown" : statusOf(row),
    askedAt: before?.askedAt ?? askedAt,
    startedAt: row.attempts > 0 || row.status === "held_back" ? parseTime(row.started_at) : null,
    endedAt: parseTime(row.ended_at),
    attempts: row.attempts,
    args: before?.args ?? parsedPreview(row.args_preview),
    result: before?.result ?? row.result_preview,
    error: row.error ?? null,
    sideEffect: row.side_effect,
    key: row.key ?? "",
  };
}

/** An open call that no attempt was made of waits for a person. */
function statusOf(row: RecordedCall): CallStatus {
  return row.status === "open" && row.attempts === 0 ? "waiting" : (row.status as CallStatus);
}

/** A preview of arguments is JSON unless it was cut. */
function parsedPreview(preview: string): ToolCall["args"] {
  try {
    return JSON.parse(preview) as ToolCall["args"];
  } catch {
    return preview || undefined;
  }
}

function waitOf(row: RecordedWait): Wait {
  return {
    reason: row.reason,
    token: row.token ?? "",
    callId: row.call_id ?? "",
    openedAt: parseTime(row.opened_at) ?? 0,
    settledAt: parseTime(row.settled_at),
    decision: row.decision ?? "",
    by: principalOf(row.by),
    deadline: parseTime(row.deadline),
    default: row.default ?? "",
  };
}

function childOf(row: RecordedStep["children"][number], step: RecordedStep, known: StepView | undefined): ChildRef {
  const before = known?.children.find((child) => child.id === row.id);
  const spawnedAt = before?.spawnedAt ?? parseTime(step.decided_at) ?? 0;
  return { id: row.id, kind: row.kind, step: step.step, spawnedAt, agent: row.agent_name, description: row.description };
}

function addPauses(state: RunState, step: StepView): void {
  for (const wait of step.waits) {
    if (!wait.token || state.pauses.some((pause) => pause.token === wait.token)) continue;
    const call = step.calls.find((other) => other.id === wait.callId);
    state.pauses.push({
      ...wait,
      step: step.number,
      tool: call?.tool ?? "",
      why: "",
      args: call?.args,
      argsCut: null,
      isMasked: call?.isMasked ?? false,
      eventId: "",
      isEdited: false,
      signIn: "",
      link: "",
      approvers: [],
    });
  }
}

const OUTCOMES: Readonly<Record<string, ControlOutcome>> = {
  queued: "received",
  applied: "applied",
  failed: "failed",
  rejected: "rejected",
};

function addControl(state: RunState, row: RunHistory["controls"][number]): void {
  if (state.controls.some((control) => control.eventId === row.event_id)) return;
  const at = parseTime(row.at);
  const outcome = entryOf(OUTCOMES, row.outcome) ?? "received";
  const control: ControlView = {
    key: `control-${state.controls.length + 1}`,
    type: row.type,
    eventId: row.event_id,
    sentAt: null,
    receivedAt: at,
    settledAt: outcome === "received" ? null : at,
    outcome,
    error: row.err ?? "",
    neededScope: "",
    step: row.step ?? null,
    by: principalOf(row.by),
  };
  state.controls.push(control);
}

function principalOf(by: RecordedPrincipal | undefined): Principal | null {
  return by?.user ? { tenant: by.tenant ?? "", user: by.user, session: by.session ?? "" } : null;
}
