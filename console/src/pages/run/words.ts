import type { RunHeader } from "../../wire/types.ts";
import type { Moment, PauseView, RunView } from "../../model/events/views.ts";
import { formatDuration, formatTime } from "../../model/formats.ts";

/** "Waits for ada until 18:00 (3 h 29 m), then rejected": as much of it as the server says. */
export function waitSentence(pause: PauseView, now: Moment): string {
  const who = personsOf(pause.approvers);
  const until = pause.deadline === null ? "" : ` until ${formatTime(pause.deadline, { now })} (${leftOf(pause.deadline - now)})`;
  const then = pause.deadline === null ? "" : defaultWords(pause.default);
  return `Waits${who ? ` for ${who}` : ""}${until}${then}.`;
}

/** The people of `approvers`; whoever may act by a scope is not a name. */
export function personsOf(approvers: readonly string[]): string {
  return approvers
    .filter((one) => one.startsWith("user:"))
    .map((one) => one.slice(5))
    .join(", ");
}

function leftOf(ms: number): string {
  return ms <= 0 ? "the time is over" : formatDuration(ms < 60_000 ? ms : Math.floor(ms / 60_000) * 60_000);
}

const DEFAULTS: Readonly<Record<string, string>> = {
  reject: ", then it is rejected",
  approve: ", then it is approved",
  resume: ", then the run goes on",
  timeout: ", then the agent is told that nobody answered in time",
};

function defaultWords(name: string): string {
  return DEFAULTS[name] ?? "";
}

/** What a run may take, with what of it is used; null where no limit is set. */
export function budgetOf(run: RunView, header: RunHeader | null): { used: number; limit: number } | null {
  const limit = header?.limits?.usd ?? 0;
  return limit > 0 ? { used: run.usd, limit } : null;
}

export function userOf(by: { readonly user: string } | null): string {
  return by?.user ?? "";
}
