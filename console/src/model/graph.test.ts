import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RunStore } from "./events/store.ts";
import { RESTOCK, TASKS } from "./fixtures/index.ts";
import { activityOf, layoutGraph } from "./graph.ts";

const ids = fc.uniqueArray(fc.constantFrom(..."abcdefghij".split("")), { minLength: 1 });
const graph = ids.chain((names) =>
  fc.record({
    nodes: fc.constant(names.map((id) => ({ id }))),
    edges: fc.array(fc.record({ from: fc.constantFrom(...names, "elsewhere"), to: fc.constantFrom(...names) }), { maxLength: 25 }),
  }),
);

describe("the layout of a graph", () => {
  it("places every node once, none over another, inside of its bounds", () => {
    fc.assert(
      fc.property(graph, ({ nodes, edges }) => {
        const layout = layoutGraph(nodes, edges);
        expect(layout.nodes.map((one) => one.node.id).sort()).toEqual(nodes.map((node) => node.id).sort());
        const corners = new Set(layout.nodes.map((one) => `${one.x} ${one.y}`));
        expect(corners.size).toBe(nodes.length);
        for (const one of layout.nodes) {
          expect(one.x + 120).toBeLessThanOrEqual(layout.width);
          expect(one.y + 30).toBeLessThanOrEqual(layout.height);
        }
      }),
    );
  });

  it("draws each edge to the right, but for those that close a circle", () => {
    fc.assert(
      fc.property(graph, ({ nodes, edges }) => {
        for (const edge of layoutGraph(nodes, edges).edges) if (!edge.isBack) expect(edge.x2).toBeGreaterThan(edge.x1);
      }),
    );
    const circle = [
      { from: "a", to: "b" },
      { from: "b", to: "a" },
    ];
    expect(layoutGraph([{ id: "a" }, { id: "b" }], circle).edges.map((edge) => edge.isBack)).toEqual([false, true]);
  });

  it("puts neighbours beside each other, so that edges do not cross where they need not", () => {
    const nodes = ["in", "a", "b", "x", "y"].map((id) => ({ id }));
    const edges = [
      { from: "in", to: "a" },
      { from: "in", to: "b" },
      { from: "a", to: "y" },
      { from: "b", to: "x" },
    ];
    const y = new Map(layoutGraph(nodes, edges).nodes.map((one) => [one.node.id, one.y]));
    expect(Math.sign((y.get("a") ?? 0) - (y.get("b") ?? 0))).toBe(Math.sign((y.get("y") ?? 0) - (y.get("x") ?? 0)));
  });

  it("holds for a chain of many nodes and for none", () => {
    const nodes = Array.from({ length: 5_000 }, (_, at) => ({ id: `${at}` }));
    const edges = nodes.slice(1).map((node, at) => ({ from: `${at}`, to: node.id }));
    expect(layoutGraph(nodes, edges).nodes.at(-1)?.layer).toBe(4_999);
    expect(layoutGraph([], [])).toEqual({ nodes: [], edges: [], width: 0, height: 0 });
  });
});

describe("what runs do", () => {
  it("is agents, their tools and the agents that they start", () => {
    const store = new RunStore();
    store.apply(RESTOCK);
    for (const row of TASKS) store.noteTask(row);
    const runs = store.all();
    const { nodes, edges } = activityOf(runs, Math.max(...runs.map((run) => run.endedAt ?? 0)));
    expect(nodes.map((node) => [node.kind, node.name, node.total])).toContainEqual(["tool", "look", 3]);
    expect(nodes.find((node) => node.name === "fetch_quote")).toMatchObject({ failed: 1, active: 0 });
    expect(edges).toContainEqual({ from: "agent restock", to: "agent restock", count: 1, active: 0 });
    expect(edges).toContainEqual({ from: "agent restock", to: "tool place_order", count: 2, active: 0 });
  });
});
