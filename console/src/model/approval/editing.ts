import { isObject, isSameJson, type Json, type JsonObject } from "../json.ts";
import type { Field } from "./fields.ts";
import { checkLimits, type LimitProblem } from "./limits.ts";
import { argsChange, countChanges, type ArgsChange } from "./patch.ts";

/** What a person typed, by the name of its field. */
export type Edits = Readonly<Record<string, string>>;

export type Parsed = { readonly value: Json } | { readonly problem: string };

/** How a field's value stands in its input. */
export function inputOf(field: Field): string {
  if (field.value === undefined) return "";
  if (field.kind === "json" || field.value === null) return JSON.stringify(field.value, null, 2);
  return typeof field.value === "string" ? field.value : JSON.stringify(field.value);
}

/** What is meant by the text in a field's input, or why it cannot be sent. */
export function parseInput(field: Field, text: string): Parsed {
  if (field.isNullable && text.trim() === "null") return { value: null };
  switch (field.kind) {
    case "text":
    case "lines":
      return parseText(field, text);
    case "number":
    case "integer":
      return parseNumber(field, text);
    case "choice":
      return parseChoice(field, text);
    default:
      return parseJson(text, field.kind === "boolean");
  }
}

function parseText(field: Field, text: string): Parsed {
  const most = field.mostCharacters;
  return most !== null && [...text].length > most ? { problem: `at most ${most} characters` } : { value: text };
}

function parseNumber(field: Field, text: string): Parsed {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) return { problem: "a number" };
  if (field.kind === "integer" && !Number.isSafeInteger(value)) return { problem: "a whole number" };
  if (field.minimum !== null && value < field.minimum) return { problem: `at least ${field.minimum}` };
  if (field.maximum !== null && value > field.maximum) return { problem: `at most ${field.maximum}` };
  return { value };
}

function parseChoice(field: Field, text: string): Parsed {
  const choice = field.choices.find((one) => choiceText(one) === text);
  return choice === undefined ? { problem: "one of the choices" } : { value: choice };
}

export function choiceText(choice: Json): string {
  return typeof choice === "string" ? choice : JSON.stringify(choice);
}

function parseJson(text: string, isFlag: boolean): Parsed {
  try {
    const value = JSON.parse(text) as Json;
    return isFlag && typeof value !== "boolean" ? { problem: "true or false" } : { value };
  } catch {
    return { problem: isFlag ? "true or false" : "valid JSON" };
  }
}

/** The state of an edited call: everything that the editor shows. */
export interface EditedCall {
  /** What will run; masked values as they are shown. */
  readonly args: JsonObject;
  readonly changed: readonly string[];
  readonly changes: number;
  readonly problems: Readonly<Record<string, string>>;
  readonly limits: readonly LimitProblem[];
  readonly change: ArgsChange | null;
  /** Why it cannot be sent, "" if it can. */
  readonly blocked: string;
}

/** Put what was typed into the arguments of a call and say what would be sent. */
export function editCall(shown: JsonObject, fields: readonly Field[], edits: Edits): EditedCall {
  const problems: Record<string, string> = {};
  const changed: string[] = [];
  let args: Json = shown;
  for (const field of fields) {
    const text = edits[field.name];
    if (text === undefined || field.isMasked || text === inputOf(field)) continue;
    const parsed = parseInput(field, text);
    if (!("problem" in parsed) && isSameJson(parsed.value, field.value)) continue;
    changed.push(field.name);
    if ("problem" in parsed) problems[field.name] = parsed.problem;
    else args = withValue(args, field.path, parsed.value);
  }
  return { ...judged(shown, args as JsonObject, Object.keys(problems).length > 0), changed, problems };
}

function judged(shown: JsonObject, args: JsonObject, hasProblems: boolean): Omit<EditedCall, "changed" | "problems"> {
  const changes = countChanges(shown, args);
  const { change, refusal } = changeOf(shown, args);
  const limits = change && change.kind !== "none" ? checkLimits(payloadOf(change)) : [];
  const blocked = hasProblems ? "Some fields do not fit." : refusal || (limits[0]?.text ?? "");
  return { args, changes, change, limits, blocked };
}

function changeOf(shown: JsonObject, args: JsonObject): { change: ArgsChange | null; refusal: string } {
  try {
    return { change: argsChange(shown, args), refusal: "" };
  } catch (error) {
    return { change: null, refusal: error instanceof Error ? error.message : String(error) };
  }
}

/** The limits count from the payload, in which the change is the second level and the token takes its bytes. */
function payloadOf(change: Exclude<ArgsChange, { kind: "none" }>): Json {
  const token = "0".repeat(26);
  return change.kind === "patch" ? { token, args_patch: change.args_patch } : { token, args: change.args };
}

function withValue(args: Json, path: readonly string[], value: Json): Json {
  const [key, ...rest] = path;
  if (key === undefined) return value;
  const known = isObject(args) ? args : {};
  const entries = new Map<string, Json>(Object.entries(known));
  entries.set(key, withValue(entries.get(key) ?? null, rest, value));
  return Object.fromEntries(entries);
}

/** Whether a call may be edited, and if not why. A server that takes patches lets masked values stay as they are. */
export function editability(isMasked: boolean, takesPatches: boolean, isCut: boolean): { canEdit: boolean; why: string } {
  if (isCut) return { canEdit: false, why: "The arguments are too large to be edited here." };
  if (isMasked && !takesPatches) {
    return { canEdit: false, why: "Some values are masked. This server replaces all arguments at once, so editing would lose them." };
  }
  return { canEdit: true, why: isMasked ? "Masked values stay as they are." : "" };
}
