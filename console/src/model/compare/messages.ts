import type { Json } from "../json.ts";
import { isSameJson } from "../json.ts";

/** A part of a message as `runs.step` brings it. */
export interface MessagePart {
  readonly type: string;
  readonly text?: string;
  readonly cut?: { readonly preview: string; readonly bytes: number };
  readonly artifact_ref?: { readonly id: string };
}

export interface Message {
  readonly role: string;
  readonly name?: string;
  readonly tool_call_id?: string;
  readonly parts: readonly MessagePart[];
  readonly tool_calls?: readonly { readonly id: string; readonly name: string; readonly args: Json }[];
  readonly tokens?: number;
}

/** What a step *saw*, as a difference to the step before: unchanged messages are one folded line. */
export type SawLine =
  | { readonly kind: "unchanged"; readonly count: number; readonly tokens: number | null; readonly messages: readonly Message[] }
  | { readonly kind: "new" | "gone"; readonly message: Message };

/** An ask of `runs.step`: the server says how many leading messages are those of the ask before. */
export function sawOfAsk(ask: { readonly unchanged: number; readonly messages: readonly Message[] }): SawLine[] {
  const fresh = ask.messages.map((message): SawLine => ({ kind: "new", message }));
  const head: SawLine = { kind: "unchanged", count: ask.unchanged, tokens: null, messages: [] };
  return ask.unchanged > 0 ? [head, ...fresh] : fresh;
}

/** The difference of two whole prompts: shared messages fold, what left the prompt (by compression) shows as gone. */
export function diffMessages(before: readonly Message[], now: readonly Message[]): SawLine[] {
  const head = sharedCount(before, now, false);
  const tail = Math.min(sharedCount(before, now, true), Math.min(before.length, now.length) - head);
  const gone = before.slice(head, before.length - tail).map((message): SawLine => ({ kind: "gone", message }));
  const fresh = now.slice(head, now.length - tail).map((message): SawLine => ({ kind: "new", message }));
  return [...folded(now.slice(0, head)), ...gone, ...fresh, ...folded(now.slice(now.length - tail))];
}

function sharedCount(before: readonly Message[], now: readonly Message[], fromEnd: boolean): number {
  const at = (list: readonly Message[], index: number): Message | undefined => list[fromEnd ? list.length - 1 - index : index];
  let count = 0;
  while (count < Math.min(before.length, now.length) && isSame(at(before, count), at(now, count))) count += 1;
  return count;
}

function isSame(left: Message | undefined, right: Message | undefined): boolean {
  return isSameJson(left as unknown as Json, right as unknown as Json);
}

function folded(messages: readonly Message[]): SawLine[] {
  if (messages.length === 0) return [];
  const known = messages.every((message) => message.tokens !== undefined);
  const tokens = known ? messages.reduce((sum, message) => sum + (message.tokens ?? 0), 0) : null;
  return [{ kind: "unchanged", count: messages.length, tokens, messages }];
}
