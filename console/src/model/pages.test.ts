import { describe, expect, it } from "vitest";
import { answerOfResult, conversationOf } from "./conversation.ts";
import { alertsOf, artifactOf, EventList, exportEvents, matches, summaryOf, toCsv } from "./event-list.ts";
import { RunStore } from "./events/store.ts";
import type { RunView } from "./events/views.ts";
import type { WireEvent } from "./events/wire.ts";
import { FAIL, RESTOCK, RESTOCK_RUN, SHIP_RUN } from "./fixtures/index.ts";
import pauses from "./fixtures/pauses.json" with { type: "json" };
import { approverWords, defaultWords, inboxItem, inboxOf, mayAnswer, openItems, type PauseSnapshot } from "./inbox.ts";

const SNAPSHOTS = pauses as unknown as PauseSnapshot[];

function runUntil(count: number): RunView {
  const store = new RunStore();
  store.apply(RESTOCK.slice(0, count));
  return store.run(RESTOCK_RUN) as RunView;
}

describe("a run as a conversation", () => {
  it("has reasoning, text before calls, calls, pauses and steers in order, and the answer apart", () => {
    const { items, answer, isAnswering } = conversationOf(runUntil(RESTOCK.length));
    const lines = items.map((item) => `${"step" in item ? (item.step ?? "") : ""} ${item.kind}`);
    expect(lines.slice(0, 6)).toEqual(["1 reasoning", "1 text", "1 call", "1 call", "1 call", "2 text"]);
    expect(lines.indexOf("6 control")).toBeLessThan(lines.indexOf("6 call"));
    expect(answer).toBe("Ordered **12 tea**. The salt order was rejected.");
    expect(isAnswering).toBe(false);
    expect(new Set(items.map((item) => item.id)).size).toBe(items.length);
  });

  it("streams what is being decided as the answer, until a call shows that it was none", () => {
    const chunk = RESTOCK.findIndex((event) => (event.payload as { Kind?: string }).Kind === "content");
    expect(conversationOf(runUntil(chunk + 1))).toMatchObject({ answer: "Let ", isAnswering: true });
    const decided = RESTOCK.findIndex((event) => event.type === "tool.invoked");
    expect(conversationOf(runUntil(decided + 1)).answer).toBe("");
  });

  it("puts the final answer in the place of the streamed one", () => {
    const store = new RunStore();
    store.apply(RESTOCK);
    store.noteAnswer(RESTOCK_RUN, answerOfResult('{"answer":"Final.","finish_reason":"goal"}') ?? "");
    expect(conversationOf(store.run(RESTOCK_RUN) as RunView).answer).toBe("Final.");
    expect([answerOfResult("oops"), answerOfResult("{}")]).toEqual([null, ""]);
  });

  it("ends a failed run with a line", () => {
    const store = new RunStore();
    store.apply(FAIL);
    expect(conversationOf(store.all()[0] as RunView).items.at(-1)).toMatchObject({ kind: "end", error: "runloop_error" });
  });
});

describe("the list of events", () => {
  it("keeps the newest, each once, the newest on top", () => {
    const list = new EventList(10);
    list.push(RESTOCK);
    list.push(RESTOCK);
    expect(list.read().map((event) => event.sequence)).toEqual(RESTOCK.slice(-10).map((event) => event.sequence).reverse());
  });

  it("loses nothing while it is paused", () => {
    const list = new EventList();
    list.push(RESTOCK.slice(0, 5));
    list.pause();
    list.push(RESTOCK.slice(5, 25));
    expect([list.read().length, list.waitingCount]).toEqual([5, 20]);
    list.goOn();
    expect(list.read().map((event) => event.sequence).reverse()).toEqual(RESTOCK.slice(0, 25).map((event) => event.sequence));
  });

  it("counts what the server left out", () => {
    const list = new EventList();
    list.push([{ ...(RESTOCK[0] as WireEvent), type: "bus.dropped", payload: { DroppedCount: 4 } }]);
    expect(list.dropped).toBe(4);
  });

  it("is filtered by type, identity, run and text", () => {
    const decision = RESTOCK.find((event) => event.type === "planner.decision") as WireEvent;
    expect(matches(decision, { types: ["planner.decision"], run: RESTOCK_RUN, session: "s-7", text: "three SHELVES" })).toBe(true);
    expect(matches(decision, { user: "ada" })).toBe(false);
    const spawned = RESTOCK.find((event) => event.type === "task.spawned") as WireEvent;
    expect(matches(spawned, { run: RESTOCK_RUN })).toBe(true);
  });

  it("sums an event up, and finds the artifact of a cut payload", () => {
    expect(summaryOf(RESTOCK.find((event) => event.type === "control.rejected") as WireEvent)).toBe("PRIORITIZE · scope_mismatch");
    expect(artifactOf({ ...(RESTOCK[0] as WireEvent), payload: { artifact_ref: { id: "art-1" } } })).toBe("art-1");
  });

  it("is exported as lines of JSON and as CSV without formulas", () => {
    expect(exportEvents(RESTOCK, "ndjson").trim().split("\n").map((line) => JSON.parse(line) as unknown)).toEqual(RESTOCK);
    expect(exportEvents(RESTOCK.slice(0, 3), "csv").split("\r\n")).toHaveLength(5);
    expect(toCsv([["=1+1", 'a "b"', "x,y", "plain"]])).toBe(`'=1+1,"a ""b""","x,y",plain\r\n`);
  });

  it("tells alerts once a type with their count", () => {
    const alert = (type: string, sequence: number): WireEvent => ({ ...(RESTOCK[0] as WireEvent), type, sequence });
    const found = alertsOf([alert("runtime.error", 1), alert("bus.dropped", 2), alert("runtime.error", 3), ...RESTOCK]);
    expect(found.map((one) => [one.type, one.count])).toEqual([
      ["runtime.error", 2],
      ["bus.dropped", 1],
    ]);
  });
});

describe("the inbox", () => {
  it("says of each row what is asked, of which call, and until when", () => {
    const items = inboxOf(SNAPSHOTS);
    expect(items.map((item) => [item.kind, item.tool, item.step, item.callId])).toEqual([
      ["approval", "place_order", 5, "5"],
      ["outcome", "ship", 1, "1"],
    ]);
    expect(items[0]).toMatchObject({ run: RESTOCK_RUN, isMasked: true, takesPatches: true, args: { count: 20 }, schema: { type: "object" } });
    expect(items[1]).toMatchObject({ run: SHIP_RUN, isMasked: false, args: { item: "tea" } });
    expect(defaultWords(items[0] ?? { default: "" })).toBe("then rejected");
  });

  it("puts the soonest deadline on top, then the oldest", () => {
    const row = SNAPSHOTS[0] as PauseSnapshot;
    const { deadline: _, ...open } = row;
    const rows = [
      { ...open, token: "young", paused_at: "2026-11-28T06:00:02Z" },
      { ...open, token: "old", paused_at: "2026-11-28T06:00:01Z" },
      { ...row, token: "later", deadline: "2027-01-01T00:00:00Z" },
      { ...row, token: "soon", deadline: "2026-12-01T00:00:00Z" },
      { ...row, token: "gone", state: "resumed" },
    ];
    expect(inboxOf(rows).map((item) => item.token)).toEqual(["soon", "later", "old", "young"]);
  });

  it("of a foreign server takes arguments for masked, and shows no deadline", () => {
    const { token, reason, state, identity, paused_at, resumed_at, payload } = SNAPSHOTS[0] as PauseSnapshot;
    const item = inboxItem({ token, reason, state, identity, paused_at, resumed_at, payload });
    expect(item).toMatchObject({ isMasked: true, takesPatches: false, deadline: null, step: null, approvers: [] });
    expect(mayAnswer(item, "anyone", [])).toBe(true);
    expect(mayAnswer({ ...item, run: "" }, "anyone", [])).toBe(false);
  });

  it("knows who may answer", () => {
    const item = inboxItem(SNAPSHOTS[0] as PauseSnapshot);
    expect([mayAnswer(item, "dev", []), mayAnswer(item, "ben", []), mayAnswer(item, "ben", ["admin"])]).toEqual([true, false, true]);
    expect(approverWords(item.approvers)).toBe("dev, or whoever has the scope admin");
  });

  it("drops what the stream told to be answered", () => {
    const store = new RunStore();
    store.apply(RESTOCK);
    const items = inboxOf(SNAPSHOTS);
    expect(openItems(items, (id) => store.run(id)).map((item) => item.run)).toEqual([SHIP_RUN]);
  });
});
