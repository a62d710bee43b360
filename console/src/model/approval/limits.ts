import { isObject, type Json } from "../json.ts";
import { formatExact } from "../formats.ts";

/** What the payload of a control may be; the server refuses more. The payload itself is the first level. */
export const LIMITS = { depth: 6, keys: 64, items: 50, characters: 4096, bytes: 16 * 1024 } as const;

/** A limit that a payload breaks, in words, with the path of the value that breaks it. */
export interface LimitProblem {
  readonly limit: keyof typeof LIMITS;
  readonly path: string;
  readonly text: string;
}

/** Every limit that a payload breaks; none if the server will take it. */
export function checkLimits(payload: Json): LimitProblem[] {
  const problems: LimitProblem[] = [];
  const bytes = sizeOf(payload);
  if (bytes > LIMITS.bytes) problems.push(problem("bytes", "", `${formatExact(bytes)} bytes in all`));
  checkValue(payload, 1, "", problems);
  return problems;
}

/** The bytes of a value's JSON without spaces. */
export function sizeOf(value: Json): number {
  return new TextEncoder().encode(JSON.stringify(value)).length;
}

function checkValue(value: Json, level: number, path: string, problems: LimitProblem[]): void {
  if (typeof value === "string") {
    const count = codePoints(value);
    if (count > LIMITS.characters) problems.push(problem("characters", path, `${formatExact(count)} characters`));
    return;
  }
  if (typeof value !== "object" || value === null) return;
  if (level > LIMITS.depth) {
    problems.push(problem("depth", path, `${level} levels of nesting`));
    return;
  }
  const inner = isObject(value) ? Object.entries(value) : value.map((item, at): [string, Json] => [`[${at}]`, item as Json]);
  const limit = isObject(value) ? "keys" : "items";
  if (inner.length > LIMITS[limit]) problems.push(problem(limit, path, `${inner.length} ${limit}`));
  for (const [key, one] of inner) checkValue(one, level + 1, key.startsWith("[") || !path ? path + key : `${path}.${key}`, problems);
}

function codePoints(text: string): number {
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}

function problem(limit: keyof typeof LIMITS, path: string, actual: string): LimitProblem {
  const where = path ? `${path}: ` : "";
  return { limit, path, text: `${where}${actual}, at most ${formatExact(LIMITS[limit])} are allowed` };
}
