import { isObject, type Json, type JsonObject } from "../json.ts";
import { isMaskedValue } from "./patch.ts";

export type FieldKind = "text" | "lines" | "number" | "integer" | "boolean" | "choice" | "json";

/** One field of the editor of a call. Objects of two levels are fields; what is deeper, and lists, are JSON. */
export interface Field {
  readonly path: readonly string[];
  /** "count", "address.city". */
  readonly name: string;
  readonly kind: FieldKind;
  readonly description: string;
  readonly isRequired: boolean;
  readonly isNullable: boolean;
  /** Absent where the call does not give it. */
  readonly value: Json | undefined;
  readonly choices: readonly Json[];
  readonly minimum: number | null;
  readonly maximum: number | null;
  readonly mostCharacters: number | null;
  /** A masked value is shown and cannot be edited. */
  readonly isMasked: boolean;
}

const FIELD_DEPTH = 2;
const LONG_TEXT = 60;

/** The fields of a call's arguments: those of the schema in its order, then what the call gives beside it. */
export function fieldsOf(schema: Json | undefined, args: JsonObject, isMasked = false): Field[] {
  const root = isObject(schema) ? schema : {};
  return objectFields({ schema: root, root, args, path: [], isMasked });
}

/** A schema as `tools.describe` sends it: JSON as text, "" if there is none. */
export function parseSchema(text: string): JsonObject | undefined {
  try {
    const schema: unknown = JSON.parse(text);
    return isObject(schema) ? schema : undefined;
  } catch {
    return undefined;
  }
}

interface Scope {
  readonly schema: JsonObject;
  readonly root: JsonObject;
  readonly args: JsonObject;
  readonly path: readonly string[];
  readonly isMasked: boolean;
}

function objectFields(scope: Scope): Field[] {
  const properties = isObject(scope.schema["properties"]) ? scope.schema["properties"] : {};
  const required = Array.isArray(scope.schema["required"]) ? scope.schema["required"] : [];
  const beside = Object.keys(scope.args).filter((key) => !Object.hasOwn(properties, key));
  return [...Object.keys(properties), ...beside].flatMap((key) => {
    const value = Object.hasOwn(scope.args, key) ? scope.args[key] : undefined;
    const { schema, isNullable } = resolved(properties[key] as Json | undefined, scope.root);
    const path = [...scope.path, key];
    const isInner = isObject(value) && path.length < FIELD_DEPTH && isObjectSchema(schema, value);
    if (isInner) return objectFields({ ...scope, schema, args: value, path });
    return [fieldOf({ path, schema, value, isNullable, isRequired: required.includes(key), isMasked: scope.isMasked })];
  });
}

/** An object that has properties, or whose values are all simple, unfolds to fields. */
function isObjectSchema(schema: JsonObject, value: JsonObject): boolean {
  if (isObject(schema["properties"])) return true;
  const isOpen = Object.keys(schema).length === 0;
  return isOpen && Object.keys(value).length > 0 && Object.values(value).every((inner) => typeof inner !== "object");
}

interface Known {
  readonly path: readonly string[];
  readonly schema: JsonObject;
  readonly value: Json | undefined;
  readonly isNullable: boolean;
  readonly isRequired: boolean;
  readonly isMasked: boolean;
}

function fieldOf({ path, schema, value, isNullable, isRequired, isMasked }: Known): Field {
  const choices = choicesOf(schema);
  return {
    path,
    name: path.join("."),
    kind: choices.length ? "choice" : kindOf(schema, value),
    description: typeof schema["description"] === "string" ? schema["description"] : "",
    isRequired,
    isNullable: isNullable || value === null,
    value,
    choices,
    minimum: numberOf(schema, "minimum"),
    maximum: numberOf(schema, "maximum"),
    mostCharacters: numberOf(schema, "maxLength"),
    isMasked: isMasked && isMaskedValue(value),
  };
}

function choicesOf(schema: JsonObject): Json[] {
  if ("const" in schema) return [schema["const"] as Json];
  return Array.isArray(schema["enum"]) ? (schema["enum"] as Json[]) : [];
}

function kindOf(schema: JsonObject, value: Json | undefined): FieldKind {
  switch (schema["type"]) {
    case "string":
      return textKind(value);
    case "number":
    case "integer":
    case "boolean":
      return schema["type"];
    case "object":
    case "array":
      return "json";
    default:
      return kindOfValue(value);
  }
}

function kindOfValue(value: Json | undefined): FieldKind {
  if (typeof value === "string") return textKind(value);
  if (typeof value === "number") return "number";
  return typeof value === "boolean" ? "boolean" : "json";
}

function textKind(value: Json | undefined): FieldKind {
  return typeof value === "string" && (value.length > LONG_TEXT || value.includes("\n")) ? "lines" : "text";
}

function numberOf(schema: JsonObject, key: string): number | null {
  const value = schema[key];
  return typeof value === "number" ? value : null;
}

// ── Schemas ───────────────────────────────────────────────────────────────────────────────────────────────────────────

const MOST_REFERENCES = 8;

/** A schema without references and without the alternative null. One that cannot be resolved accepts everything. */
function resolved(schema: Json | undefined, root: JsonObject, depth = 0): { schema: JsonObject; isNullable: boolean } {
  if (!isObject(schema) || depth > MOST_REFERENCES) return { schema: {}, isNullable: false };
  if (typeof schema["$ref"] === "string") {
    const inner = resolved(target(schema["$ref"], root), root, depth + 1);
    return { ...inner, schema: { ...inner.schema, ...withoutReference(schema) } };
  }
  const types = Array.isArray(schema["type"]) ? schema["type"] : null;
  if (types) {
    const others = types.filter((type) => type !== "null");
    const type: JsonObject = others.length === 1 ? { type: others[0] as Json } : {};
    const { type: _, ...rest } = schema;
    return { schema: { ...rest, ...type }, isNullable: others.length < types.length };
  }
  return resolvedAlternatives(schema, root, depth);
}

function resolvedAlternatives(schema: JsonObject, root: JsonObject, depth: number): { schema: JsonObject; isNullable: boolean } {
  const alternatives = schema["anyOf"] ?? schema["oneOf"];
  if (!Array.isArray(alternatives)) return { schema, isNullable: false };
  const others = alternatives.filter((one) => !(isObject(one) && one["type"] === "null"));
  const isNullable = others.length < alternatives.length;
  if (others.length !== 1) return { schema: {}, isNullable };
  const inner = resolved(others[0] as Json, root, depth + 1).schema;
  return { schema: typeof schema["description"] === "string" ? { ...inner, description: schema["description"] } : inner, isNullable };
}

function withoutReference(schema: JsonObject): JsonObject {
  const { $ref: _, ...rest } = schema;
  return rest;
}

/** What a reference inside of the schema names; nothing outside of it is ever fetched. */
function target(reference: string, root: JsonObject): Json | undefined {
  if (!reference.startsWith("#/")) return undefined;
  const keys = reference.slice(2).split("/").map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
  return keys.reduce<Json | undefined>((at, key) => (isObject(at) && Object.hasOwn(at, key) ? at[key] : undefined), root);
}
