import { entryOf, type Json, type JsonObject } from "../json.ts";
import type { ControlView, Moment, PauseView, RunView } from "../events/views.ts";
import { fateOf, type FateWords } from "../fates.ts";
import { formatDuration } from "../formats.ts";
import type { ArgsChange } from "./patch.ts";

export type AnswerVerb = "approve" | "reject" | "resume";

/** An answer that this console gave to a pause. */
export interface GivenAnswer {
  readonly run: string;
  readonly token: string;
  readonly verb: AnswerVerb;
  readonly eventId: string;
  readonly at: Moment;
}

/**
 * Where an answer is: `sent` when the server took it, `received` when the run read it, `counted` when the pause ended by
 * it, `second` when somebody else's came first, `failed`, `rejected` or `not_sent` when it changed nothing.
 */
export type AnswerPhase = "sent" | "received" | "counted" | "second" | "failed" | "rejected" | "not_sent";

export interface AnswerFate {
  readonly phase: AnswerPhase;
  readonly words: FateWords;
  /** Whether the row may leave the list. */
  readonly isOver: boolean;
}

const SECOND_CODES: readonly string[] = ["already_resumed", "pause_not_found", "no_outstanding_pause"];

/** The fate of an answer, by what the events of its run tell. Nothing counts before its event. */
export function answerFate(given: GivenAnswer, run: RunView | undefined, now: Moment): AnswerFate {
  const control = run?.controls.find((one) => one.eventId === given.eventId);
  const pause = run?.pauses.findLast((one) => one.token === given.token);
  if (control && (control.outcome === "not_sent" || control.outcome === "rejected")) return refused(control);
  if (pause && isMine(pause, given, control)) return counted(control);
  if (isSecond(pause, given, control)) return second(pause, now);
  if (control?.outcome === "failed") return refused(control);
  const phase = control?.outcome === "received" || control?.outcome === "applied" ? "received" : "sent";
  return { phase, words: fateOf(control ?? unseen(given)), isOver: false };
}

/** A server that does not say which control ended a pause: ours did if it was applied and the decision is the same. */
function isMine(pause: PauseView, given: GivenAnswer, control: ControlView | undefined): boolean {
  if (pause.settledAt === null) return false;
  if (pause.eventId) return pause.eventId === given.eventId;
  return control?.outcome === "applied" && pause.decision === given.verb;
}

function isSecond(pause: PauseView | undefined, given: GivenAnswer, control: ControlView | undefined): boolean {
  if (control?.outcome === "failed" && SECOND_CODES.includes(control.error)) return true;
  if (!pause || pause.settledAt === null) return false;
  return pause.eventId ? pause.eventId !== given.eventId : pause.by !== null || pause.decision !== given.verb;
}

function counted(control: ControlView | undefined): AnswerFate {
  const words = control ? fateOf(control) : { text: "Applied", glyph: "applied" as const, tone: "complete" as const, isSettled: true };
  return { phase: "counted", words, isOver: true };
}

function second(pause: PauseView | undefined, now: Moment): AnswerFate {
  const first = pause ? answeredWords(pause, now) : "Another answer came first.";
  const text = `${first} Your answer came second and was not counted.`;
  return { phase: "second", words: { text, glyph: "rejected", tone: "idle", isSettled: true }, isOver: true };
}

function refused(control: ControlView): AnswerFate {
  const phase = control.outcome as "failed" | "rejected" | "not_sent";
  return { phase, words: fateOf(control), isOver: false };
}

function unseen(given: GivenAnswer): ControlView {
  return {
    ...{ key: given.eventId, type: given.verb.toUpperCase(), eventId: given.eventId, sentAt: given.at },
    ...{ receivedAt: null, settledAt: null, outcome: "sent", error: "", neededScope: "", step: null, by: null },
  };
}

const DECIDED: Readonly<Record<string, string>> = {
  approve: "approved",
  reject: "rejected",
  resume: "answered",
};

/** How a pause ended, for everybody: "ben approved this 4 s ago, as it was asked." */
export function answeredWords(pause: PauseView, now: Moment): string {
  const ago = pause.settledAt === null ? "" : ` ${agoWords(now - pause.settledAt)}`;
  if (pause.decision === "timeout") return `The deadline ended this${ago}.`;
  const verb = entryOf(DECIDED, pause.decision) ?? "answered";
  const how = pause.decision !== "approve" ? "" : pause.isEdited ? ", with changes" : ", as it was asked";
  return pause.by ? `${pause.by.user} ${verb} this${ago}${how}.` : `This was ${verb} elsewhere${ago}${how}.`;
}

function agoWords(ms: number): string {
  if (ms < 1000) return "just now";
  return `${formatDuration(ms < 60_000 ? Math.floor(ms / 1000) * 1000 : ms).replace(/\.0 s$/, " s")} ago`;
}

/** Buttons ignore clicks for so long after the row under them changed. */
export const CLICK_GUARD_MS = 400;

export function mayClick(changedAt: Moment, now: Moment): boolean {
  return now - changedAt >= CLICK_GUARD_MS;
}

// ── Payloads ──────────────────────────────────────────────────────────────────────────────────────────────────────────

export interface ApproveOptions {
  readonly change?: ArgsChange;
  readonly reason?: string;
  readonly remember?: "run" | "always";
}

export function approvePayload(token: string, options: ApproveOptions = {}): JsonObject {
  const { change, reason, remember } = options;
  return {
    token,
    ...(reason ? { reason } : {}),
    ...(remember ? { remember } : {}),
    ...(change?.kind === "patch" ? { args_patch: change.args_patch } : {}),
    ...(change?.kind === "args" ? { args: change.args } : {}),
  };
}

export function rejectPayload(token: string, reason = ""): JsonObject {
  return reason ? { token, reason } : { token };
}

/** The answer to a question. */
export function answerPayload(token: string, answer: Json): JsonObject {
  return { token, answer };
}

/** A call of unknown outcome acted, with this result; or it did not, and runs again. */
export function actedPayload(token: string, acted: true, result: Json): JsonObject;
export function actedPayload(token: string, acted: false): JsonObject;
export function actedPayload(token: string, acted: boolean, result?: Json): JsonObject {
  return acted ? { token, acted, result: result ?? null } : { token, acted };
}
