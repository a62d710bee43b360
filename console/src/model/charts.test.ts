import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  answerTimes,
  costOfRows,
  costOfRuns,
  countOf,
  FAMILIES,
  familyOf,
  modelLatencies,
  niceScale,
  outcomesOf,
  percentilesOf,
  RateCounter,
  rateOf,
  toolFailureRate,
  toolFigures,
  withRest,
  WINDOWS,
} from "./charts.ts";
import { RunStore } from "./events/store.ts";
import type { RunView } from "./events/views.ts";
import { RESTOCK, RESTOCK_RUN } from "./fixtures/index.ts";
import pauses from "./fixtures/pauses.json" with { type: "json" };

const store = new RunStore();
store.apply(RESTOCK);
const RUNS = store.all() as RunView[];

const BUCKET = {
  bucket_start: "2026-11-28T06:00:00Z",
  bucket_end: "2026-11-28T06:01:00Z",
  counts: { "task.completed": 3, "task.failed": 1, "tool.completed": 6, "tool.failed": 2, "llm.cost.recorded": 4, "session.opened": 1 },
};

describe("events over time", () => {
  it("are stacked by family, failures on top, each event once", () => {
    const [column] = rateOf([BUCKET]);
    expect(column).toMatchObject({ total: 17, counts: { llm: 4, tool: 6, task: 3, other: 1, failed: 3, control: 0 } });
    expect(["pause.requested", "control.applied", "nodot"].map(familyOf)).toEqual(["control", "control", "other"]);
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.nat(99)), (counts) => {
        const [one] = rateOf([{ ...BUCKET, counts }]);
        expect(FAMILIES.reduce((sum, family) => sum + (one?.counts[family] ?? 0), 0)).toBe(Object.values(counts).reduce((a, b) => a + b, 0));
      }),
    );
  });

  it("say how runs ended and how many calls failed", () => {
    expect(outcomesOf([BUCKET])[0]).toMatchObject({ complete: 3, failed: 1, cancelled: 0 });
    expect(toolFailureRate([BUCKET])).toBe(0.25);
    expect(toolFailureRate([{ ...BUCKET, counts: {} }])).toBeNull();
    expect(countOf([BUCKET, BUCKET], ["task.failed"])).toBe(2);
  });

  it("are asked for in whole buckets, at most 2,000", () => {
    for (const { window, bucket } of Object.values(WINDOWS)) {
      expect(window % bucket).toBe(0);
      expect(window / bucket).toBeLessThanOrEqual(2_000);
    }
  });

  it("of the page's own stream are counted by minute", () => {
    const counter = new RateCounter(3);
    for (const second of [0, 10, 70, 200]) counter.add(second * 1000);
    expect(counter.read(200_000)).toEqual([1, 0, 1]);
    for (let minute = 0; minute < 1_000; minute += 1) counter.add(minute * 60_000);
    expect(counter.read(999 * 60_000)).toEqual([1, 1, 1]);
  });
});

describe("cost", () => {
  const row = (agent: string, usd: number | undefined, tenant = "acme") => ({
    agent_name: agent,
    ...(usd === undefined ? {} : { cost_usd: usd }),
    parent_session_id: "s",
    identity: { tenant, user: "ada" },
  });

  it("is put down to agents, the dearest first, and each bar leads to its runs", () => {
    const amounts = costOfRows([row("a", 1), row("b", 5), row("a", 2), row("c", undefined)], "agent");
    expect(amounts.map(({ key, value }) => [key, value])).toEqual([
      ["b", 5],
      ["a", 3],
    ]);
    expect(amounts[0]).toMatchObject({ share: 0.625, link: { page: "tasks", filters: { agent: ["b"] } } });
  });

  it("of many is the first few and the rest", () => {
    const many = costOfRows(Array.from({ length: 10 }, (_, at) => row(`a${at}`, at)), "agent");
    const shown = withRest(many, 4, { page: "tasks", filters: {} });
    expect(shown.map((amount) => amount.label)).toEqual(["a9", "a8", "a7", "7 others"]);
    expect(shown.reduce((sum, amount) => sum + amount.value, 0)).toBe(45);
  });

  it("of runs that were followed is known by model", () => {
    expect(costOfRuns(RUNS, "model")).toEqual([]);
    expect(costOfRuns(RUNS, "agent")[0]?.label).toBe("unknown");
  });
});

describe("times", () => {
  it("are told by their middle, their slow end and the slowest", () => {
    expect(percentilesOf([])).toBeNull();
    expect(percentilesOf([5, 1, 3])).toEqual({ count: 3, p50: 3, p95: 3, most: 5 });
    fc.assert(
      fc.property(fc.array(fc.nat(), { minLength: 1 }), (all) => {
        const found = percentilesOf(all);
        expect(all).toContain(found?.p50);
        expect((found?.p50 ?? 0) <= (found?.p95 ?? 0) && (found?.p95 ?? 0) <= (found?.most ?? 0)).toBe(true);
      }),
    );
  });

  it("of answers leave out open pauses and those that no person ends", () => {
    expect(answerTimes(pauses)).toEqual([]);
    const run = store.run(RESTOCK_RUN) as RunView;
    expect(answerTimes(run.pauses)).toHaveLength(2);
    expect(answerTimes([{ reason: "approval_required", paused_at: "2026-11-28T06:00:00Z", resumed_at: "2026-11-28T06:00:02Z" }])).toEqual([2000]);
    expect(modelLatencies(RUNS)).toEqual([]);
  });

  it("and failures of tools come from the runs that called them", () => {
    const figures = toolFigures(RUNS);
    expect(figures[0]).toMatchObject({ tool: "fetch_quote", calls: 1, failed: 1, failureRate: 1 });
    expect(figures.find((one) => one.tool === "look")).toMatchObject({ calls: 3, failed: 0 });
  });
});

describe("a scale", () => {
  it("begins at zero, ends at or above the most, in few round steps", () => {
    expect(niceScale(7)).toEqual({ top: 8, ticks: [0, 2, 4, 6, 8] });
    expect(niceScale(0)).toEqual({ top: 1, ticks: [0, 1] });
    fc.assert(
      fc.property(fc.double({ min: 1e-6, max: 1e12, noNaN: true }), (most) => {
        const { top, ticks } = niceScale(most);
        expect(top).toBeGreaterThanOrEqual(most * (1 - 1e-6));
        expect(top).toBeLessThanOrEqual(most * 2.6);
        expect(ticks.length).toBeLessThanOrEqual(6);
        expect(ticks[0]).toBe(0);
      }),
    );
  });
});
