import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RunStore } from "../events/store.ts";
import type { RunView, StepView } from "../events/views.ts";
import { RESTOCK, RESTOCK_RUN, RESTOCK_STEPS } from "../fixtures/index.ts";
import step2 from "../fixtures/restock-step-2.json" with { type: "json" };
import step5 from "../fixtures/restock-step-5.json" with { type: "json" };
import type { Json } from "../json.ts";
import type { RecordedStep } from "../events/history.ts";
import { comparisonOfAnswer, figuresOfAnswer, type CompareAnswer } from "./answer.ts";
import { diffLines, diffWords } from "./diff.ts";
import { diffMessages, sawOfAsk, type Message } from "./messages.ts";
import { compareFigures, compareRuns, diffJson } from "./runs.ts";

const store = new RunStore();
store.apply(RESTOCK);
const RUN = store.run(RESTOCK_RUN) as RunView;

function withStep(number: number, change: (step: StepView) => StepView): RunView {
  return { ...RUN, steps: RUN.steps.map((step) => (step.number === number ? change(step) : step)) };
}

const lines = fc.array(fc.constantFrom("a", "b b", "c", "", "d e f"), { maxLength: 30 }).map((all) => all.join("\n"));

describe("a difference of texts", () => {
  it("gives back both sides, line by line and numbered", () => {
    fc.assert(
      fc.property(lines, lines, (left, right) => {
        const found = diffLines(left, right);
        const side = (kind: "add" | "del"): string =>
          found.filter((line) => line.kind !== kind).map((line) => line.parts.map((part) => part.text).join("")).join("\n");
        expect(side("add")).toBe(left);
        expect(side("del")).toBe(right);
        const numbers = found.flatMap((line) => line.left ?? []);
        expect(numbers).toEqual(numbers.map((_, at) => at + 1));
        if (left === right) expect(found.every((line) => line.kind === "same")).toBe(true);
      }),
    );
  });

  it("gives back both sides, word by word, in whatever script", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), fc.string({ unit: "grapheme" }), (left, right) => {
        const parts = diffWords(left, right);
        expect(parts.filter((part) => part.kind !== "add").map((part) => part.text).join("")).toBe(left);
        expect(parts.filter((part) => part.kind !== "del").map((part) => part.text).join("")).toBe(right);
      }),
    );
  });

  it("marks only the words that changed in a changed line", () => {
    expect(diffLines("the count is 20", "the count is 12").map((line) => line.parts)).toEqual([
      [
        { kind: "same", text: "the count is " },
        { kind: "del", text: "20" },
      ],
      [
        { kind: "same", text: "the count is " },
        { kind: "add", text: "12" },
      ],
    ]);
  });

  it("ends soon for long texts that share nothing", () => {
    const text = (word: string): string => Array.from({ length: 20_000 }, (_, at) => `${word} ${at}`).join("\n");
    expect(diffLines(text("left"), text("right"))).toHaveLength(40_000);
  });
});

describe("what a step saw", () => {
  it("is one folded line and what is new, as the server tells it", () => {
    const saw = sawOfAsk(step5.saw.asks[0] as unknown as { unchanged: number; messages: Message[] });
    expect(saw.map((line) => line.kind)).toEqual(["unchanged", "new", "new", "new"]);
    expect(saw[0]).toMatchObject({ count: 10 });
    expect(sawOfAsk(step2.saw.asks[0] as unknown as { unchanged: number; messages: Message[] })[0]?.kind).toBe("unchanged");
  });

  it("shows what left a prompt as gone, and sums the tokens of what did not change", () => {
    const message = (text: string, tokens?: number): Message => ({
      role: "user",
      parts: [{ type: "text", text }],
      ...(tokens ? { tokens } : {}),
    });
    const before = [message("system", 5), message("one", 7), message("two", 9), message("last", 1)];
    const now = [message("system", 5), message("a summary", 2), message("last", 1)];
    expect(diffMessages(before, now)).toMatchObject([
      { kind: "unchanged", count: 1, tokens: 5 },
      { kind: "gone" },
      { kind: "gone" },
      { kind: "new" },
      { kind: "unchanged", count: 1, tokens: 1 },
    ]);
  });
});

describe("two runs", () => {
  it("that are alike have no difference", () => {
    expect(compareRuns(RUN, RUN)).toMatchObject({ shared: 7, rows: [], first: null, differences: [] });
  });

  it("have their first difference named by step, argument and tool", () => {
    const other = withStep(5, (step) => ({
      ...step,
      calls: step.calls.map((call) => ({ ...call, args: { item: "tea", count: 5, token: "***" } })),
    }));
    const found = compareRuns(RUN, other);
    expect(found.first).toEqual({ step: 5, path: "count", tool: "place_order" });
    expect(found).toMatchObject({ shared: 4, differences: [0] });
    expect(found.rows[0]?.changes).toEqual([{ path: "count", left: 12, right: 5 }]);
  });

  it("keep their rows aligned where one has a step more, which faces a hole", () => {
    const shorter = { ...RUN, steps: RUN.steps.filter((step) => step.number !== 3) };
    const found = compareRuns(RUN, shorter);
    expect(found.shared).toBe(2);
    expect(found.rows.map((row) => [row.left?.number ?? null, row.right?.number ?? null])).toEqual([
      [3, null],
      [4, 4],
      [5, 5],
      [6, 6],
      [7, 7],
    ]);
    expect(found.differences).toEqual([0]);
  });

  it("show every step of both once and in order, whatever they are", () => {
    const picked = fc.subarray(RUN.steps as StepView[]);
    fc.assert(
      fc.property(picked, picked, (left, right) => {
        const found = compareRuns({ ...RUN, steps: left }, { ...RUN, steps: right });
        const shared = left.slice(0, found.shared);
        expect([...shared, ...found.rows.flatMap((row) => row.left ?? [])]).toEqual(left);
        expect([...shared, ...found.rows.flatMap((row) => row.right ?? [])]).toEqual(right);
      }),
    );
  });

  it("have figures with their difference", () => {
    const figures = compareFigures(RUN, { ...RUN, usd: RUN.usd + 0.5 }, 0);
    expect(figures.find((figure) => figure.name === "usd")?.change).toBe(0.5);
    expect(figures.find((figure) => figure.name === "calls")?.left).toBe(6);
  });
});

describe("a comparison by the server", () => {
  const [one, two, three] = RESTOCK_STEPS.steps;
  const header = RESTOCK_STEPS.run as unknown as CompareAnswer["runs"][number];
  const other = { ...header, totals: { ...header.totals, usd: 0.5 } };
  const answer: CompareAnswer = {
    runs: [header, other],
    shared_steps: 1,
    difference: { step: 3, kind: "arguments", what: "step 3 calls big_report with other arguments", path: "kind" },
    rows: [
      { left: two as RecordedStep, right: two as RecordedStep, same: true, changes: [] },
      { left: three as RecordedStep, right: three as RecordedStep, same: false, changes: [{ path: "kind", left: "sales", right: "stock" }] },
      { left: one as RecordedStep, same: false, changes: [] },
    ],
  };

  it("has the shape of one that was made here", () => {
    const found = comparisonOfAnswer([answer]);
    expect(found).toMatchObject({ shared: 1, differences: [1, 2], first: { step: 3, path: "kind", tool: "big_report" } });
    expect(found.rows[2]?.right).toBeNull();
    expect(found.what).toMatch(/other arguments/);
    expect(figuresOfAnswer(answer).find((figure) => figure.name === "usd")?.change).toBe(0.5);
  });
});

describe("a difference of JSON", () => {
  it("names the path of each value", () => {
    expect(diffJson({ a: 1, b: [1, { c: 2 }], d: 1 }, { a: 1, b: [1, { c: 3 }], e: null })).toEqual([
      { path: "b[1].c", left: 2, right: 3 },
      { path: "d", left: 1 },
      { path: "e", right: null },
    ]);
  });

  it("is empty for the same value only", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 3 }), fc.jsonValue({ maxDepth: 3 }), (left, right) => {
        const isSame = JSON.stringify(sorted(left as Json)) === JSON.stringify(sorted(right as Json));
        expect(diffJson(left as Json, right as Json).length === 0).toBe(isSame);
      }),
    );
  });
});

function sorted(value: Json): Json {
  if (Array.isArray(value)) return value.map((item) => sorted(item as Json));
  if (typeof value !== "object" || value === null) return Object.is(value, -0) ? 0 : value;
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, one]) => [key, sorted(one)]));
}
