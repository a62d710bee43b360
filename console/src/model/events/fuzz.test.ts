import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { spansOfRun } from "../bars/bars.ts";
import { rowsOf } from "../bars/rows.ts";
import { jumpsOf, ledgerOf, minimapOf } from "../bars/strip.ts";
import { conversationOf } from "../conversation.ts";
import { controlName, fateOf } from "../fates.ts";
import { stateOfRun } from "../status.ts";
import { timeMap } from "../time-map.ts";
import { FOLDED_TYPES } from "./fold.ts";
import { lastMoment, standAt } from "./moment.ts";
import { RunStore } from "./store.ts";
import type { RunView } from "./views.ts";
import type { WireEvent } from "./wire.ts";

const START = Date.UTC(2026, 10, 28);
const few = <T>(...values: T[]): fc.Arbitrary<T> => fc.constantFrom(...values);
const anything = fc.oneof(fc.jsonValue({ maxDepth: 1 }), fc.constant(undefined));

/** Payloads with the keys of the wire, whose values are right, wrong or missing. */
const payload = fc.record(
  {
    TaskID: few("a", "b", "c"),
    ParentTaskID: few<unknown>("a", "b", null),
    Step: fc.oneof(fc.integer({ min: -1, max: 5 }), anything),
    CallID: few<unknown>("1", "2", "__proto__", 7),
    Tool: few("look", "order", ""),
    ToolName: few("look", "order", ""),
    Token: few("t1", "t2", ""),
    PauseToken: few("t1", "t2"),
    Reason: few("approval_required", "await_input", "x"),
    Decision: few("approve", "reject", "timeout"),
    DecisionKind: few<unknown>("CallTool", "CallParallel", "AwaitTask", "SpawnTask", "Finish", 3),
    Type: few("APPROVE", "CANCEL", "constructor"),
    Outcome: few("applied", "failed", "known", "unknown", "repeated"),
    EventID: few("e1", "e2"),
    Kind: few("content", "reasoning"),
    Delta: few<unknown>("text", 4),
    Done: fc.boolean(),
    Usage: anything,
    Cost: anything,
    Args: anything,
    Result: anything,
    ArgsCut: fc.oneof(fc.constant({ Preview: "p", Bytes: 9, ArtifactID: "art" }), anything),
    ResultCut: fc.oneof(fc.constant({ Preview: "p", Bytes: 9, ArtifactID: "art" }), anything),
    By: fc.oneof(fc.constant({ TenantID: "t", UserID: "ada", SessionID: "s" }), anything),
    Deadline: few<unknown>("2026-11-29T00:00:00Z", "soon", 5),
    Identity: fc.oneof(fc.constant({ RunID: "b" }), anything),
  },
  { requiredKeys: [] },
);

const events = fc
  .array(
    fc.record({
      type: fc.oneof(few(...FOLDED_TYPES), few("bus.dropped", "session.opened", "constructor", "x")),
      run: few<string | undefined>("a", "b", undefined),
      payload: fc.oneof({ weight: 20, arbitrary: payload }, { weight: 1, arbitrary: anything }),
      after: fc.nat(20_000),
    }),
    { maxLength: 60 },
  )
  .map((all) =>
    all.map(({ type, run, payload: body, after }, at): WireEvent => ({
      ...{ type, tenant: "t", user: "u", session: "s", sequence: (at + 1) * 4096, payload: body },
      ...(run ? { run } : {}),
      occurred_at: new Date(START + at * 10_000 + after).toISOString(),
    })),
  );

/** What holds of every run, whatever its events were. */
function check(run: RunView, store: RunStore): void {
  const numbers = run.steps.map((step) => step.number);
  expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
  const calls = run.steps.flatMap((step) => step.calls.map((call) => call.id));
  expect(new Set(calls).size).toBe(calls.length);
  for (const step of run.steps) {
    if (step.endedAt !== null) expect(step.waits.every((wait) => wait.settledAt !== null)).toBe(true);
    for (const child of step.children) expect(run.children).toContain(child);
  }
  const now = lastMoment(run) + 1;
  const options = { toggled: new Set<string>(), childOf: (id: string) => store.run(id), effectsOf: () => "", now };
  const rows = rowsOf(run, options);
  expect(new Set(rows.map((row) => row.id)).size).toBe(rows.length);
  const map = timeMap(spansOfRun(run, options.childOf), { width: 800, now });
  for (const row of rows) for (const bar of row.bars) expect(Number.isFinite(map.x(bar.start))).toBe(true);
  for (const text of [stateOfRun(run).word, ...run.controls.flatMap((control) => [fateOf(control).text, controlName(control.type)])]) {
    expect(text).toEqual(expect.stringMatching(/./));
  }
  expect(Number.isFinite(ledgerOf([run]).usd)).toBe(true);
  minimapOf(run, 50, now);
  jumpsOf(run);
  conversationOf(run);
  for (const step of run.steps) standAt(run, step.startedAt);
}

describe("whatever a server sends", () => {
  it("is folded into runs that every page can show", () => {
    fc.assert(
      fc.property(events, (all) => {
        const store = new RunStore();
        store.apply(all);
        for (const run of store.all()) check(run, store);
      }),
      { numRuns: 300 },
    );
  });

  it("comes out the same in one batch, in many, and in any order once the runs are watched", () => {
    fc.assert(
      fc.property(events, fc.infiniteStream(fc.nat(9)), (all, cuts) => {
        const batch = new RunStore();
        const shuffled = new RunStore();
        const identity = { tenant: "t", user: "u", session: "s" };
        for (const store of [batch, shuffled]) for (const id of ["a", "b", "c"]) store.watch(id, identity);
        const named = all.filter((event) => event.run);
        batch.apply(named);
        for (const event of named.toSorted(() => (cuts.next().value as number) - 4.5)) shuffled.apply([event]);
        for (const id of ["a", "b", "c"]) expect(shuffled.run(id)).toEqual(batch.run(id));
      }),
      { numRuns: 100 },
    );
  });
});
