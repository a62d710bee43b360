import { isObject, isSameJson, type Json, type JsonObject } from "../json.ts";
import { diffJson } from "../compare/runs.ts";

/** What an edited approval sends: only what changed, all arguments, or nothing where nothing changed. */
export type ArgsChange =
  | { readonly kind: "none" }
  | { readonly kind: "patch"; readonly args_patch: JsonObject }
  | { readonly kind: "args"; readonly args: JsonObject };

/** The stand-in of the redactor. */
export const MASK = "***";

/** Whether a value, or one inside of it, was masked. */
export function isMaskedValue(value: Json | undefined): boolean {
  if (typeof value === "string") return value.includes(MASK);
  if (typeof value !== "object" || value === null) return false;
  return Object.values(value).some((inner) => isMaskedValue(inner as Json));
}

/**
 * The smallest change that makes the edited arguments of the shown ones. A patch leaves masked values as they are. A
 * value that becomes null cannot travel in a patch, where null takes a key away: then all arguments are sent, unless
 * some of them are masked.
 *
 * Throws where neither is possible; the text says why.
 */
export function argsChange(shown: JsonObject, edited: JsonObject): ArgsChange {
  if (isSameJson(shown, edited)) return { kind: "none" };
  const patch = mergePatch(shown, edited);
  if (isSameJson(applyPatch(shown, patch), edited)) return { kind: "patch", args_patch: patch as JsonObject };
  if (isMaskedValue(edited)) throw new Error("A value cannot be set to null while other values are masked.");
  return { kind: "args", args: edited };
}

/** The JSON merge patch (RFC 7396) from one value to another. */
export function mergePatch(from: Json, to: Json): Json {
  if (!isObject(from) || !isObject(to)) return to;
  const gone = Object.keys(from).filter((key) => !Object.hasOwn(to, key));
  const changed = Object.keys(to).filter((key) => !Object.hasOwn(from, key) || !isSameJson(from[key], to[key]));
  return Object.fromEntries([
    ...gone.map((key): [string, Json] => [key, null]),
    ...changed.map((key): [string, Json] => [key, Object.hasOwn(from, key) ? mergePatch(from[key] as Json, to[key] as Json) : (to[key] as Json)]),
  ]);
}

/** A value with a merge patch applied. */
export function applyPatch(value: Json, patch: Json): Json {
  if (!isObject(patch)) return patch;
  const result = new Map<string, Json>(isObject(value) ? Object.entries(value) : []);
  for (const [key, change] of Object.entries(patch)) {
    if (change === null) result.delete(key);
    else result.set(key, applyPatch(result.get(key) ?? null, change));
  }
  return Object.fromEntries(result);
}

/** How many values an editor changed: "Approve with 2 changes". */
export function countChanges(shown: JsonObject, edited: JsonObject): number {
  return diffJson(shown, edited).length;
}

export function approveLabel(changes: number): string {
  if (changes === 0) return "Approve";
  return changes === 1 ? "Approve with 1 change" : `Approve with ${changes} changes`;
}
