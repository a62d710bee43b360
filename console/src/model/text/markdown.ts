import { parseInline } from "./inline.ts";
import type { Align, Block, Inline, ListItem } from "./nodes.ts";

export interface MarkdownOptions {
  /** More text is to come: what is open at the end counts as closed there. */
  readonly isStreaming?: boolean;
}

const MOST_DEPTH = 8;
const MOST_COLUMNS = 64;
/** Longer texts are shown as they are. */
export const MOST_MARKDOWN = 256 * 1024;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?: {1,4}|$)/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

/** A text of Markdown as a tree that is safe to show. Markup of HTML in it is text. */
export function parseMarkdown(text: string, options: MarkdownOptions = {}): Block[] {
  if (text.length > MOST_MARKDOWN) return [{ kind: "code", language: "", text, isOpen: false }];
  return placedBlocks(text, options.isStreaming ?? false).map(({ block }) => block);
}

/**
 * Markdown that grows: only the last block is read again when more comes, and blocks before it stay the same objects.
 */
export class StreamedMarkdown {
  private text = "";
  private done: Block[] = [];
  private doneUntil = 0;

  /** The blocks of a text that begins with the text before; any other text is read anew. */
  update(text: string, isStreaming = true): Block[] {
    if (!text.startsWith(this.text)) [this.done, this.doneUntil] = [[], 0];
    this.text = text;
    if (text.length > MOST_MARKDOWN) return parseMarkdown(text);
    const rest = placedBlocks(text.slice(this.doneUntil), isStreaming);
    const last = rest[rest.length - 1];
    if (last && rest.length > 1) {
      this.done = [...this.done, ...rest.slice(0, -1).map(({ block }) => block)];
      this.doneUntil += last.start;
    }
    return last ? [...this.done, last.block] : this.done;
  }
}

interface Placed {
  readonly block: Block;
  /** Where it begins in the text. */
  readonly start: number;
}

function placedBlocks(text: string, isStreaming: boolean): Placed[] {
  const lines = text.replaceAll("\t", "    ") === text ? text.split("\n") : text.split("\n").map((line) => line.replace(/^[ \t]+/, spaces));
  const starts: number[] = [];
  let start = 0;
  for (const line of text.split("\n")) {
    starts.push(start);
    start += line.length + 1;
  }
  return new BlockParser(lines.map((line) => line.replace(/\r$/, "")), isStreaming, 0).parse().map(({ block, line }) => ({
    block,
    start: starts[line] ?? 0,
  }));
}

function spaces(indent: string): string {
  return indent.replaceAll("\t", "    ");
}

class BlockParser {
  private at = 0;
  private readonly found: { block: Block; line: number }[] = [];

  constructor(
    private readonly lines: readonly string[],
    private readonly isStreaming: boolean,
    private readonly depth: number,
  ) {}

  parse(): { block: Block; line: number }[] {
    while (this.at < this.lines.length) {
      const line = this.at;
      if (this.line.trim() === "") this.at += 1;
      else this.found.push({ block: this.block(), line });
    }
    return this.found;
  }

  private get line(): string {
    return this.lines[this.at] ?? "";
  }

  private block(): Block {
    const fence = FENCE.exec(this.line);
    if (fence) return this.fenced(fence[1] as string, fence[2] ?? "");
    const heading = HEADING.exec(this.line);
    if (heading) return this.heading(heading);
    if (RULE.test(this.line)) return this.skip({ kind: "rule" });
    if (this.depth < MOST_DEPTH && QUOTE.test(this.line)) return this.quote();
    if (this.depth < MOST_DEPTH && ITEM.test(this.line)) return this.list();
    if (this.isTable()) return this.table();
    if (this.line.startsWith("    ")) return this.indented();
    return this.paragraph();
  }

  private skip(block: Block): Block {
    this.at += 1;
    return block;
  }

  private heading(found: RegExpExecArray): Block {
    const isLast = this.at === this.lines.length - 1;
    return this.skip({ kind: "heading", level: (found[1] as string).length, children: this.inline(found[2] ?? "", isLast) });
  }

  private fenced(fence: string, language: string): Block {
    const closing = new RegExp(`^ {0,3}${fence[0] === "`" ? "`" : "~"}{${fence.length},}\\s*$`);
    const text: string[] = [];
    this.at += 1;
    while (this.at < this.lines.length && !closing.test(this.line)) text.push(this.lines[this.at++] as string);
    const isOpen = this.at >= this.lines.length;
    this.at += 1;
    return { kind: "code", language: language.slice(0, 32), text: text.join("\n"), isOpen: isOpen && this.isStreaming };
  }

  private indented(): Block {
    const text: string[] = [];
    while (this.at < this.lines.length && (this.line.startsWith("    ") || this.line.trim() === "")) {
      text.push((this.lines[this.at++] as string).slice(4));
    }
    return { kind: "code", language: "", text: text.join("\n").trimEnd(), isOpen: false };
  }

  private quote(): Block {
    const inner: string[] = [];
    while (this.at < this.lines.length && (QUOTE.test(this.line) || (this.line.trim() !== "" && !this.interrupts()))) {
      inner.push((this.lines[this.at++] as string).replace(QUOTE, ""));
    }
    return { kind: "quote", blocks: this.inner(inner) };
  }

  private list(): Block {
    const first = ITEM.exec(this.line) as RegExpExecArray;
    const isOrdered = /\d/.test(first[2] as string);
    const mark = (first[2] as string).slice(-1);
    const items: ListItem[] = [];
    for (;;) {
      const next = this.nextItem(mark);
      if (!next) break;
      this.at = next.line;
      items.push(this.item(next.indent));
    }
    return { kind: "list", isOrdered, start: isOrdered ? parseInt(first[2] as string, 10) : 1, items };
  }

  /** The next item of the same list; empty lines may stand before it. */
  private nextItem(mark: string): { readonly line: number; readonly indent: number } | null {
    let line = this.at;
    while (line < this.lines.length && this.lines[line]?.trim() === "") line += 1;
    const text = this.lines[line] ?? "";
    const item = ITEM.exec(text);
    if (!item || (item[2] as string).slice(-1) !== mark || RULE.test(text)) return null;
    return { line, indent: item[0].length };
  }

  private item(indent: number): ListItem {
    const inner = [(this.lines[this.at++] as string).slice(indent)];
    while (this.at < this.lines.length && this.continues(indent)) inner.push(dedented(this.lines[this.at++] as string, indent));
    const box = /^\[([ xX])\]\s+/.exec(inner[0] as string);
    if (box) inner[0] = (inner[0] as string).slice(box[0].length);
    return { isDone: box ? box[1] !== " " : null, blocks: this.inner(inner) };
  }

  /** Whether the line belongs to the item before it: indented, lazy text, or empty with more of the item behind it. */
  private continues(indent: number): boolean {
    if (this.line.trim() !== "") {
      const isIndented = leadingSpaces(this.line) >= Math.min(indent, 2) && leadingSpaces(this.line) > 0;
      return isIndented || (!this.interrupts() && !ITEM.test(this.line) && this.lines[this.at - 1]?.trim() !== "");
    }
    const next = this.lines.slice(this.at + 1, this.at + 4).find((line) => line.trim() !== "");
    return next !== undefined && leadingSpaces(next) >= Math.min(indent, 2);
  }

  private isTable(): boolean {
    const rule = this.lines[this.at + 1] ?? "";
    return this.line.includes("|") && rule.includes("-") && rule.includes("|") && TABLE_RULE.test(rule);
  }

  private table(): Block {
    const head = cells(this.line);
    const aligns = cells(this.lines[this.at + 1] as string).map(alignOf).slice(0, head.length);
    const rows: Inline[][][] = [];
    this.at += 2;
    while (this.at < this.lines.length && this.line.includes("|")) {
      const row = cells(this.lines[this.at++] as string);
      const isLast = this.at >= this.lines.length;
      rows.push(head.map((_, at) => this.inline(row[at] ?? "", isLast)));
    }
    return { kind: "table", aligns, head: head.map((cell) => this.inline(cell, false)), rows };
  }

  private paragraph(): Block {
    const text = [(this.lines[this.at++] as string).trimStart()];
    while (this.at < this.lines.length && this.line.trim() !== "" && !this.interrupts() && !this.isTable()) {
      text.push((this.lines[this.at++] as string).trimStart());
    }
    const isLast = this.at >= this.lines.length;
    return { kind: "paragraph", children: this.inline(text.join("\n").trimEnd(), isLast) };
  }

  /** Whether the line begins a block of its own in the middle of a paragraph. */
  private interrupts(): boolean {
    const { line } = this;
    if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
    const item = ITEM.exec(line);
    return item !== null && line.length > item[0].length && (!/\d/.test(item[2] as string) || /^1[.)]$/.test(item[2] as string));
  }

  private inner(lines: readonly string[]): Block[] {
    const isStreaming = this.isStreaming && this.at >= this.lines.length;
    return new BlockParser(lines, isStreaming, this.depth + 1).parse().map(({ block }) => block);
  }

  private inline(text: string, isLast: boolean): Inline[] {
    return parseInline(text, this.isStreaming && isLast);
  }
}

function leadingSpaces(line: string): number {
  return line.length - line.trimStart().length;
}

function dedented(line: string, indent: number): string {
  return line.slice(Math.min(indent, leadingSpaces(line)));
}

/** The cells of a row; a bar after a backslash is part of its cell. */
function cells(line: string): string[] {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).slice(0, MOST_COLUMNS).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function alignOf(cell: string): Align {
  const [left, right] = [cell.startsWith(":"), cell.endsWith(":")];
  return left && right ? "center" : right ? "right" : left ? "left" : "";
}
