import type { ControlView } from "./events/views.ts";
import { entryOf } from "./json.ts";
import { formatDuration } from "./formats.ts";
import type { Glyph, Tone } from "./status.ts";

/** What became of a control, in words that claim no more than its events tell. */
export interface FateWords {
  readonly text: string;
  readonly glyph: Glyph;
  readonly tone: Tone;
  readonly isSettled: boolean;
}

/** Why an applied control failed, by the code of its event. */
const FAILURES: Readonly<Record<string, string>> = {
  no_outstanding_pause: "no pause is open",
  already_resumed: "another answer came first",
  pause_not_found: "the pause is not open any more",
  payload_invalid: "what was sent does not fit",
  scope_mismatch: "this token may not answer it",
  tool_context_lost: "the call that waited is gone",
  misconfigured: "the run cannot take it",
  apply_failed: "it could not be applied",
};

/** What a control that was refused would have needed. */
const NEEDED: Readonly<Record<string, string>> = { PRIORITIZE: "admin" };

const NAMES: Readonly<Record<string, string>> = {
  CANCEL: "cancel",
  PAUSE: "pause",
  RESUME: "resume",
  REDIRECT: "redirect",
  INJECT_CONTEXT: "context",
  APPROVE: "approve",
  REJECT: "reject",
  PRIORITIZE: "priority",
  USER_MESSAGE: "message",
};

/** The short name of a control, as on its flag. */
export function controlName(type: string): string {
  return entryOf(NAMES, type) ?? (type.toLowerCase().replaceAll("_", " ") || "control");
}

/** The fate of a control. `isRunWaiting` tells that a sent one is not read before the run goes on. */
export function fateOf(control: ControlView, isRunWaiting = false): FateWords {
  switch (control.outcome) {
    case "sent":
      return fate(isRunWaiting ? "Sent, is read when the run goes on" : "Sent", "sent", "idle", false);
    case "received":
      return fate("Received", "received", "running", false);
    case "applied":
      return fate(appliedWords(control), "applied", "complete", true);
    case "failed":
      return fate(`Failed: ${failureWords(control.error)}`, "failed", "failed", true);
    case "rejected":
      return fate(rejectedWords(control), "rejected", "failed", true);
    case "not_sent":
      return fate(`Not sent: ${control.error || "no answer"}`, "rejected", "failed", true);
  }
}

function fate(text: string, glyph: Glyph, tone: Tone, isSettled: boolean): FateWords {
  return { text, glyph, tone, isSettled };
}

function appliedWords(control: ControlView): string {
  const step = control.step === null ? "" : ` before step ${control.step}`;
  const took = control.sentAt === null || control.settledAt === null ? null : control.settledAt - control.sentAt;
  return took === null || took < 0 ? `Applied${step}` : `Applied${step} after ${formatDuration(took)}`;
}

export function failureWords(code: string): string {
  return entryOf(FAILURES, code) ?? (code.replaceAll("_", " ") || "the runtime gave no reason");
}

function rejectedWords(control: ControlView): string {
  const needed = control.error === "scope_mismatch" ? entryOf(NEEDED, control.type) : undefined;
  return `Rejected: ${control.error || "no reason"}${needed ? `, needs ${needed}` : ""}`;
}
