import { safeHref } from "./links.ts";
import { LINK_REL, type Inline } from "./nodes.ts";

interface Frame {
  readonly kind: "strong" | "em" | "del";
  readonly mark: string;
  readonly children: Inline[];
}

const MOST_FRAMES = 24;
const MOST_LINK_TEXT = 1_000;
const MOST_LINK_DEPTH = 3;
const SPECIAL = /[\\`*_~[!<&h\n]/g;
const ENTITIES: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const BARE_URL = /https?:\/\/[^\s<>"'`]{1,2000}/y;
/** What may stand before an address in a text. */
const BEFORE_URL = /[\s(["'*_~|>]/;

/**
 * The inline parts of a text. With `isStreaming` marks that are still open at the end count as closed there, so that
 * text does not jump when the rest arrives.
 */
export function parseInline(text: string, isStreaming = false, depth = 0): Inline[] {
  return new InlineParser(text, isStreaming, depth).parse();
}

class InlineParser {
  private readonly root: Inline[] = [];
  private readonly frames: Frame[] = [];
  private at = 0;
  private plain = "";
  /** No code span of this many ticks is closed behind this place. */
  private readonly unclosedTicks = new Map<number, number>();
  private brackets: Map<number, number> | null = null;

  constructor(
    private readonly text: string,
    private readonly isStreaming: boolean,
    private readonly depth: number,
  ) {}

  parse(): Inline[] {
    while (this.at < this.text.length) this.step();
    this.flush();
    while (this.frames.length) this.end();
    return this.root;
  }

  private step(): void {
    SPECIAL.lastIndex = this.at;
    const next = SPECIAL.exec(this.text)?.index ?? this.text.length;
    this.plain += this.text.slice(this.at, next);
    this.at = next;
    if (next < this.text.length && !this.special(this.text[next] as string)) this.plain += this.text[this.at++];
  }

  /** Read what begins at a special character; false if it stands for itself. */
  private special(character: string): boolean {
    switch (character) {
      case "\\":
        return this.escape();
      case "`":
        return this.codeSpan();
      case "[":
        return this.link(false);
      case "!":
        return this.text[this.at + 1] === "[" && this.link(true);
      case "<":
        return this.angled();
      case "&":
        return this.entity();
      case "h":
        return this.bareUrl();
      case "\n":
        return this.lineBreak();
      default:
        return this.delimiter(character);
    }
  }

  private escape(): boolean {
    const next = this.text[this.at + 1] ?? "";
    if (next === "\n") return this.push({ kind: "break" }, 2);
    if (!/[!-/:-@[-`{-~]/.test(next)) return false;
    this.plain += next;
    this.at += 2;
    return true;
  }

  private codeSpan(): boolean {
    const ticks = this.runLength("`");
    const closing = this.closingTicks(ticks);
    const start = this.at + ticks;
    if (closing < 0 && !(this.isStreaming && start < this.text.length)) return this.literal(ticks);
    const end = closing < 0 ? this.text.length : closing;
    const inner = this.text.slice(start, end).replaceAll("\n", " ");
    const isPadded = inner.startsWith(" ") && inner.endsWith(" ") && inner.trim() !== "";
    return this.push({ kind: "code", text: isPadded ? inner.slice(1, -1) : inner }, end + (closing < 0 ? 0 : ticks) - this.at);
  }

  private closingTicks(ticks: number): number {
    if ((this.unclosedTicks.get(ticks) ?? Infinity) <= this.at) return -1;
    const wanted = new RegExp(`(?<!\`)\`{${ticks}}(?!\`)`, "g");
    wanted.lastIndex = this.at + ticks;
    const found = wanted.exec(this.text);
    if (!found) this.unclosedTicks.set(ticks, this.at);
    return found ? found.index : -1;
  }

  private link(isImage: boolean): boolean {
    if (this.depth >= MOST_LINK_DEPTH) return false;
    const open = this.at + (isImage ? 1 : 0);
    this.brackets ??= closingBrackets(this.text);
    const close = this.brackets.get(open) ?? -1;
    if (close < 0 || close - open > MOST_LINK_TEXT) return false;
    const target = readTarget(this.text, close + 1);
    if (!target) return this.isStreaming && this.unfinishedLink(open, close, isImage);
    const words = this.text.slice(open + 1, close);
    const safe = safeHref(target.href);
    const length = target.end - this.at;
    if (isImage) return this.push({ kind: "image", alt: words, href: safe?.href ?? "" }, length);
    const children = parseInline(words, false, this.depth + 1);
    if (safe) return this.push({ kind: "link", ...safe, rel: LINK_REL, children }, length);
    this.flush();
    for (const child of [...children, { kind: "text", text: ` (${target.href})` } as const]) append(this.out, child);
    this.at = target.end;
    return true;
  }

  /** `[words](https://exam` at the end of what has come so far: the words alone. */
  private unfinishedLink(open: number, close: number, isImage: boolean): boolean {
    if (this.text[close + 1] !== "(" || this.text.includes(")", close) || this.text.includes("\n", close)) return false;
    const words = this.text.slice(open + 1, close);
    const children = isImage ? [] : parseInline(words, false, this.depth + 1);
    this.flush();
    for (const child of children) append(this.out, child);
    this.at = this.text.length;
    return true;
  }

  private angled(): boolean {
    const found = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/i.exec(this.text.slice(this.at, this.at + MOST_LINK_TEXT));
    const safe = found && safeHref(found[1] as string);
    if (!found || !safe) return false;
    return this.push({ kind: "link", ...safe, rel: LINK_REL, children: [{ kind: "text", text: found[1] as string }] }, found[0].length);
  }

  private bareUrl(): boolean {
    if (!BEFORE_URL.test(this.text[this.at - 1] ?? " ")) return false;
    BARE_URL.lastIndex = this.at;
    const address = BARE_URL.exec(this.text)?.[0].replace(/[.,;:!?*_~]+$|\)+$/g, "");
    if (!address) return false;
    const safe = safeHref(address);
    if (!safe || this.depth > 0) return this.literal(address.length);
    return this.push({ kind: "link", ...safe, rel: LINK_REL, children: [{ kind: "text", text: address }] }, address.length);
  }

  private entity(): boolean {
    const found = /^&(amp|lt|gt|quot|apos|nbsp);/.exec(this.text.slice(this.at, this.at + 7));
    if (!found) return false;
    this.plain += ENTITIES[found[1] as string];
    this.at += found[0].length;
    return true;
  }

  private lineBreak(): boolean {
    const isHard = this.plain.endsWith("  ");
    this.plain = this.plain.trimEnd();
    return isHard ? this.push({ kind: "break" }, 1) : this.push({ kind: "text", text: "\n" }, 1);
  }

  // ── Emphasis ──────────────────────────────────────────────────────────────────────────────────────────────────────

  private delimiter(character: string): boolean {
    const length = this.runLength(character);
    if (character === "~" && length !== 2) return this.literal(length);
    const before = this.text[this.at - 1] ?? " ";
    const after = this.text[this.at + length] ?? " ";
    const isWordy = character === "_";
    const canOpen = !/\s/.test(after) && !(isWordy && isLetter(before));
    const canClose = !/\s/.test(before) && !(isWordy && isLetter(after));
    let left = length;
    if (canClose) left = this.close(character, left);
    if (left > 0 && canOpen) left = this.open(character, left);
    this.plain += character.repeat(left);
    this.at += length;
    return true;
  }

  private close(character: string, length: number): number {
    let left = length;
    while (left > 0) {
      const place = this.frames.findLastIndex((frame) => frame.mark[0] === character && frame.mark.length <= left);
      if (place < 0) return left;
      this.flush();
      while (this.frames.length > place + 1) this.dissolve();
      const frame = this.frames.pop() as Frame;
      left -= frame.mark.length;
      this.out.push({ kind: frame.kind, children: frame.children });
    }
    return left;
  }

  private open(character: string, length: number): number {
    let left = length;
    while (left > 0 && this.frames.length < MOST_FRAMES) {
      const size = character === "~" || left >= 2 ? 2 : 1;
      this.flush();
      const kind = character === "~" ? "del" : size === 2 ? "strong" : "em";
      this.frames.push({ kind, mark: character.repeat(size), children: [] });
      left -= size;
    }
    return left;
  }

  /** An opened mark that nothing closes stands for itself. */
  private dissolve(): void {
    const frame = this.frames.pop() as Frame;
    const { out } = this;
    append(out, { kind: "text", text: frame.mark });
    for (const child of frame.children) append(out, child);
  }

  private end(): void {
    const frame = this.frames[this.frames.length - 1] as Frame;
    if (!this.isStreaming) return this.dissolve();
    this.frames.pop();
    if (frame.children.length) this.out.push({ kind: frame.kind, children: frame.children });
  }

  // ── Output ────────────────────────────────────────────────────────────────────────────────────────────────────────

  private get out(): Inline[] {
    return this.frames[this.frames.length - 1]?.children ?? this.root;
  }

  private push(node: Inline, length: number): true {
    this.flush();
    append(this.out, node);
    this.at += length;
    return true;
  }

  private literal(length: number): true {
    this.plain += this.text.slice(this.at, this.at + length);
    this.at += length;
    return true;
  }

  private flush(): void {
    if (this.plain) append(this.out, { kind: "text", text: this.plain });
    this.plain = "";
  }

  private runLength(character: string): number {
    let length = 1;
    while (this.text[this.at + length] === character) length += 1;
    return length;
  }
}

/** Add a node; a text joins the text before it. */
function append(nodes: Inline[], node: Inline): void {
  const last = nodes[nodes.length - 1];
  if (node.kind === "text" && last?.kind === "text") nodes[nodes.length - 1] = { kind: "text", text: last.text + node.text };
  else nodes.push(node);
}

function isLetter(character: string): boolean {
  return /[\p{L}\p{N}]/u.test(character);
}

/** The place of the bracket that closes each one that is closed. */
function closingBrackets(text: string): Map<number, number> {
  const found = new Map<number, number>();
  const open: number[] = [];
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "[") open.push(at);
    else if (text[at] === "]" && open.length) found.set(open.pop() as number, at);
  }
  return found;
}

function readTarget(text: string, open: number): { readonly href: string; readonly end: number } | null {
  if (text[open] !== "(") return null;
  const found = /^\(\s*(?:<([^<>\n]*)>|((?:[^\s()]|\([^\s()]*\))*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(text.slice(open, open + 3_000));
  return found ? { href: found[1] ?? found[2] ?? "", end: open + found[0].length } : null;
}
