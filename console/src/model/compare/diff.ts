/** A part of a text difference: what both have, only the left, or only the right. */
export interface DiffPart {
  readonly kind: "same" | "del" | "add";
  readonly text: string;
}

/** A line of a difference, with its number on each side; a changed line has its changed words. */
export interface DiffLine {
  readonly kind: "same" | "del" | "add";
  readonly left: number | null;
  readonly right: number | null;
  readonly parts: readonly DiffPart[];
}

/** More edits than this are not looked for: such texts share too little for a difference to help. */
const MOST_EDITS = 500;
const MOST_WORD_EDITS = 200;

interface Run {
  readonly kind: DiffPart["kind"];
  readonly items: readonly string[];
}

/** The lines that differ, and within lines that were changed the words. */
export function diffLines(left: string, right: string): DiffLine[] {
  const runs = diffItems(splitLines(left), splitLines(right), MOST_EDITS);
  const lines: DiffLine[] = [];
  let at = { left: 1, right: 1 };
  runs.forEach((run, index) => {
    const other = run.kind === "del" ? runs[index + 1] : run.kind === "add" ? runs[index - 1] : undefined;
    run.items.forEach((text, place) => {
      const parts = partsOf(run, text, other, place);
      const hasLeft = run.kind !== "add";
      const hasRight = run.kind !== "del";
      lines.push({ kind: run.kind, left: hasLeft ? at.left : null, right: hasRight ? at.right : null, parts });
      at = { left: at.left + (hasLeft ? 1 : 0), right: at.right + (hasRight ? 1 : 0) };
    });
  });
  return lines;
}

function splitLines(text: string): string[] {
  return text === "" ? [] : text.split("\n");
}

/** A line in the place of another: its words are compared. Else the whole line is new or gone. */
function partsOf(run: Run, text: string, other: Run | undefined, place: number): DiffPart[] {
  const match = other && other.kind !== "same" && run.kind !== "same" ? other.items[place] : undefined;
  if (match === undefined) return [{ kind: run.kind, text }];
  const words = run.kind === "del" ? diffWords(text, match) : diffWords(match, text);
  const parts = words.filter((part) => part.kind === "same" || part.kind === run.kind);
  return parts.some((part) => part.kind === "same" && part.text.trim()) ? parts : [{ kind: run.kind, text }];
}

const WORDS = /[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu;

/** The words that differ; the parts of a side, put together, are that side. */
export function diffWords(left: string, right: string): DiffPart[] {
  const runs = diffItems(left.match(WORDS) ?? [], right.match(WORDS) ?? [], MOST_WORD_EDITS);
  return runs.map((run) => ({ kind: run.kind, text: run.items.join("") }));
}

/** The shortest difference of two lists; where they differ too much, all of the left and then all of the right. */
export function diffItems(left: readonly string[], right: readonly string[], mostEdits: number): Run[] {
  const head = sharedHead(left, right);
  const tail = sharedTail(left, right, head);
  const inner = { left: left.slice(head, left.length - tail), right: right.slice(head, right.length - tail) };
  const trace = shortestEdits(inner.left, inner.right, mostEdits);
  const middle = trace ? walkBack(inner.left, inner.right, trace) : replaced(inner.left, inner.right);
  const runs: Run[] = [
    { kind: "same", items: left.slice(0, head) },
    ...middle,
    { kind: "same", items: left.slice(left.length - tail) },
  ];
  return runs.filter((run) => run.items.length > 0);
}

function sharedHead(left: readonly string[], right: readonly string[]): number {
  let count = 0;
  while (count < left.length && count < right.length && left[count] === right[count]) count += 1;
  return count;
}

function sharedTail(left: readonly string[], right: readonly string[], head: number): number {
  const most = Math.min(left.length, right.length) - head;
  let count = 0;
  while (count < most && left[left.length - 1 - count] === right[right.length - 1 - count]) count += 1;
  return count;
}

function replaced(left: readonly string[], right: readonly string[]): Run[] {
  return [
    { kind: "del", items: left },
    { kind: "add", items: right },
  ];
}

/** How far each diagonal gets with so many edits (Myers 1986); null if it takes more than `most`. */
function shortestEdits(left: readonly string[], right: readonly string[], most: number): Map<number, number>[] | null {
  const reach = new Map<number, number>([[1, 0]]);
  const trace: Map<number, number>[] = [];
  const limit = Math.min(left.length + right.length, most);
  for (let edits = 0; edits <= limit; edits += 1) {
    trace.push(new Map(reach));
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      let x = isDown(reach, diagonal, edits) ? (reach.get(diagonal + 1) ?? 0) : (reach.get(diagonal - 1) ?? 0) + 1;
      while (x < left.length && x - diagonal < right.length && left[x] === right[x - diagonal]) x += 1;
      reach.set(diagonal, x);
      if (x >= left.length && x - diagonal >= right.length) return trace;
    }
  }
  return null;
}

function isDown(reach: ReadonlyMap<number, number>, diagonal: number, edits: number): boolean {
  if (diagonal === -edits) return true;
  return diagonal !== edits && (reach.get(diagonal - 1) ?? 0) < (reach.get(diagonal + 1) ?? 0);
}

function walkBack(left: readonly string[], right: readonly string[], trace: readonly Map<number, number>[]): Run[] {
  const found: { kind: Run["kind"]; item: string }[] = [];
  let x = left.length;
  let y = right.length;
  for (let edits = trace.length - 1; edits >= 0; edits -= 1) {
    const reach = trace[edits] as Map<number, number>;
    const diagonal = x - y;
    const before = isDown(reach, diagonal, edits) ? diagonal + 1 : diagonal - 1;
    const startX = edits === 0 ? 0 : (reach.get(before) ?? 0);
    const startY = edits === 0 ? 0 : startX - before;
    while (x > startX && y > startY) found.push({ kind: "same", item: left[(y -= 1), (x -= 1)] as string });
    if (edits === 0) break;
    if (x === startX) found.push({ kind: "add", item: right[(y -= 1)] as string });
    else found.push({ kind: "del", item: left[(x -= 1)] as string });
  }
  return grouped(found.reverse());
}

/** Neighbours of one kind as one run, and within a change what is gone before what is new. */
function grouped(items: readonly { kind: Run["kind"]; item: string }[]): Run[] {
  const runs: Run[] = [];
  let gone: string[] = [];
  let fresh: string[] = [];
  const flush = (): void => {
    runs.push(...replaced(gone, fresh).filter((run) => run.items.length > 0));
    gone = [];
    fresh = [];
  };
  let same: string[] = [];
  for (const { kind, item } of items) {
    if (kind === "same") {
      flush();
      same.push(item);
      continue;
    }
    if (same.length) runs.push({ kind: "same", items: same });
    same = [];
    (kind === "del" ? gone : fresh).push(item);
  }
  flush();
  if (same.length) runs.push({ kind: "same", items: same });
  return runs;
}
