import { describe, expect, it } from "vitest";
import { RunStore } from "../events/store.ts";
import type { RunView } from "../events/views.ts";
import { parseTime, type WireEvent } from "../events/wire.ts";
import { RESTOCK, RESTOCK_RUN, SHIP, SHIP_RUN } from "../fixtures/index.ts";
import { timeMap } from "../time-map.ts";
import { barsOfStep, leastWidth, spansOfRun } from "./bars.ts";
import { laneOf } from "./lanes.ts";
import { activeTime, rowsOf, type RowOptions } from "./rows.ts";
import { costAt, findSteps, jumpsOf, ledgerOf, minimapOf } from "./strip.ts";

function storeOf(events: readonly WireEvent[]): RunStore {
  const store = new RunStore();
  store.apply(events);
  return store;
}

const NOW = (parseTime(RESTOCK.at(-1)?.occurred_at) ?? 0) + 3_600_000;
const EFFECTS: Record<string, string> = { place_order: "external", ship: "external", look: "read" };

function optionsOf(store: RunStore, toggled: string[] = []): RowOptions {
  return {
    toggled: new Set(toggled),
    childOf: (id) => store.run(id),
    effectsOf: (tool) => EFFECTS[tool] ?? "",
    now: NOW,
  };
}

/** A run of one parallel step with these calls. */
function parallel(calls: readonly string[], steps = 1): RunView {
  let sequence = 0;
  const event = (type: string, payload: object): WireEvent => ({
    ...{ type, sequence: (sequence += 4096), tenant: "t", user: "u", session: "s", run: "r", payload },
    occurred_at: new Date(Date.UTC(2026, 10, 28, 6) + (sequence / 4096) * 1000).toISOString(),
  });
  const events = Array.from({ length: steps }, (_, at) => [
    event("llm.cost.recorded", { Step: at + 1, Usage: { TotalTokens: 10, LatencyMS: 100 }, Cost: { TotalCost: 0.5 } }),
    event("planner.decision", { Step: at + 1, DecisionKind: "CallParallel" }),
    ...calls.map((tool, call) => event("tool.invoked", { Step: at + 1, CallID: `${at}.${call}`, ToolName: tool, Args: { at } })),
    ...calls.map((tool, call) =>
      event(tool === "bad" ? "tool.failed" : "tool.completed", { Step: at + 1, CallID: `${at}.${call}`, ToolName: tool, Attempts: 3, ErrorMessage: "HTTP 503" }),
    ),
  ]).flat();
  return storeOf(events).run("r") as RunView;
}

describe("rows", () => {
  const store = storeOf(RESTOCK);
  const run = store.run(RESTOCK_RUN) as RunView;
  const rows = rowsOf(run, optionsOf(store));

  it("are steps, parallel calls as 1.1, 1.2 …, and the child's steps in place", () => {
    expect(rows.map((row) => [row.label, row.depth, row.title])).toEqual([
      ["1", 0, "3 calls side by side"],
      ["1.1", 1, "look"],
      ["1.2", 1, "look"],
      ["1.3", 1, "look"],
      ["2", 0, "child run"],
      ["1", 1, "fetch_quote"],
      ["2", 1, "finish"],
      ["3", 0, "big_report"],
      ["4", 0, "waits for a child run"],
      ["5", 0, "place_order"],
      ["6", 0, "place_order"],
      ["7", 0, "finish"],
    ]);
  });

  it("have ids of their own, also when the same run is shown twice", () => {
    expect(new Set(rows.map((row) => row.id)).size).toBe(rows.length);
  });

  it("say what came of calls behind the bar", () => {
    expect(rows.filter((row) => row.callId).map((row) => row.note)).toEqual([
      "2",
      "40",
      "0 · 2 attempts",
      "failed: HTTP 503",
      expect.stringContaining("line of the report"),
      "order 4411: 12 tea",
      "rejected: enough salt",
    ]);
    expect(rows[1]?.args).toBe('item="tea"');
  });

  it("draw a tool with effects and the wait before it, and the failed call notched", () => {
    const order = rows.find((row) => row.label === "5" && row.depth === 0);
    expect(order?.bars.map((bar) => bar.kind)).toEqual(["model", "wait", "effect"]);
    expect(rows.find((row) => row.title === "fetch_quote")?.bars.map((bar) => bar.kind)).toEqual(["model", "failed"]);
    expect(rows.find((row) => row.label === "4")?.bars.map((bar) => bar.kind)).toEqual(["model", "await"]);
  });

  it("count the time at work without waits for people", () => {
    const order = run.steps[4];
    const row = rows.find((one) => one.label === "5" && one.depth === 0);
    const [wait] = order?.waits ?? [];
    const waited = (wait?.settledAt ?? 0) - (wait?.openedAt ?? 0);
    expect(waited).toBeGreaterThan(0);
    expect(row?.activeMs).toBeCloseTo((order?.endedAt ?? 0) - (order?.startedAt ?? 0) - waited, 3);
    expect(activeTime(run, NOW)).toBeLessThan((run.endedAt ?? 0) - (run.startedAt ?? 0));
  });

  it("fold and unfold as a person toggles them, and are the same objects where nothing changed", () => {
    const id = rows[0]?.id ?? "";
    const folded = rowsOf(run, optionsOf(store, [id]));
    expect(folded).toHaveLength(rows.length - 3);
    expect(folded[0]?.bars.map((bar) => bar.kind)).toEqual(["model", "tool", "tool", "tool"]);
    expect(folded.at(-1)).toBe(rows.at(-1));
  });

  it("tear the bar of a call whose worker was lost", () => {
    const lost = storeOf(SHIP.slice(0, SHIP.findIndex((event) => event.type === "pause.requested") + 1));
    const [row] = rowsOf(lost.run(SHIP_RUN) as RunView, optionsOf(lost));
    expect(row).toMatchObject({ tone: "unknown", note: "may have acted" });
    expect(row?.bars.map((bar) => [bar.kind, bar.end === null])).toEqual([
      ["model", false],
      ["unknown", false],
      ["wait", true],
    ]);
  });

  it("fold five or more alike calls in a row to one", () => {
    const wide = parallel(["look", ...Array<string>(8).fill("check_url"), "bad"]);
    const none = new RunStore();
    expect(rowsOf(wide, optionsOf(none)).map((row) => [row.label, row.title])).toEqual([
      ["1", "10 calls side by side"],
      ["1.1", "look"],
      ["1.2–1.9", "check_url ×8"],
      ["1.10", "bad"],
    ]);
    const unfolded = rowsOf(wide, optionsOf(none, [rowsOf(wide, optionsOf(none))[2]?.id ?? ""]));
    expect(unfolded).toHaveLength(12);
    expect(unfolded.find((row) => row.title === "bad")?.note).toBe("failed after 3 attempts: HTTP 503");
  });

  it("begin folded in a long run", () => {
    const long = parallel(["a", "b"], 200);
    const none = new RunStore();
    expect(rowsOf(long, optionsOf(none))).toHaveLength(200);
    expect(rowsOf(long, optionsOf(none, ["r/7"]))).toHaveLength(202);
  });

  it("unfold no run inside of itself", () => {
    const loop: RunView = { ...run, steps: run.steps.map((step) => ({ ...step, children: step.children.map((child) => ({ ...child, id: run.id })) })) };
    expect(rowsOf(loop, { ...optionsOf(store), childOf: () => loop })).toHaveLength(10);
  });
});

describe("bars", () => {
  it("keep failed and unknown ones wide enough to be seen", () => {
    expect([leastWidth("model"), leastWidth("failed"), leastWidth("unknown")]).toEqual([2, 8, 13]);
  });

  it("count the work of a child that is not unfolded, so that its time is not folded away", () => {
    const store = storeOf(RESTOCK);
    const run = store.run(RESTOCK_RUN) as RunView;
    const spans = spansOfRun(run, (id) => store.run(id));
    const child = store.run(run.children[0]?.id ?? "") as RunView;
    expect(spans.some((span) => !span.isIdle && span.start === child.steps[0]?.startedAt)).toBe(true);
    expect(timeMap(spans, { width: 800, now: NOW }).end).toBeLessThan(NOW);
  });

  it("show a streaming model call as open", () => {
    const store = storeOf(RESTOCK.slice(0, 12));
    const [step] = store.run(RESTOCK_RUN)?.steps ?? [];
    expect(step && barsOfStep(step, () => "")).toMatchObject([{ kind: "model", end: null }]);
  });
});

describe("the strip, the minimap and lanes", () => {
  const run = parallel(["a", "bad"], 300);

  it("adds tokens and cost along the line", () => {
    const ledger = ledgerOf([run]);
    expect(ledger).toMatchObject({ usd: 150, tokens: 3000, mostTokens: 10 });
    expect(costAt(ledger.costs, ledger.bars[0]?.end ?? 0)).toBeGreaterThan(0);
    expect(costAt(ledger.costs, 0)).toBe(0);
  });

  it("has at most so many columns, each step in one, the worst mark of each", () => {
    const columns = minimapOf(run, 100, NOW);
    expect(columns).toHaveLength(100);
    expect(columns[0]).toMatchObject({ first: 1, last: 3, mark: "failed" });
    expect(columns.at(-1)).toMatchObject({ last: 300, cost: 1 });
    expect(columns.every((column) => column.height >= 0 && column.height <= 1)).toBe(true);
  });

  it("finds steps and those to jump to", () => {
    expect(jumpsOf(run).failed).toHaveLength(300);
    const recorded = storeOf(RESTOCK).run(RESTOCK_RUN) as RunView;
    expect(jumpsOf(recorded)).toEqual({ failed: [], waits: [5, 6, 7], controls: [6, 7] });
    expect(findSteps(recorded, "ORDER tea")).toEqual([5, 7]);
  });

  it("cuts a lane to its window and joins what is near", () => {
    const recorded = storeOf(RESTOCK).run(RESTOCK_RUN) as RunView;
    const from = recorded.steps[4]?.startedAt ?? 0;
    const lane = laneOf(recorded, { from, to: NOW, nearest: 0 }, () => "");
    expect(lane.bars.every((bar) => bar.start >= from)).toBe(true);
    expect(lane.bars.some((bar) => bar.kind === "wait")).toBe(true);
    const near = laneOf(recorded, { from: 0, to: NOW, nearest: 1e6 }, () => "");
    expect(near.bars.length).toBeLessThan(laneOf(recorded, { from: 0, to: NOW, nearest: 0 }, () => "").bars.length);
  });
});
