import { readFileSync } from "node:fs";

import { describe, expect, test } from "vitest";

const TEXT = readFileSync(new URL("./tokens.css", import.meta.url), "utf-8");

/** The colours of a block of rules, by their names. */
function colours(block: string): Record<string, string> {
  return Object.fromEntries([...block.matchAll(/--([\w-]+):\s*(#[0-9a-f]{6})/g)].map(([, name, value]) => [name, value] as [string, string]));
}

const blocks = [...TEXT.matchAll(/color-scheme: (light|dark);([^}]*)}/g)].map(([, scheme, block]) => [scheme, colours(block ?? "")] as const);
const [light, darkBySystem, darkByChoice] = blocks.map(([, values]) => values);

function luminance(hex: string): number {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

const SURFACES = ["shell", "pane", "raised", "sunken", "hover", "selected"];
const STATES = ["running", "waiting", "complete", "failed", "unknown", "idle"];
const TEXTS = ["fg", "fg-2", "fg-3", "accent", ...STATES];

test("the two ways to the dark theme have the same values", () => {
  expect(blocks.map(([scheme]) => scheme)).toEqual(["light", "dark", "dark"]);
  expect(darkBySystem).toEqual(darkByChoice);
  expect(Object.keys(darkByChoice ?? {}).sort()).toEqual(Object.keys(light ?? {}).sort());
});

describe.each([
  ["light", light],
  ["dark", darkByChoice],
])("in the %s theme", (_, theme) => {
  const of = (name: string): string => {
    const value = theme?.[name];
    if (!value) throw new Error(`there is no token ${name}`);
    return value;
  };
  const weak = (pairs: (readonly [string, string])[], least: number) =>
    pairs
      .map(([text, ground]) => ({ pair: `${text} on ${ground}`, ratio: contrast(of(text), of(ground)) }))
      .filter(({ ratio }) => ratio < least)
      .map(({ pair, ratio }) => `${pair}: ${ratio.toFixed(2)}`);

  test("text reads on every surface", () => {
    expect(weak(TEXTS.flatMap((text) => SURFACES.map((ground) => [text, ground] as const)), 4.5)).toEqual([]);
  });

  test("text reads on every tint", () => {
    const tints = STATES.map((state) => `${state}-tint`);
    const pairs = ["fg", "fg-2"].flatMap((text) => tints.map((ground) => [text, ground] as const));
    expect(weak([...pairs, ...STATES.map((state) => [state, `${state}-tint`] as const)], 4.5)).toEqual([]);
    expect(weak([["fg", "add-tint"], ["fg", "del-tint"], ["add", "add-tint"], ["del", "del-tint"], ["fg-2", "add-tint"], ["fg-2", "del-tint"]], 4.5)).toEqual([]);
  });

  test("text reads on what is filled", () => {
    expect(weak([["on-ink", "ink"], ["on-accent", "accent-fill"], ["on-waiting", "waiting-fill"]], 4.5)).toEqual([]);
  });

  test("what has no text stands out from its surface", () => {
    const fills = ["edge", "accent-fill", "model-edge", "tool", "tool-2", "idle-fill", ...STATES.filter((state) => state !== "waiting" && state !== "idle").map((state) => `${state}-fill`)];
    expect(weak(fills.flatMap((fill) => ["pane", "raised"].map((ground) => [fill, ground] as const)), 3)).toEqual([]);
    // Amber alone is too light on white: it always has the dark amber edge.
    expect(weak([["waiting", "pane"], ["waiting", "waiting-fill"]], 3).filter((pair) => !pair.startsWith("waiting on waiting-fill"))).toEqual([]);
  });
});
