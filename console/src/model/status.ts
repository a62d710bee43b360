import { entryOf } from "./json.ts";
import type { PauseView, RunStatus, RunView, StepView, ToolCall, WaitReason } from "./events/views.ts";

/** The names of the glyphs; the shape of each says its state without colour. */
export type Glyph =
  | "pending"
  | "running"
  | "waiting"
  | "paused"
  | "timer"
  | "question"
  | "sign-in"
  | "complete"
  | "failed"
  | "cancelled"
  | "interrupted"
  | "blocked"
  | "unknown"
  | "sent"
  | "received"
  | "applied"
  | "rejected";

export type Tone = "running" | "waiting" | "complete" | "failed" | "unknown" | "idle";

/** A state in words, with its glyph. `code` is shown in mono behind the word, `on` says on what a run waits. */
export interface StateWords {
  readonly word: string;
  readonly glyph: Glyph;
  readonly tone: Tone;
  readonly on: string;
  readonly code: string;
}

/** What is known of the pause that a run waits on, from a stream or from `pause.list`. */
export interface WaitingOn {
  readonly reason: WaitReason;
  readonly tool: string;
  readonly isUnknownOutcome: boolean;
  readonly signIn: string;
  /** Who paused the run, "" where that is not known. */
  readonly pausedBy: string;
}

export interface StateFacts {
  readonly status: RunStatus | (string & {});
  readonly condition?: string;
  readonly errorClass?: string;
  readonly waitingOn?: WaitingOn | null;
}

const WORDS: Readonly<Record<string, readonly [string, Glyph, Tone]>> = {
  pending: ["Pending", "pending", "idle"],
  running: ["Running", "running", "running"],
  paused: ["Waiting", "waiting", "waiting"],
  complete: ["Complete", "complete", "complete"],
  failed: ["Failed", "failed", "failed"],
  cancelled: ["Cancelled", "cancelled", "idle"],
  interrupted: ["Interrupted", "interrupted", "waiting"],
  blocked: ["Blocked", "blocked", "waiting"],
};

/** The state of a run. A status that this console does not know is shown as it came. */
export function stateOf(facts: StateFacts): StateWords {
  const { status, condition = "", errorClass = "" } = facts;
  // The wire has no other status for a run that the control `cancel` ended.
  const isCancelled = status === "failed" && errorClass === "cancelled";
  const key = isCancelled ? "cancelled" : isOver(status) ? status : condition || status;
  if (key === "paused" && facts.waitingOn) return waitingWords(facts.waitingOn);
  const [word, glyph, tone] = entryOf(WORDS, key) ?? [key, "pending", "idle"];
  return { word, glyph, tone, on: "", code: key === "failed" ? errorClass : "" };
}

function isOver(status: string): boolean {
  return status === "complete" || status === "failed" || status === "cancelled";
}

function waitingWords(on: WaitingOn): StateWords {
  const waits = (glyph: Glyph, text: string, tone: Tone = "waiting"): StateWords => ({
    word: "Waiting",
    glyph,
    tone,
    on: text,
    code: "",
  });
  if (on.signIn || on.reason === "sign_in") return waits("sign-in", `sign in to ${on.signIn || on.tool}`);
  if (on.isUnknownOutcome) return waits("unknown", `outcome of ${on.tool}`, "unknown");
  if (on.pausedBy) return waits("paused", `paused by ${on.pausedBy}`);
  switch (on.reason) {
    case "approval_required":
      return waits("waiting", on.tool ? `approve ${on.tool}` : "an approval");
    case "await_input":
      return waits("question", "an answer");
    case "external_event":
      return waits("timer", "an event");
    default:
      return waits("waiting", on.reason.replaceAll("_", " "));
  }
}

export function stateOfRun(run: RunView): StateWords {
  const open = run.pauses.filter((pause) => pause.settledAt === null);
  const first = open[0];
  const status = first && run.status === "running" ? "paused" : run.status;
  return stateOf({ ...run, status, waitingOn: first ? waitingOnPause(run, first) : null });
}

/** The pause that a person should answer first: the oldest that is open. */
export function openPauses(run: RunView): PauseView[] {
  return run.pauses.filter((pause) => pause.settledAt === null);
}

function waitingOnPause(run: RunView, pause: PauseView): WaitingOn {
  const call = callOf(run, pause);
  const isUnknownOutcome = pause.reason === "await_input" && call?.status === "unknown";
  const control = run.controls.findLast((one) => one.type === "PAUSE" && one.outcome === "applied");
  const pausedBy = pause.reason === "external_event" && control ? (control.by?.user ?? "a person") : "";
  return { reason: pause.reason, tool: pause.tool || call?.tool || "", isUnknownOutcome, signIn: pause.signIn, pausedBy };
}

function callOf(run: RunView, pause: PauseView): ToolCall | undefined {
  const step = run.steps.find((one) => one.number === pause.step);
  return step?.calls.find((call) => call.id === pause.callId);
}

/** What a row of `pause.list` waits for. */
export function waitingOnSnapshot(reason: string, payload: unknown): WaitingOn {
  const known = (typeof payload === "object" && payload !== null ? payload : {}) as Record<string, unknown>;
  const text = (key: string): string => (typeof known[key] === "string" ? (known[key] as string) : "");
  return {
    reason,
    tool: text("tool"),
    isUnknownOutcome: text("question") === "unknown_outcome",
    signIn: text("source_name") || text("source"),
    pausedBy: "",
  };
}

/** What a step does, or did, in words: "approve place_order", "4 calls side by side". */
export function stepTitle(step: StepView): string {
  const [only] = step.calls;
  switch (step.decision) {
    case "":
      return "deciding";
    case "CallTool":
      return step.tool || only?.tool || "a call";
    case "CallParallel":
      return step.calls.length ? `${step.calls.length} calls side by side` : "calls side by side";
    case "SpawnTask":
      return step.children.map((child) => child.agent || child.description || "child run").join(", ") || "child run";
    case "AwaitTask":
      return "waits for a child run";
    case "RequestPause":
      return "asks a person";
    case "Finish":
      return "finish";
    default:
      return step.tool || "step";
  }
}

const CALL_WORDS: Readonly<Record<ToolCall["status"], readonly [string, Glyph, Tone]>> = {
  waiting: ["waits", "waiting", "waiting"],
  open: ["running", "running", "running"],
  done: ["done", "complete", "complete"],
  failed: ["failed", "failed", "failed"],
  rejected: ["rejected", "rejected", "idle"],
  cancelled: ["cancelled", "cancelled", "idle"],
  cut: ["cut off", "interrupted", "idle"],
  unknown: ["may have acted", "unknown", "unknown"],
  held_back: ["held back", "pending", "idle"],
};

export function callState(status: ToolCall["status"]): Pick<StateWords, "word" | "glyph" | "tone"> {
  const [word, glyph, tone] = entryOf(CALL_WORDS, status) ?? [status, "pending", "idle"];
  return { word, glyph, tone };
}
