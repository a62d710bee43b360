import { entryOf, isObject, type Json } from "../../model/json.ts";
import type { InboxItem } from "../../model/inbox.ts";
import type { GlyphName } from "../../parts/glyph.tsx";

/** What an item asks for, in the words of its row. */
export interface ItemWords {
  readonly glyph: GlyphName;
  readonly title: string;
  readonly isCode: boolean;
  readonly note: string;
}

export function wordsOf(item: InboxItem): ItemWords {
  switch (item.kind) {
    case "approval":
      return { glyph: "waiting", title: item.tool || "a tool", isCode: true, note: previewOf(item.args) };
    case "outcome":
      return { glyph: "unknown", title: item.tool || "a call", isCode: true, note: "may have acted" };
    case "question":
      return { glyph: "question", title: "Question", isCode: false, note: item.question };
    case "sign_in":
      return { glyph: "sign-in", title: `Sign in to ${item.tool || "a service"}`, isCode: false, note: "" };
    case "event":
      return { glyph: "paused", title: "Paused", isCode: false, note: item.question };
  }
}

/** The first words of arguments: a single text says itself, more are named. */
function previewOf(args: Json | undefined): string {
  if (!isObject(args)) return args === undefined ? "" : JSON.stringify(args);
  const entries = Object.entries(args);
  return entries.map(([name, value]) => `${name}=${(JSON.stringify(value) ?? "").slice(0, 80)}`).join(", ");
}

const DECISIONS: Readonly<Record<string, readonly [string, GlyphName]>> = {
  approve: ["approved", "complete"],
  reject: ["rejected", "rejected"],
  resume: ["answered", "complete"],
  timeout: ["ended by its deadline", "timer"],
};

/** How a pause ended: "approved by ben". */
export function decisionWords(decision: string, by: string): readonly [text: string, glyph: GlyphName] {
  const [text, glyph] = entryOf(DECISIONS, decision) ?? ["answered", "complete"];
  return [by ? `${text} by ${by}` : text, glyph];
}
