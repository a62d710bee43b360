import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { asForeign, FAIL, RESTOCK, RESTOCK_RUN, RESTOCK_STEPS, SHIP, SHIP_RUN, SHIP_STEPS, SHIP_WAITING, TASKS } from "../fixtures/index.ts";
import type { RunHistory } from "./history.ts";
import type { TaskRowFacts } from "./rows.ts";
import { lastMoment, standAt } from "./moment.ts";
import { RunStore } from "./store.ts";
import type { RunView } from "./views.ts";
import { parseTime, STORED_UNIT, type WireEvent } from "./wire.ts";

function folded(events: readonly WireEvent[], id: string): RunView {
  const store = new RunStore();
  store.apply(events);
  return store.run(id) as RunView;
}

describe("a recorded run", () => {
  const run = folded(RESTOCK, RESTOCK_RUN);

  it("has its steps with their decisions, calls and ends", () => {
    expect(run.steps.map((step) => [step.number, step.status, step.decision])).toEqual([
      [1, "done", "CallParallel"],
      [2, "done", "SpawnTask"],
      [3, "done", "CallTool"],
      [4, "done", "AwaitTask"],
      [5, "done", "CallTool"],
      [6, "done", "CallTool"],
      [7, "done", "Finish"],
    ]);
    expect(run.steps[0]?.calls.map((call) => [call.id, call.status, call.attempts, call.args, call.result])).toEqual([
      ["1.1", "done", 1, { item: "tea" }, 2],
      ["1.2", "done", 1, { item: "rice" }, 40],
      ["1.3", "done", 2, { item: "salt" }, 0],
    ]);
    expect(run.steps[2]?.calls[0]?.resultCut?.bytes).toBeGreaterThan(4096);
    expect(run.status).toBe("complete");
  });

  it("puts streamed text and reasoning at the step that it led to", () => {
    expect(run.steps[0]?.reasoning).toBe("Three shelves do not depend on each other.");
    expect(run.steps[0]?.text).toBe("Let me look at the shelves.");
    expect(run.steps[6]?.text).toBe("Ordered **12 tea**. The salt order was rejected.");
  });

  it("knows who approved what, that it was edited, and what was rejected", () => {
    const [approved, rejected, paused] = run.pauses;
    expect(approved).toMatchObject({ decision: "approve", isEdited: true, eventId: "ev-1", tool: "place_order" });
    expect(approved?.by?.user).toBe("dev");
    expect(approved?.args).toMatchObject({ count: 20 });
    expect(run.steps[4]?.calls[0]).toMatchObject({ status: "done", args: { count: 12 }, isEdited: true, isMasked: true });
    expect(rejected).toMatchObject({ decision: "reject" });
    expect(run.steps[5]?.calls[0]).toMatchObject({ status: "rejected", startedAt: null, error: { message: "enough salt" } });
    expect(paused).toMatchObject({ reason: "external_event", decision: "resume", step: 7 });
  });

  it("tells the fate of each control", () => {
    const fates = run.controls.map((control) => [control.type, control.eventId, control.outcome, control.error]);
    expect(fates).toContainEqual(["APPROVE", "ev-bad", "failed", "payload_invalid"]);
    expect(fates).toContainEqual(["APPROVE", "ev-1", "applied", ""]);
    expect(fates).toContainEqual(["PRIORITIZE", "", "rejected", "scope_mismatch"]);
    expect(run.controls.find((control) => control.eventId === "ev-msg-1")).toMatchObject({ outcome: "applied", step: 6 });
  });

  it("has its child run at the step that started it", () => {
    expect(run.children).toHaveLength(1);
    const child = folded(RESTOCK, run.children[0]?.id ?? "");
    expect(run.children[0]).toMatchObject({ step: 2, kind: "background" });
    expect(child.parentId).toBe(RESTOCK_RUN);
    expect(child.steps[0]).toMatchObject({ status: "failed", tool: "fetch_quote" });
    expect(child.steps[0]?.calls[0]?.error).toEqual({ class: "permanent", message: "HTTP 503" });
  });

  it("shows a call whose worker was lost as unknown until a person said what came of it", () => {
    const asked = SHIP.findIndex((event) => event.type === "pause.requested");
    const waiting = folded(SHIP.slice(0, asked + 1), SHIP_RUN);
    expect(waiting.steps[0]).toMatchObject({ status: "waiting", endedAt: null });
    expect(waiting.steps[0]?.calls[0]).toMatchObject({ status: "unknown", endedAt: null });
    expect(folded(SHIP, SHIP_RUN).steps[0]?.calls[0]?.status).toBe("done");
  });

  it("keeps why a run failed", () => {
    const failed = folded(FAIL, FAIL[0]?.run ?? (FAIL[0]?.payload as { TaskID: string }).TaskID);
    expect(failed).toMatchObject({ status: "failed", errorClass: "runloop_error" });
    expect(failed.steps[0]).toMatchObject({ status: "failed", error: { class: "ProviderError", message: "no" } });
  });
});

describe("streamed text", () => {
  let sequence = 0;
  const event = (type: string, payload: object): WireEvent => ({
    ...{ type, sequence: (sequence += 4096), tenant: "t", user: "u", session: "s", run: "r", payload },
    occurred_at: new Date(Date.UTC(2026, 10, 28, 6) + sequence).toISOString(),
  });
  const piece = (text: string, isDone = false): WireEvent =>
    event("llm.completion.chunk", { TaskID: "r", Delta: text, Done: isDone, Kind: "content" });
  const decided = (number: number, kind: string): WireEvent => event("planner.decision", { Step: number, DecisionKind: kind, Tool: "look" });

  it("is replaced where the model is asked again in the same step", () => {
    const run = folded([piece("bad "), piece("", true), piece("good "), piece("one"), decided(1, "Finish")], "r");
    expect(run.steps[0]?.text).toBe("good one");
  });

  it("may overtake the end of the call before it, which is not taken for cut off", () => {
    const call = { Step: 1, CallID: "1", ToolName: "look" };
    const events = [decided(1, "CallTool"), event("tool.invoked", call), piece("Next "), event("tool.completed", { ...call, Attempts: 1 })];
    const before = folded(events.slice(0, 3), "r");
    expect(before.steps.map((step) => step.status)).toEqual(["running", "deciding"]);
    const after = folded([...events, decided(2, "Finish")], "r");
    expect(after.steps.map((step) => step.status)).toEqual(["done", "done"]);
    expect(after.steps[1]?.startedAt).toBe(after.steps[0]?.endedAt);
  });

  it("ends calls without an end when the next step is decided", () => {
    const run = folded([decided(1, "CallTool"), event("tool.invoked", { Step: 1, CallID: "1", ToolName: "look" }), decided(2, "Finish")], "r");
    expect(run.steps[0]).toMatchObject({ status: "cut", calls: [{ status: "cut" }] });
  });
});

describe("a foreign server", () => {
  it("gives the same steps and calls, paired in order", () => {
    const own = folded(RESTOCK, RESTOCK_RUN);
    const foreign = folded(asForeign(RESTOCK), RESTOCK_RUN);
    const shape = (run: RunView) =>
      run.steps.map((step) => [step.number, step.decision, step.status, step.calls.map((call) => [call.tool, call.status])]);
    expect(shape(foreign)).toEqual(shape(own));
    expect(foreign.pauses.map((pause) => [pause.decision, pause.settledAt])).toEqual(
      own.pauses.map((pause) => [pause.decision, pause.settledAt]),
    );
    expect(foreign.pauses[0]).toMatchObject({ isMasked: true, deadline: null, approvers: [] });
  });

  it("gives controls that are matched first in, first out per type", () => {
    const store = new RunStore();
    const events = asForeign(RESTOCK);
    const first = events.findIndex((event) => event.type === "control.received");
    store.apply(events.slice(0, first));
    for (const eventId of ["a", "b", "c"]) store.noteSent({ run: RESTOCK_RUN, type: "APPROVE", eventId, at: 1 });
    store.apply(events.slice(first));
    const approvals = store.run(RESTOCK_RUN)?.controls.filter((control) => control.type === "APPROVE") ?? [];
    expect(approvals.map((control) => [control.eventId, control.outcome])).toEqual([
      ["a", "failed"],
      ["b", "applied"],
      ["c", "failed"],
    ]);
  });

  it("may leave the run out of tool events while one run of the session goes on", () => {
    const events = SHIP.map((event) =>
      event.type.startsWith("tool.") ? { ...withoutRun(event), payload: { ToolName: "ship" } } : event,
    );
    expect(folded(events, SHIP_RUN).steps[0]?.calls[0]?.tool).toBe("ship");
  });
});

function withoutRun(event: WireEvent): WireEvent {
  const { run: _, ...rest } = event;
  return rest;
}

describe("the store", () => {
  it("changes nothing by events that it has folded", () => {
    const store = new RunStore();
    store.apply(RESTOCK);
    const before = store.run(RESTOCK_RUN);
    expect(store.apply(RESTOCK).size).toBe(0);
    expect(store.run(RESTOCK_RUN)).toBe(before);
  });

  it("comes to the same views in whatever order and however often events of a watched run come", () => {
    const stored = RESTOCK.filter((event) => event.sequence % STORED_UNIT === 0);
    const expected = folded(stored, RESTOCK_RUN);
    const order = fc.shuffledSubarray(
      stored.map((_, at) => at),
      { minLength: stored.length },
    );
    fc.assert(
      fc.property(order, fc.array(fc.nat(stored.length - 1)), (places, again) => {
        const store = new RunStore();
        for (const run of [RESTOCK_RUN, expected.children[0]?.id ?? ""]) store.watch(run, expected.identity);
        for (const at of [...places, ...again]) store.apply([stored[at] as WireEvent]);
        expect(store.run(RESTOCK_RUN)).toEqual(expected);
      }),
      { numRuns: 40 },
    );
  });

  it("hands out views that never change, and the same steps where nothing happened", () => {
    const store = new RunStore();
    let before: RunView | undefined;
    let copy = "";
    for (const event of RESTOCK) {
      store.apply([event]);
      const now = store.run(RESTOCK_RUN);
      if (before) expect(JSON.stringify(before)).toBe(copy);
      if (now && before && now !== before && now.steps.length > 3) expect(now.steps[0]).toBe(before.steps[0]);
      before = now;
      copy = JSON.stringify(now);
    }
  });

  it("notes what did not come", () => {
    const store = new RunStore();
    const dropped = { FromSeq: 8192, ToSeq: 16384, DroppedCount: 3, SubscriberID: 1 };
    const event = { ...(RESTOCK[0] as WireEvent), type: "bus.dropped", sequence: 16384, payload: dropped };
    store.apply([event, event]);
    expect(store.gaps).toMatchObject([{ from: 8192, to: 16384, lost: 3 }]);
  });

  it("takes goal and agent from task rows, and the answer when it is there", () => {
    const store = new RunStore();
    store.apply(RESTOCK);
    for (const row of TASKS) store.noteTask(row);
    store.noteAnswer(RESTOCK_RUN, "Done.");
    expect(store.run(RESTOCK_RUN)).toMatchObject({ goal: "Please restock tea and salt", agent: "restock", answer: "Done." });
  });

  it("follows the status of rows while no event told one, and then only to the end", () => {
    const [row] = TASKS.filter((one) => one.id === RESTOCK_RUN);
    const told = (status: string): TaskRowFacts => ({ ...(row as TaskRowFacts), status });
    const store = new RunStore();
    const statuses = ["pending", "running", "paused", "running"].map((status) => {
      store.noteTask(told(status));
      return store.run(RESTOCK_RUN)?.status;
    });
    expect(statuses).toEqual(["pending", "running", "paused", "running"]);
    store.apply(RESTOCK.slice(0, 30));
    store.noteTask(told("pending"));
    expect(store.run(RESTOCK_RUN)?.status).toBe("running");
    store.noteTask(told("complete"));
    expect(store.run(RESTOCK_RUN)?.status).toBe("complete");
  });

  it("stays ended while the beginning of an ended run is told again", () => {
    const store = new RunStore();
    store.noteHistory(RESTOCK_STEPS);
    for (const event of RESTOCK.filter((one) => one.sequence % STORED_UNIT === 0)) {
      store.apply([event]);
      expect(store.run(RESTOCK_RUN)?.status).toBe("complete");
    }
  });

  it("drops ended runs and the oldest steps beyond what it may keep, but sums and what goes on stay", () => {
    const store = new RunStore();
    const events = manySteps(1_000);
    for (let at = 0; at < events.length; at += 50) {
      store.apply(events.slice(at, at + 50));
      store.prune(10, 100);
      expect(store.run("r")?.steps.length).toBeLessThanOrEqual(110);
    }
    const run = store.run("r") as RunView;
    expect(run).toMatchObject({ usd: 1_000, isWhole: false });
    expect(run.steps.at(-1)).toMatchObject({ number: 1_000, status: "done", calls: [{ result: 999 }] });
    store.apply(RESTOCK);
    store.prune(2);
    expect(store.ids()).toHaveLength(2);
  });

  it("keeps watched runs whole", () => {
    const store = new RunStore();
    store.watch("r", { tenant: "t", user: "u", session: "s" });
    store.apply(manySteps(50));
    store.prune(0, 10);
    expect(store.run("r")?.steps).toHaveLength(50);
  });

  it("takes ten times as long for a run that is ten times as long, not a hundred times", { timeout: 30_000 }, () => {
    timed(manySteps(200));
    const small = timed(manySteps(200));
    expect(timed(manySteps(2_000))).toBeLessThan(Math.max(small, 5) * 40);
  });
});

function manySteps(count: number): WireEvent[] {
  const base = { occurred_at: "2026-11-28T06:00:00.000000000Z", tenant: "t", user: "u", session: "s", run: "r" };
  let sequence = 0;
  const event = (type: string, payload: object): WireEvent => ({ ...base, type, sequence: (sequence += 4096), payload });
  return Array.from({ length: count }, (_, at) => {
    const step = { Step: at + 1, CallID: `${at + 1}`, ToolName: "look" };
    return [
      event("llm.completion.chunk", { TaskID: "r", Delta: "word ", Kind: "content" }),
      event("llm.cost.recorded", { ...step, Model: "m", Usage: { TotalTokens: 3 }, Cost: { TotalCost: 1 } }),
      event("planner.decision", { ...step, DecisionKind: "CallTool", Tool: "look" }),
      event("tool.invoked", { ...step, Args: { at } }),
      event("tool.completed", { ...step, Attempts: 1, DurationMS: 1, Result: at }),
    ];
  }).flat();
}

function timed(events: readonly WireEvent[]): number {
  const start = performance.now();
  const store = new RunStore();
  for (let at = 0; at < events.length; at += 100) {
    store.apply(events.slice(at, at + 100));
    store.run("r");
  }
  expect(store.run("r")?.usd).toBe(events.length / 5);
  return performance.now() - start;
}

describe("the stream and the record", () => {
  it.each([
    ["restock", RESTOCK, RESTOCK_STEPS],
    ["ship", SHIP, SHIP_STEPS],
  ])("of %s tell the same", (_, events, record) => {
    const run = folded(events, record.run.id);
    expect(run.status).toBe(record.run.status);
    expect(run.steps.map((step) => [step.number, step.decision, step.status])).toEqual(
      record.steps.map((step) => [step.step, step.decision, step.status]),
    );
    run.steps.forEach((step, at) => {
      const told = record.steps[at] as RunHistory["steps"][number];
      expect(step.calls.map((call) => [call.id, call.tool, call.status])).toEqual(
        told.calls.map((call) => [call.call_id, call.tool, call.status]),
      );
      expect(step.waits.map((wait) => [wait.reason, wait.token, wait.decision])).toEqual(
        told.waits.map((wait) => [wait.reason, wait.token ?? "", wait.decision ?? ""]),
      );
      expect(step.children.map((child) => child.id)).toEqual(told.children.map((child) => child.id));
      expect(Math.abs((step.decidedAt ?? 0) - (parseTime(told.decided_at) ?? 0))).toBeLessThan(500);
      expect(Math.abs((step.endedAt ?? 0) - (parseTime(told.ended_at) ?? 0))).toBeLessThan(500);
    });
  });
});

describe("a record of steps", () => {
  it("gives the run without any event", () => {
    const store = new RunStore();
    store.noteHistory(RESTOCK_STEPS);
    const run = store.run(RESTOCK_RUN) as RunView;
    expect(run.steps).toHaveLength(7);
    expect(run).toMatchObject({ status: "complete", agent: "restock", isWhole: true });
    const { prompt_tokens, completion_tokens } = RESTOCK_STEPS.run.totals;
    expect(run.tokens.total).toBe(prompt_tokens + completion_tokens);
    expect(run.steps[4]?.calls[0]).toMatchObject({ sideEffect: "external", status: "done", args: { count: 12 } });
    expect(run.pauses).toHaveLength(3);
  });

  it("and the stream of the same run give each step, wait and control once, whichever comes first", () => {
    const shape = (run: RunView | undefined) => ({
      steps: run?.steps.map((step) => [step.number, step.status, step.calls.map((call) => call.status), step.waits.length]),
      controls: run?.controls.map((control) => control.eventId).sort(),
      pauses: run?.pauses.length,
      tokens: run?.tokens,
    });
    const first = new RunStore();
    first.noteHistory(RESTOCK_STEPS);
    first.apply(RESTOCK.filter((event) => event.sequence % STORED_UNIT === 0));
    const last = new RunStore();
    last.apply(RESTOCK);
    last.noteHistory(RESTOCK_STEPS);
    expect(shape(first.run(RESTOCK_RUN))).toEqual(shape(last.run(RESTOCK_RUN)));
    const told = { decision: "approve", isEdited: true, eventId: "ev-1", args: { count: 20 }, approvers: ["user:dev", "scope:admin"] };
    for (const store of [first, last]) expect(store.run(RESTOCK_RUN)?.pauses[0]).toMatchObject(told);
    for (const store of [first, last]) expect(store.run(RESTOCK_RUN)?.steps[4]?.calls[0]).toMatchObject({ args: { count: 12 } });
    expect(first.run(RESTOCK_RUN)?.steps[4]?.calls[0]).toMatchObject({ key: expect.stringMatching(/17$/), result: "order 4411: 12 tea" });
  });

  it("keeps a call unknown that the stream told to be lost", () => {
    const store = new RunStore();
    store.apply(SHIP.slice(0, SHIP.findIndex((event) => event.type === "pause.requested") + 1));
    store.noteHistory(SHIP_WAITING);
    expect(store.run(SHIP_RUN)?.steps[0]?.calls[0]).toMatchObject({ status: "unknown", sideEffect: "external" });
    store.noteHistory(SHIP_STEPS);
    expect(store.run(SHIP_RUN)?.steps[0]?.calls[0]?.status).toBe("done");
  });
});

describe("time travel", () => {
  const whole = folded(RESTOCK, RESTOCK_RUN);
  const shape = (run: RunView) => ({
    status: run.status,
    steps: run.steps
      .filter((step) => step.decision !== "")
      .map((step) => [
        step.number,
        step.decision,
        step.calls.map((call) => [call.id, call.status, call.args, call.result]),
        step.waits.map((wait) => [wait.token, wait.settledAt]),
        step.children.length,
      ]),
    pauses: run.pauses.map((pause) => [pause.token, pause.settledAt]),
    controls: run.controls.map((control) => [control.eventId, control.outcome]),
  });

  it("shows at every event what folding the events up to it shows", () => {
    RESTOCK.forEach((event, at) => {
      const now = parseTime(event.occurred_at) as number;
      const isOrdered =
        RESTOCK.slice(0, at).every((other) => other.occurred_at <= event.occurred_at) &&
        RESTOCK.slice(at + 1).every((other) => other.occurred_at > event.occurred_at);
      if (!isOrdered) return;
      const then = folded(RESTOCK.slice(0, at + 1), RESTOCK_RUN) as RunView | undefined;
      if (then) expect(shape(standAt(whole, now))).toEqual(shape(then));
    });
  });

  it("shows the run itself at its end, and keeps the steps that had ended", () => {
    const end = standAt(whole, lastMoment(whole));
    expect(end).toEqual(whole);
    expect(standAt(whole, whole.steps[4]?.decidedAt as number).steps[0]).toBe(whole.steps[0]);
  });
});
