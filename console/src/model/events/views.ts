import type { Json } from "../json.ts";

/** Moments are milliseconds since 1970 with their fraction. `null` is "not yet" or "the server does not say". */
export type Moment = number;

export interface Principal {
  readonly tenant: string;
  readonly user: string;
  readonly session: string;
}

/** What stands for a value that is too large for an event. */
export interface CutValue {
  readonly preview: string;
  readonly bytes: number;
  readonly artifactId: string;
}

export interface Failure {
  readonly class: string;
  readonly message: string;
}

export interface Tokens {
  readonly prompt: number;
  readonly completion: number;
  readonly reasoning: number;
  readonly cached: number;
  readonly total: number;
}

export const NO_TOKENS: Tokens = { prompt: 0, completion: 0, reasoning: 0, cached: 0, total: 0 };

/** One call of the model, with what it cost. */
export interface ModelCall {
  readonly model: string;
  readonly startedAt: Moment;
  readonly endedAt: Moment;
  readonly latencyMs: number;
  readonly tokens: Tokens;
  readonly usd: number;
  readonly windowTokens: number;
}

/**
 * `waiting` before a person let it run; `open` while it runs; `unknown` when its worker was lost in it; `cut` when the
 * run ended first; `held_back` in a fork.
 */
export type CallStatus =
  | "waiting"
  | "open"
  | "done"
  | "failed"
  | "rejected"
  | "cancelled"
  | "cut"
  | "unknown"
  | "held_back";

export interface Progress {
  readonly done: number | null;
  readonly total: number | null;
  readonly message: string;
}

/** One call of a tool. `id` is the server's, or one of ours that begins with "~" where the server gives none. */
export interface ToolCall {
  readonly id: string;
  readonly step: number;
  /** Its place in the step, from 1. */
  readonly branch: number;
  readonly tool: string;
  readonly transport: string;
  readonly status: CallStatus;
  readonly askedAt: Moment;
  readonly startedAt: Moment | null;
  readonly endedAt: Moment | null;
  /** When its worker was found to be lost; null if it was not. */
  readonly lostAt: Moment | null;
  readonly attempts: number;
  readonly args: Json | undefined;
  readonly argsCut: CutValue | null;
  readonly result: Json | undefined;
  readonly resultCut: CutValue | null;
  readonly isMasked: boolean;
  readonly isEdited: boolean;
  readonly error: Failure | null;
  readonly progress: Progress | null;
  /** "" where the events do not say; the record and `tools.describe` do. */
  readonly sideEffect: string;
  readonly key: string;
  readonly pauseToken: string;
}

/** Four reasons of pauses, and three of waits without one: a child run, a timer, no worker. */
export type WaitReason =
  | "approval_required"
  | "await_input"
  | "external_event"
  | "constraints_conflict"
  | "sign_in"
  | "child"
  | "timer"
  | "worker"
  | (string & {});

/** What a step waits or waited for. */
export interface Wait {
  readonly reason: WaitReason;
  readonly token: string;
  readonly callId: string;
  readonly openedAt: Moment;
  readonly settledAt: Moment | null;
  readonly decision: string;
  readonly by: Principal | null;
  readonly deadline: Moment | null;
  readonly default: string;
}

/** `deciding` until the planner has decided. */
export type StepStatus = "deciding" | "running" | "waiting" | "done" | "failed" | "cut";

export interface ChildRef {
  readonly id: string;
  readonly kind: string;
  readonly step: number;
  readonly spawnedAt: Moment;
  readonly agent: string;
  readonly description: string;
}

export interface StepView {
  readonly number: number;
  readonly status: StepStatus;
  /** "" while the planner decides. */
  readonly decision: string;
  /** The tool of a decision to call one. */
  readonly tool: string;
  readonly startedAt: Moment;
  readonly decidedAt: Moment | null;
  readonly endedAt: Moment | null;
  readonly reasoning: string;
  readonly text: string;
  readonly preview: string;
  readonly modelCalls: readonly ModelCall[];
  readonly calls: readonly ToolCall[];
  readonly waits: readonly Wait[];
  readonly children: readonly ChildRef[];
  readonly error: Failure | null;
}

/** A pause of a run, as its events tell it; `pause.list` has its payload. */
export interface PauseView {
  readonly token: string;
  readonly reason: WaitReason;
  readonly step: number;
  readonly callId: string;
  readonly tool: string;
  readonly why: string;
  readonly args: Json | undefined;
  readonly argsCut: CutValue | null;
  readonly isMasked: boolean;
  readonly openedAt: Moment;
  readonly settledAt: Moment | null;
  readonly decision: string;
  readonly by: Principal | null;
  /** The control that answered it, "" where the server does not say. */
  readonly eventId: string;
  readonly isEdited: boolean;
  /** The service to sign in to and where; "" where the pause is none of these. */
  readonly signIn: string;
  readonly link: string;
  readonly deadline: Moment | null;
  readonly default: string;
  readonly approvers: readonly string[];
}

export type ControlOutcome = "sent" | "received" | "applied" | "failed" | "rejected" | "not_sent";

/** A control and what became of it. `type` is the upper-case name of the wire, such as `USER_MESSAGE`. */
export interface ControlView {
  readonly key: string;
  readonly type: string;
  readonly eventId: string;
  /** Null where somebody else sent it. */
  readonly sentAt: Moment | null;
  readonly receivedAt: Moment | null;
  readonly settledAt: Moment | null;
  readonly outcome: ControlOutcome;
  readonly error: string;
  readonly neededScope: string;
  /** The step before which it was applied. */
  readonly step: number | null;
  readonly by: Principal | null;
}

export interface ArtifactSeen {
  readonly id: string;
  readonly mime: string;
  readonly size: number | null;
  readonly source: "result" | "args" | "image" | "upload";
  readonly step: number | null;
  readonly at: Moment;
}

/** Something that a person should notice beside the steps, such as a retry or a budget that was exceeded. */
export interface Note {
  readonly type: string;
  readonly at: Moment;
  readonly step: number;
  readonly text: string;
}

export type RunStatus = "pending" | "running" | "paused" | "complete" | "failed" | "cancelled";

export interface StatusChange {
  readonly status: RunStatus;
  readonly at: Moment;
  readonly error: string;
}

/** A run as its events, its task row and its record tell it. Immutable; what did not change is the same object. */
export interface RunView {
  readonly id: string;
  readonly identity: Principal;
  readonly kind: string;
  readonly parentId: string;
  readonly goal: string;
  readonly agent: string;
  readonly model: string;
  readonly priority: number;
  readonly status: RunStatus;
  readonly condition: string;
  readonly errorClass: string;
  readonly spawnedAt: Moment | null;
  readonly startedAt: Moment | null;
  readonly endedAt: Moment | null;
  readonly changes: readonly StatusChange[];
  readonly steps: readonly StepView[];
  readonly controls: readonly ControlView[];
  readonly pauses: readonly PauseView[];
  readonly children: readonly ChildRef[];
  readonly artifacts: readonly ArtifactSeen[];
  readonly notes: readonly Note[];
  readonly tokens: Tokens;
  readonly usd: number;
  readonly windowTokens: number;
  /** The final answer; null until `tasks.get` has brought it. */
  readonly answer: string | null;
  /** The newest sequence that is in this view. */
  readonly sequence: number;
  /** Whether the beginning of the run was seen; if not, step numbers may be wrong on a server that names none. */
  readonly isWhole: boolean;
}
