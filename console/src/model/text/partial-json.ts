import type { Json } from "../json.ts";

/**
 * The value of JSON text that is still being streamed, as far as it goes: a string that is open ends where the text
 * ends, containers that are open are closed, and a key without its value is left out. Undefined for no value yet, and
 * for text that is no beginning of JSON.
 */
export function parsePartialJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return parseClosed(text);
  }
}

interface Open {
  readonly close: "}" | "]";
  /** Where the text is whole but for closing what is open: behind the last value, comma or bracket. */
  safe: number;
  /** In an object: whether a key comes next. */
  isKey: boolean;
}

function parseClosed(text: string): Json | undefined {
  const open: Open[] = [];
  let at = 0;
  while (at < text.length) {
    const character = text[at] as string;
    const top = open[open.length - 1];
    if (character === '"') {
      const end = stringEnd(text, at);
      if (end < 0) return top?.isKey && top.close === "}" ? closed(text, open) : closedString(text, open);
      at = end;
      if (top && !(top.close === "}" && top.isKey)) top.safe = at;
    } else if (character === "{" || character === "[") {
      at += 1;
      open.push({ close: character === "{" ? "}" : "]", safe: at, isKey: character === "{" });
    } else if (character === "}" || character === "]") {
      open.pop();
      at += 1;
      const outer = open[open.length - 1];
      if (outer) outer.safe = at;
    } else if (character === "," || character === ":") {
      if (top?.close === "}") top.isKey = character === ",";
      at += 1;
    } else if (/\s/.test(character)) at += 1;
    else at = scalarEnd(text, at, top);
  }
  return closed(text, open);
}

/** The end of a number or word. One that the text ends in may be cut, so only what is whole counts. */
function scalarEnd(text: string, at: number, top: Open | undefined): number {
  const word = /^[-+.\w]+/.exec(text.slice(at))?.[0] ?? text[at] ?? "";
  const end = at + word.length;
  if (top && end < text.length) top.safe = end;
  return Math.max(end, at + 1);
}

function stringEnd(text: string, at: number): number {
  for (let place = at + 1; place < text.length; place += 1) {
    if (text[place] === "\\") place += 1;
    else if (text[place] === '"') return place + 1;
  }
  return -1;
}

/** Close a string that is open as a value, without an escape that is cut. */
function closedString(text: string, open: readonly Open[]): Json | undefined {
  const body = text.replace(/\\(?:u[0-9a-fA-F]{0,3})?$/, (cut, place: number) => (backslashesBefore(text, place) % 2 === 0 ? "" : cut));
  return parsed(`${body}"${closers(open)}`);
}

function backslashesBefore(text: string, place: number): number {
  let count = 0;
  while (text[place - 1 - count] === "\\") count += 1;
  return count;
}

/** Go back to where the innermost container was whole, and close all that are open. */
function closed(text: string, open: readonly Open[]): Json | undefined {
  const last = open[open.length - 1];
  return last ? parsed(text.slice(0, last.safe) + closers(open)) : undefined;
}

function closers(open: readonly Open[]): string {
  return open.map((one) => one.close).toReversed().join("");
}

function parsed(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}
