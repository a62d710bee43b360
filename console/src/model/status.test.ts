import { describe, expect, it } from "vitest";
import { RunStore } from "./events/store.ts";
import type { ControlView, RunView } from "./events/views.ts";
import { fateOf } from "./fates.ts";
import { RESTOCK, RESTOCK_RUN, SHIP, SHIP_RUN } from "./fixtures/index.ts";
import pauses from "./fixtures/pauses.json" with { type: "json" };
import { stateOf, stateOfRun, stepTitle, waitingOnSnapshot } from "./status.ts";
import type { WireEvent } from "./events/wire.ts";

function until(events: readonly WireEvent[], type: string, id: string): RunView {
  const store = new RunStore();
  store.apply(events.slice(0, events.findIndex((event) => event.type === type) + 1));
  return store.run(id) as RunView;
}

describe("the state of a run", () => {
  it.each([
    [{ status: "pending" }, "Pending", "pending"],
    [{ status: "running" }, "Running", "running"],
    [{ status: "running", condition: "interrupted" }, "Interrupted", "interrupted"],
    [{ status: "paused", condition: "blocked" }, "Blocked", "blocked"],
    [{ status: "complete", condition: "interrupted" }, "Complete", "complete"],
    [{ status: "failed", errorClass: "runloop_error" }, "Failed", "failed"],
    [{ status: "failed", errorClass: "cancelled" }, "Cancelled", "cancelled"],
    [{ status: "hibernating" }, "hibernating", "pending"],
  ])("%j is %s", (facts, word, glyph) => expect(stateOf(facts)).toMatchObject({ word, glyph }));

  it("names what failed in mono", () => expect(stateOf({ status: "failed", errorClass: "boom" }).code).toBe("boom"));

  it("says on whom it waits", () => {
    expect(stateOfRun(until(RESTOCK, "tool.approval_requested", RESTOCK_RUN))).toMatchObject({
      word: "Waiting",
      on: "approve place_order",
      glyph: "waiting",
    });
    expect(stateOfRun(until(SHIP, "pause.requested", SHIP_RUN))).toMatchObject({ on: "outcome of ship", glyph: "unknown" });
    const [approval, outcome] = pauses.map((one) => stateOf({ status: "paused", waitingOn: waitingOnSnapshot(one.reason, one.payload) }));
    expect([approval?.on, outcome?.on]).toEqual(["approve place_order", "outcome of ship"]);
    expect(stateOf({ status: "paused", waitingOn: waitingOnSnapshot("await_input", {}) }).on).toBe("an answer");
  });

  it("titles steps", () => {
    const store = new RunStore();
    store.apply(RESTOCK);
    expect(store.run(RESTOCK_RUN)?.steps.map(stepTitle)).toEqual([
      "3 calls side by side",
      "child run",
      "big_report",
      "waits for a child run",
      "place_order",
      "place_order",
      "finish",
    ]);
  });
});

describe("the fate of a control", () => {
  const control: ControlView = {
    key: "1",
    type: "APPROVE",
    eventId: "e",
    sentAt: 1000,
    receivedAt: null,
    settledAt: null,
    outcome: "sent",
    error: "",
    neededScope: "",
    step: null,
    by: null,
  };
  it.each([
    [{}, "Sent"],
    [{ outcome: "received" }, "Received"],
    [{ outcome: "applied", step: 5, settledAt: 1018 }, "Applied before step 5 after 18 ms"],
    [{ outcome: "applied", sentAt: null, settledAt: 1018 }, "Applied"],
    [{ outcome: "failed", error: "no_outstanding_pause" }, "Failed: no pause is open"],
    [{ outcome: "rejected", error: "scope_mismatch", type: "PRIORITIZE" }, "Rejected: scope_mismatch, needs admin"],
    [{ outcome: "not_sent", error: "not_found" }, "Not sent: not_found"],
  ] as const)("%j is told as %s", (change, text) => expect(fateOf({ ...control, ...change }).text).toBe(text));

  it("says of a run that waits when it is read", () => {
    expect(fateOf(control, true).text).toBe("Sent, is read when the run goes on");
  });
});
