import { isObject, type Json } from "../json.ts";

/** One line of a value, for lists that draw only what is in view. */
export interface JsonLine {
  /** Unique in the tree: `$.items[2].price`; a closing line ends in its bracket. */
  readonly path: string;
  readonly depth: number;
  readonly key: string;
  readonly kind: "object" | "array" | "string" | "number" | "boolean" | "null" | "end";
  /** The value, or the opening or closing bracket; a folded one says what it holds. */
  readonly text: string;
  readonly isExpandable: boolean;
  readonly isExpanded: boolean;
  readonly hasComma: boolean;
}

const FOLD_DEPTH = 3;
const FOLD_COUNT = 100;
const MOST_DEPTH = 200;
const STRING_CHARACTERS = 2_000;

/** The lines of a value. Deep and long containers begin folded; `toggled` holds the paths that a person changed. */
export function jsonLines(value: Json, toggled: ReadonlySet<string> = new Set()): JsonLine[] {
  const lines: JsonLine[] = [];
  addLines(lines, { value, key: "", path: "$", depth: 0, hasComma: false }, toggled);
  return lines;
}

interface Place {
  readonly value: Json;
  readonly key: string;
  readonly path: string;
  readonly depth: number;
  readonly hasComma: boolean;
}

function addLines(lines: JsonLine[], place: Place, toggled: ReadonlySet<string>): void {
  const { value, path, key, depth, hasComma } = place;
  if (typeof value !== "object" || value === null) {
    const text = shownScalar(value);
    lines.push({ path, depth, key, kind: kindOf(value), text, isExpandable: false, isExpanded: false, hasComma });
    return;
  }
  const inner = isObject(value) ? Object.entries(value) : value.map((item, at): [string, Json] => [String(at), item as Json]);
  const isArray = !isObject(value);
  const [open, close] = isArray ? ["[", "]"] : ["{", "}"];
  const isExpandable = inner.length > 0 && depth < MOST_DEPTH;
  const isExpanded = isExpandable && (depth < FOLD_DEPTH && inner.length <= FOLD_COUNT) !== toggled.has(path);
  const text = isExpanded ? open : inner.length === 0 ? `${open}${close}` : `${open} ${inner.length} ${close}`;
  const kind = isArray ? "array" : "object";
  lines.push({ path, depth, key, kind, text, isExpandable, isExpanded, hasComma: hasComma && !isExpanded });
  if (!isExpanded) return;
  inner.forEach(([name, item], at) => {
    const inside = isArray ? `${path}[${name}]` : `${path}.${name}`;
    addLines(lines, { value: item, key: isArray ? "" : name, path: inside, depth: depth + 1, hasComma: at < inner.length - 1 }, toggled);
  });
  lines.push({ path: path + close, depth, key: "", kind: "end", text: close, isExpandable: false, isExpanded: false, hasComma });
}

function kindOf(value: Json): JsonLine["kind"] {
  if (value === null) return "null";
  return typeof value as "string" | "number" | "boolean";
}

function shownScalar(value: Json): string {
  const text = JSON.stringify(value) ?? "null";
  if (text.length <= STRING_CHARACTERS) return text;
  return `${text.slice(0, STRING_CHARACTERS)}… (${text.length} characters)`;
}
