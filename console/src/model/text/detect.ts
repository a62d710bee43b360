import type { DiffLine } from "../compare/diff.ts";
import type { Json } from "../json.ts";

/** What a text is, so that it is shown as such. */
export type TextKind =
  | { readonly kind: "plain" }
  | { readonly kind: "markdown" }
  | { readonly kind: "json"; readonly value: Json }
  | { readonly kind: "diff" }
  | { readonly kind: "code"; readonly language: string };

const MOST_LOOKED_AT = 64 * 1024;

/** Guess from a text alone. In doubt it is plain: the exact text is never hidden. */
export function kindOfText(text: string): TextKind {
  const start = text.slice(0, MOST_LOOKED_AT);
  const value = jsonOf(text);
  if (value !== undefined) return { kind: "json", value };
  if (isDiff(start)) return { kind: "diff" };
  const language = languageOf(start);
  if (language) return { kind: "code", language };
  return isMarkdown(start) ? { kind: "markdown" } : { kind: "plain" };
}

/** The value of a text that is a JSON object or list. */
function jsonOf(text: string): Json | undefined {
  if (text.length > MOST_LOOKED_AT * 4 || !/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

export function isDiff(text: string): boolean {
  return /^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@/m.test(text) || /^--- \S.*\n\+\+\+ \S/m.test(text);
}

const LANGUAGES: readonly (readonly [string, RegExp])[] = [
  ["shell", /^#!.*\b(?:ba|z)?sh\b|^\$ \w/],
  ["python", /^#!.*python|^(?:from [\w.]+ import |import \w+$|def \w+\(.*\).*:$|class \w+.*:$|async def )/m],
  ["typescript", /^(?:import .* from ["']|export (?:const|function|class|interface|type)\b|(?:const|let) \w+.*=.*;$)/m],
  ["sql", /^\s*(?:SELECT\b[\s\S]*\bFROM\b|INSERT INTO\b|UPDATE \w+ SET\b|CREATE TABLE\b)/i],
  ["html", /^\s*<(?:!doctype html|html|div|svg|table|p|head|body)\b/i],
  ["xml", /^\s*<\?xml\b/],
  ["rust", /^(?:pub )?(?:fn \w+|struct \w+|impl\b.*\{$|use [\w:]+;$)/m],
  ["go", /^package \w+$/m],
];

function languageOf(text: string): string {
  return LANGUAGES.find(([, pattern]) => pattern.test(text))?.[0] ?? "";
}

const MARKDOWN_SIGNS: readonly RegExp[] = [
  /^#{1,6} \S/m,
  /^\s*(?:[-*+]|\d+\.) \S.*\n\s*(?:[-*+]|\d+\.) \S/m,
  /\*\*\S[^*\n]*\*\*/,
  /^```/m,
  /\[[^\]\n]+\]\(https?:[^)\s]+\)/,
  /^\|.*\|\n\|[\s:|-]+\|/m,
  /^> \S/m,
];

function isMarkdown(text: string): boolean {
  return MARKDOWN_SIGNS.some((sign) => sign.test(text));
}

/** The lines of a unified diff, with the numbers that its hunks name; header lines have none. */
export function parseUnifiedDiff(text: string): DiffLine[] {
  let at = { left: 0, right: 0 };
  let isInHunk = false;
  return text.split("\n").map((line): DiffLine => {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
    if (hunk) at = { left: Number(hunk[1]), right: Number(hunk[2]) };
    isInHunk = Boolean(hunk) || (isInHunk && /^[-+ \\]|^$/.test(line));
    if (hunk || !isInHunk || line.startsWith("\\")) return { kind: "same", left: null, right: null, parts: [{ kind: "same", text: line }] };
    return numbered(line, at);
  });
}

function numbered(line: string, at: { left: number; right: number }): DiffLine {
  const kind = line.startsWith("-") ? "del" : line.startsWith("+") ? "add" : "same";
  const left = kind === "add" ? null : at.left++;
  const right = kind === "del" ? null : at.right++;
  return { kind, left, right, parts: [{ kind, text: line.slice(1) }] };
}
