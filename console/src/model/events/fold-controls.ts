import type { RunState } from "./run-state.ts";
import type { ControlView, Moment } from "./views.ts";
import { numberAt, payloadOf, principalAt, textAt, type WireEvent } from "./wire.ts";

/** A control that this console sends. `type` as on the wire of events, such as `APPROVE`. */
export interface SentControl {
  readonly run: string;
  readonly type: string;
  readonly eventId: string;
  readonly at: Moment;
}

export function noteSent(state: RunState, sent: SentControl): void {
  const at = state.controls.findLastIndex((control) => control.eventId !== "" && control.eventId === sent.eventId);
  const known = state.controls[at];
  state.touch();
  if (known) state.controls[at] = { ...known, sentAt: sent.at };
  else state.controls.push(newControl(state, sent.type, { eventId: sent.eventId, sentAt: sent.at }));
}

/** The server did not take it: an answer other than 200, or none. */
export function noteNotSent(state: RunState, eventId: string, code: string, at: Moment): void {
  change(state, find(state, (control) => control.eventId === eventId), (control) =>
    control.outcome === "sent" ? { outcome: "not_sent", error: code, settledAt: at } : {},
  );
}

export function foldControl(state: RunState, event: WireEvent, now: Moment): void {
  const payload = payloadOf(event);
  const type = textAt(payload, "Type");
  const eventId = textAt(payload, "EventID");
  const at = find(state, eventId ? sameId(eventId, type) : firstUnsettled(event.type, type));
  const place = at >= 0 ? at : state.controls.push(newControl(state, type, { eventId })) - 1;
  change(state, place, (control) => ({
    ...changeOf(event, now),
    eventId: control.eventId || eventId,
    by: principalAt(payload, "By") ?? control.by,
    step: numberAt(payload, "Step") ?? control.step,
  }));
}

/** A control that was sent without an id of ours gets it by its first event. */
function sameId(eventId: string, type: string): (control: ControlView) => boolean {
  return (control) => control.eventId === eventId || (control.eventId === "" && control.type === type && isPending(control));
}

function isPending(control: ControlView): boolean {
  return control.outcome === "sent";
}

/** Without ids events and controls of a type are matched first in, first out. */
function firstUnsettled(event: string, type: string): (control: ControlView) => boolean {
  const among: readonly string[] =
    event === "control.received" ? ["sent"] : event === "control.applied" ? ["received", "sent"] : ["sent", "not_sent"];
  return (control) => control.type === type && among.includes(control.outcome);
}

function changeOf(event: WireEvent, now: Moment): Partial<ControlView> {
  const payload = payloadOf(event);
  switch (event.type) {
    case "control.received":
      return { outcome: "received", receivedAt: now };
    case "control.rejected":
      return {
        outcome: "rejected",
        settledAt: now,
        error: textAt(payload, "Reason"),
        neededScope: textAt(payload, "CallerScope"),
      };
    default:
      return textAt(payload, "Outcome") === "failed"
        ? { outcome: "failed", settledAt: now, error: textAt(payload, "Err") }
        : { outcome: "applied", settledAt: now };
  }
}

function newControl(state: RunState, type: string, known: Partial<ControlView>): ControlView {
  return {
    key: `control-${state.controls.length + 1}`,
    type,
    eventId: "",
    sentAt: null,
    receivedAt: null,
    settledAt: null,
    outcome: "sent",
    error: "",
    neededScope: "",
    step: null,
    by: null,
    ...known,
  };
}

function find(state: RunState, wanted: (control: ControlView) => boolean): number {
  return state.controls.findIndex(wanted);
}

function change(state: RunState, at: number, changed: (control: ControlView) => Partial<ControlView>): void {
  const control = state.controls[at];
  if (!control) return;
  state.touch();
  state.controls[at] = { ...control, ...changed(control) };
}
