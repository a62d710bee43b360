import type { Moment, RunView } from "./events/views.ts";

export interface GraphNode {
  readonly id: string;
}

export interface GraphEdge {
  readonly from: string;
  readonly to: string;
}

export interface GraphSizes {
  readonly nodeWidth: number;
  readonly nodeHeight: number;
  readonly gapX: number;
  readonly gapY: number;
}

const SIZES: GraphSizes = { nodeWidth: 120, nodeHeight: 30, gapX: 70, gapY: 20 };

/** A node with the place of its upper left corner. */
export interface PlacedNode<N extends GraphNode> {
  readonly node: N;
  readonly layer: number;
  readonly x: number;
  readonly y: number;
}

/** An edge from the right side of one node to the left side of another; one that goes back is drawn around. */
export interface PlacedEdge<E extends GraphEdge> {
  readonly edge: E;
  readonly x1: number;
  readonly y1: number;
  readonly x2: number;
  readonly y2: number;
  readonly isBack: boolean;
}

export interface GraphLayout<N extends GraphNode, E extends GraphEdge> {
  readonly nodes: readonly PlacedNode<N>[];
  readonly edges: readonly PlacedEdge<E>[];
  readonly width: number;
  readonly height: number;
}

/** Lay a graph out from left to right: topology and flows. The same graph has the same layout. */
export function layoutGraph<N extends GraphNode, E extends GraphEdge>(
  nodes: readonly N[],
  edges: readonly E[],
  sizes: GraphSizes = SIZES,
): GraphLayout<N, E> {
  const known = new Map(nodes.map((node) => [node.id, node]));
  const drawn = edges.filter((edge) => known.has(edge.from) && known.has(edge.to));
  const back = backEdges([...known.keys()], drawn);
  const forward = drawn.filter((edge) => !back.has(edge));
  const layers = orderLayers(layersOf([...known.keys()], forward), forward);
  const tallest = Math.max(0, ...layers.map((layer) => layer.length));
  const stepY = sizes.nodeHeight + sizes.gapY;
  const placed = new Map<string, PlacedNode<N>>();
  layers.forEach((ids, layer) => {
    const top = ((tallest - ids.length) * stepY) / 2;
    ids.forEach((id, at) => {
      const x = layer * (sizes.nodeWidth + sizes.gapX);
      placed.set(id, { node: known.get(id) as N, layer, x, y: top + at * stepY });
    });
  });
  return {
    nodes: [...placed.values()],
    edges: drawn.map((edge) => placeEdge(edge, placed, sizes, back.has(edge))),
    width: Math.max(0, layers.length * (sizes.nodeWidth + sizes.gapX) - sizes.gapX),
    height: Math.max(0, tallest * stepY - sizes.gapY),
  };
}

function placeEdge<N extends GraphNode, E extends GraphEdge>(
  edge: E,
  placed: ReadonlyMap<string, PlacedNode<N>>,
  sizes: GraphSizes,
  isBack: boolean,
): PlacedEdge<E> {
  const from = placed.get(edge.from) as PlacedNode<N>;
  const to = placed.get(edge.to) as PlacedNode<N>;
  const middle = sizes.nodeHeight / 2;
  return { edge, x1: from.x + sizes.nodeWidth, y1: from.y + middle, x2: to.x, y2: to.y + middle, isBack };
}

/** The edges that close a circle, and those from a node to itself. */
function backEdges<E extends GraphEdge>(ids: readonly string[], edges: readonly E[]): Set<E> {
  const outgoing = new Map<string, E[]>(ids.map((id) => [id, []]));
  for (const edge of edges) outgoing.get(edge.from)?.push(edge);
  const back = new Set<E>();
  const state = new Map<string, "open" | "done">();
  for (const id of ids) if (!state.has(id)) visit(id, outgoing, state, back);
  return back;
}

/** Depth first, with a stack of our own: a graph may be one long chain. */
function visit<E extends GraphEdge>(root: string, outgoing: ReadonlyMap<string, E[]>, state: Map<string, "open" | "done">, back: Set<E>): void {
  const stack = [{ id: root, next: 0 }];
  state.set(root, "open");
  while (stack.length) {
    const top = stack[stack.length - 1] as { id: string; next: number };
    const edge = outgoing.get(top.id)?.[top.next++];
    if (!edge) {
      state.set(top.id, "done");
      stack.pop();
    } else if (state.get(edge.to) === "open") back.add(edge);
    else if (!state.has(edge.to)) {
      state.set(edge.to, "open");
      stack.push({ id: edge.to, next: 0 });
    }
  }
}

/** Each node in the layer behind all that lead to it. */
function layersOf(ids: readonly string[], edges: readonly GraphEdge[]): string[][] {
  const waits = new Map(ids.map((id) => [id, 0]));
  const outgoing = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const { from, to } of edges) {
    waits.set(to, (waits.get(to) ?? 0) + 1);
    outgoing.get(from)?.push(to);
  }
  const layerOf = new Map<string, number>();
  const ready = ids.filter((id) => waits.get(id) === 0);
  for (const id of ready) layerOf.set(id, 0);
  for (let at = 0; at < ready.length; at += 1) {
    const id = ready[at] as string;
    for (const to of outgoing.get(id) ?? []) {
      layerOf.set(to, Math.max(layerOf.get(to) ?? 0, (layerOf.get(id) ?? 0) + 1));
      waits.set(to, (waits.get(to) ?? 1) - 1);
      if (waits.get(to) === 0) ready.push(to);
    }
  }
  const layers: string[][] = [];
  for (const id of ids) (layers[layerOf.get(id) ?? 0] ??= []).push(id);
  return layers;
}

const SWEEPS = 4;

/** Order each layer by where its neighbours stand, so that few edges cross. */
function orderLayers(layers: readonly string[][], edges: readonly GraphEdge[]): string[][] {
  const before = neighbours(edges, "to", "from");
  const behind = neighbours(edges, "from", "to");
  const ordered = layers.map((layer) => [...layer]);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForward = sweep % 2 === 0;
    const order = isForward ? ordered.keys() : [...ordered.keys()].reverse();
    const places = placesOf(ordered);
    for (const at of order) {
      ordered[at] = sortLayer(ordered[at] as string[], isForward ? before : behind, places);
      ordered[at].forEach((id, place) => places.set(id, place));
    }
  }
  return ordered;
}

function neighbours(edges: readonly GraphEdge[], of: "from" | "to", other: "from" | "to"): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const edge of edges) found.set(edge[of], [...(found.get(edge[of]) ?? []), edge[other]]);
  return found;
}

function placesOf(layers: readonly (readonly string[])[]): Map<string, number> {
  return new Map(layers.flatMap((layer) => layer.map((id, place): [string, number] => [id, place])));
}

function sortLayer(layer: readonly string[], near: ReadonlyMap<string, string[]>, places: ReadonlyMap<string, number>): string[] {
  const weights = layer.map((id, place) => {
    const others = near.get(id) ?? [];
    const sum = others.reduce((total, other) => total + (places.get(other) ?? 0), 0);
    return { id, place, weight: others.length ? sum / others.length : place };
  });
  return weights.sort((a, b) => a.weight - b.weight || a.place - b.place).map(({ id }) => id);
}

// ── What runs do, as a graph ──────────────────────────────────────────────────────────────────────────────────────────

export interface ActivityNode extends GraphNode {
  readonly kind: "agent" | "tool";
  readonly name: string;
  /** Calls or runs that go on now. */
  readonly active: number;
  readonly waiting: number;
  /** Of the last minute. */
  readonly failed: number;
  readonly total: number;
}

export interface ActivityEdge extends GraphEdge {
  readonly count: number;
  readonly active: number;
}

const RECENTLY_MS = 60_000;

/** Agents, the tools that they call and the agents that they start, as the runs that are known show it. */
export function activityOf(runs: readonly RunView[], now: Moment): { nodes: ActivityNode[]; edges: ActivityEdge[] } {
  const nodes = new Map<string, ActivityNode>();
  const edges = new Map<string, ActivityEdge>();
  const agents = new Map(runs.map((run) => [run.id, run.agent || "agent"]));
  for (const run of runs) {
    const id = `agent ${agents.get(run.id)}`;
    const isGoing = run.endedAt === null;
    const isWaiting = isGoing && run.pauses.some((pause) => pause.settledAt === null);
    const isFailed = run.status === "failed" && now - (run.endedAt ?? 0) <= RECENTLY_MS;
    count(nodes, id, "agent", agents.get(run.id) ?? "", { active: Number(isGoing && !isWaiting), waiting: Number(isWaiting), failed: Number(isFailed) });
    for (const call of run.steps.flatMap((step) => step.calls)) {
      const isOpen = call.status === "open";
      const recently = call.status === "failed" && now - (call.endedAt ?? 0) <= RECENTLY_MS;
      count(nodes, `tool ${call.tool}`, "tool", call.tool, { active: Number(isOpen), waiting: Number(call.status === "waiting"), failed: Number(recently) });
      connect(edges, id, `tool ${call.tool}`, isOpen);
    }
    const parent = agents.get(run.parentId);
    if (parent) connect(edges, `agent ${parent}`, id, isGoing);
  }
  return { nodes: [...nodes.values()], edges: [...edges.values()] };
}

type Counts = Pick<ActivityNode, "active" | "waiting" | "failed">;

function count(nodes: Map<string, ActivityNode>, id: string, kind: ActivityNode["kind"], name: string, by: Counts): void {
  const known = nodes.get(id) ?? { id, kind, name, active: 0, waiting: 0, failed: 0, total: 0 };
  const { active, waiting, failed, total } = known;
  nodes.set(id, { ...known, active: active + by.active, waiting: waiting + by.waiting, failed: failed + by.failed, total: total + 1 });
}

function connect(edges: Map<string, ActivityEdge>, from: string, to: string, isActive: boolean): void {
  const key = JSON.stringify([from, to]);
  const known = edges.get(key) ?? { from, to, count: 0, active: 0 };
  edges.set(key, { ...known, count: known.count + 1, active: known.active + Number(isActive) });
}
