import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parsePartialJson } from "./partial-json.ts";

describe("JSON that is being streamed", () => {
  it.each([
    ['{"a": 1, "b": [1, 2', { a: 1, b: [1] }],
    ['{"a": "hel', { a: "hel" }],
    ['{"a": "x", "b', { a: "x" }],
    ['{"a": "x", "b":', { a: "x" }],
    ['{"a": tru', {}],
    ['["a\\', ["a"]],
    ['["a\\\\', ["a\\"]],
    ['["\\u00', [""]],
    ['{"a": {"b": {', { a: { b: {} } }],
    ['"open', "open"],
    ["", undefined],
    ["nonsense", undefined],
  ])("%j is %j so far", (text, value) => expect(parsePartialJson(text)).toEqual(value));

  it("never throws, only grows to the whole value, and has every object and list that has begun", () => {
    const value = fc.oneof(fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 2 })), fc.array(fc.jsonValue({ maxDepth: 2 })));
    fc.assert(
      fc.property(value, fc.double({ min: 0, max: 1, noNaN: true }), (whole, share) => {
        const text = JSON.stringify(whole);
        expect(parsePartialJson(text)).toEqual(JSON.parse(text));
        const part = parsePartialJson(text.slice(0, Math.max(1, Math.floor(text.length * share))));
        expect(Array.isArray(part)).toBe(Array.isArray(whole));
        const known = part as object;
        for (const key of Object.keys(known)) expect(Object.hasOwn(whole, key)).toBe(true);
      }),
    );
  });
});
