import type { Json } from "../json.ts";

/** A row offers Approve only for arguments of at most so many characters; they wrap and are never cut. */
export const ROW_CHARACTERS = 80;

/** What a row may offer: Approve where the exact arguments stand in full, else Review. */
export type RowOffer = { readonly kind: "approve"; readonly text: string } | { readonly kind: "review"; readonly why: string };

export interface ShownCall {
  readonly args: Json | undefined;
  readonly isCut: boolean;
  readonly isMasked: boolean;
}

export function rowOffer(call: ShownCall): RowOffer {
  if (call.args === undefined) return review("the arguments are not known here");
  if (call.isCut) return review("the arguments are cut here");
  if (call.isMasked) return review("some values are masked");
  const text = exactText(call.args);
  return [...text].length <= ROW_CHARACTERS ? { kind: "approve", text } : review("the arguments are too long for a row");
}

function review(why: string): RowOffer {
  return { kind: "review", why };
}

/** The exact JSON on one line. Characters that cannot be seen, or turn the text around, stand as their escapes. */
export function exactText(value: Json): string {
  return visibleText(spaced(value));
}

/** The exact JSON over several lines, for *Exact*. */
export function exactLines(value: Json): string {
  return JSON.stringify(value, null, 2).split("\n").map(visibleText).join("\n");
}

function spaced(value: Json): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((item) => spaced(item as Json)).join(", ")}]`;
  const entries = Object.entries(value).map(([key, inner]) => `${JSON.stringify(key)}: ${spaced(inner as Json)}`);
  return `{${entries.join(", ")}}`;
}

/** Control, format and other invisible characters, odd spaces, private ones and lone surrogates. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\p{Zl}\p{Zp}\u00a0\u115f\u1160\u2000-\u200a\u202f\u205f\u3000\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu;

/** The text with an escape such as `\u202e` in the place of each character that cannot be seen. */
export function visibleText(text: string): string {
  return text.replace(INVISIBLE, (character) => {
    const code = (character.codePointAt(0) ?? 0).toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
  });
}
