import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RunStore } from "../events/store.ts";
import type { RunView } from "../events/views.ts";
import { asForeign, RESTOCK, RESTOCK_RUN } from "../fixtures/index.ts";
import pauses from "../fixtures/pauses.json" with { type: "json" };
import { isSameJson, type Json, type JsonObject } from "../json.ts";
import { actedPayload, answeredWords, answerFate, approvePayload, mayClick, type GivenAnswer } from "./answers.ts";
import { editability, editCall, inputOf, parseInput } from "./editing.ts";
import { exactText, rowOffer, visibleText } from "./exact.ts";
import { fieldsOf, parseSchema } from "./fields.ts";
import { checkLimits, LIMITS } from "./limits.ts";
import { applyPatch, approveLabel, argsChange, mergePatch } from "./patch.ts";

const args = fc
  .dictionary(fc.string({ maxLength: 6 }), fc.jsonValue({ maxDepth: 3 }), { maxKeys: 6 })
  .map((value) => JSON.parse(JSON.stringify(value)) as JsonObject);

describe("limits", () => {
  it.each([
    ["depth", { a: { a: { a: { a: { a: { a: { a: 1 } } } } } } }],
    ["keys", Object.fromEntries(Array.from({ length: 65 }, (_, at) => [`k${at}`, 1]))],
    ["items", { list: Array.from({ length: 51 }, () => 1) }],
    ["characters", { text: "x".repeat(4097) }],
    ["bytes", { list: Array.from({ length: 5 }, () => "x".repeat(4000)) }],
  ] as const)("of %s are told", (limit, payload) => {
    expect(checkLimits(payload as unknown as Json).map((one) => one.limit)).toEqual([limit]);
  });

  it("accept what is just within them, counting code points and not code units", () => {
    expect(checkLimits({ a: { a: { a: { a: { a: { a: 1 } } } } } })).toEqual([]);
    expect(checkLimits({ text: "🙂".repeat(4000) })).toEqual([]);
    expect(LIMITS.bytes).toBe(16_384);
  });

  it("name the value that breaks them", () => {
    expect(checkLimits({ args: { list: ["x".repeat(5000)] } })[0]).toMatchObject({ path: "args.list[0]" });
  });
});

describe("a patch of arguments", () => {
  it("holds only what changed, so that masked values stay", () => {
    const shown = { item: "tea", count: 20, key: "***" };
    expect(argsChange(shown, { ...shown, count: 12 })).toEqual({ kind: "patch", args_patch: { count: 12 } });
    expect(argsChange(shown, { ...shown })).toEqual({ kind: "none" });
  });

  it("gives way to all arguments where a value becomes null, unless some are masked", () => {
    expect(argsChange({ a: 1 }, { a: null })).toEqual({ kind: "args", args: { a: null } });
    expect(() => argsChange({ a: 1, key: "***" }, { a: null, key: "***" })).toThrow(/masked/);
  });

  it("makes of the shown arguments the edited ones, whatever they are", () => {
    fc.assert(
      fc.property(args, args, (shown, edited) => {
        let change;
        try {
          change = argsChange(shown, edited);
        } catch {
          return;
        }
        const result = change.kind === "patch" ? applyPatch(shown, change.args_patch) : change.kind === "args" ? change.args : shown;
        expect(isSameJson(result, edited)).toBe(true);
      }),
    );
  });

  it("is empty for equal values", () => {
    fc.assert(fc.property(args, (value) => void expect(mergePatch(value, structuredClone(value))).toEqual({})));
  });

  it("is counted on the button", () => {
    expect([0, 1, 2].map(approveLabel)).toEqual(["Approve", "Approve with 1 change", "Approve with 2 changes"]);
  });
});

const SCHEMA: JsonObject = {
  type: "object",
  required: ["item", "count"],
  properties: {
    item: { type: "string", description: "what to order" },
    count: { type: "integer", minimum: 1, maximum: 50 },
    express: { type: "boolean" },
    carrier: { enum: ["Lumen", "Noord"] },
    note: { anyOf: [{ type: "string", maxLength: 5 }, { type: "null" }] },
    address: { $ref: "#/$defs/Address" },
    loop: { $ref: "#/$defs/Loop" },
    tags: { type: "array", items: { type: "string" } },
  },
  $defs: {
    Address: { type: "object", properties: { city: { type: "string" }, geo: { type: "object", properties: { x: { type: "number" } } } } },
    Loop: { $ref: "#/$defs/Loop" },
  },
};
const CALL: JsonObject = { item: "tea", count: 20, express: false, carrier: "Lumen", note: null, address: { city: "Lyon", geo: { x: 1 } }, tags: ["a"], more: "x" };

describe("the fields of a call", () => {
  const fields = fieldsOf(SCHEMA, CALL);
  const field = (name: string) => fields.find((one) => one.name === name) as (typeof fields)[number];

  it("come from the tool's schema, two levels deep, and from the call where the schema has none", () => {
    expect(fields.map((one) => [one.name, one.kind])).toEqual([
      ["item", "text"],
      ["count", "integer"],
      ["express", "boolean"],
      ["carrier", "choice"],
      ["note", "text"],
      ["address.city", "text"],
      ["address.geo", "json"],
      ["loop", "json"],
      ["tags", "json"],
      ["more", "text"],
    ]);
    expect(field("item")).toMatchObject({ isRequired: true, description: "what to order" });
    expect(field("note")).toMatchObject({ isNullable: true, mostCharacters: 5 });
  });

  it("come from a real pause's schema, with its masked value locked", () => {
    const [pause] = pauses;
    const summary = pause?.payload.args_summary.args as unknown as JsonObject;
    const found = fieldsOf(pause?.payload.args_schema as unknown as Json, summary, true);
    expect(found.map((one) => [one.name, one.kind, one.isMasked])).toEqual([
      ["item", "text", false],
      ["count", "integer", false],
      ["token", "text", true],
    ]);
  });

  it("give every value back as it was when nothing is typed", () => {
    fc.assert(
      fc.property(args, (value) => {
        for (const one of fieldsOf(undefined, value)) {
          if (one.value === undefined) continue;
          const parsed = parseInput(one, inputOf(one));
          if ("value" in parsed) expect(isSameJson(parsed.value, one.value)).toBe(true);
          else expect.fail(parsed.problem);
        }
      }),
    );
  });

  it("are checked while a person types", () => {
    expect(parseInput(field("count"), "51")).toEqual({ problem: "at most 50" });
    expect(parseInput(field("count"), "2.5")).toEqual({ problem: "a whole number" });
    expect(parseInput(field("carrier"), "Else")).toEqual({ problem: "one of the choices" });
    expect(parseInput(field("note"), "too long")).toEqual({ problem: "at most 5 characters" });
    expect(parseInput(field("tags"), "[1,")).toEqual({ problem: "valid JSON" });
  });

  it("make an edited call with what will run, what changed and what is sent", () => {
    const edited = editCall(CALL, fields, { count: "12", "address.city": "Nice", item: "tea" });
    expect(edited).toMatchObject({ changed: ["count", "address.city"], changes: 2, blocked: "" });
    expect(edited.args).toEqual({ ...CALL, count: 12, address: { city: "Nice", geo: { x: 1 } } });
    expect(Object.keys(edited.args)).toEqual(Object.keys(CALL));
    expect(edited.change).toEqual({ kind: "patch", args_patch: { count: 12, address: { city: "Nice" } } });
  });

  it("block what does not fit", () => {
    expect(editCall(CALL, fields, { count: "x" })).toMatchObject({ blocked: "Some fields do not fit.", problems: { count: "a number" } });
    expect(editCall(CALL, fields, { more: "y".repeat(5000) }).blocked).toMatch(/5,000 characters/);
  });

  it("leave a masked value alone whatever is typed", () => {
    const shown = { item: "tea", token: "***" };
    expect(editCall(shown, fieldsOf(undefined, shown, true), { token: "mine" }).change).toEqual({ kind: "none" });
  });

  it("are off with masked values on a server without patches, and say why", () => {
    expect(editability(true, false, false)).toMatchObject({ canEdit: false, why: expect.stringMatching(/masked/) });
    expect(editability(true, true, false).canEdit).toBe(true);
    expect(editability(false, true, true).canEdit).toBe(false);
  });

  it("stand for a schema that is no JSON", () => expect(parseSchema("{oops")).toBeUndefined());
});

describe("what a row may offer", () => {
  const known = { isCut: false, isMasked: false };

  it("is Approve only where the exact arguments stand in full", () => {
    expect(rowOffer({ args: { item: "tea", count: 20 }, ...known })).toEqual({ kind: "approve", text: '{"item": "tea", "count": 20}' });
    expect(rowOffer({ args: { text: "x".repeat(80) }, ...known }).kind).toBe("review");
    expect(rowOffer({ args: {}, isCut: true, isMasked: false }).kind).toBe("review");
    expect(rowOffer({ args: {}, isCut: false, isMasked: true }).kind).toBe("review");
    expect(rowOffer({ args: undefined, ...known }).kind).toBe("review");
  });

  it("shows characters that cannot be seen, or turn text around, as escapes", () => {
    expect(exactText({ path: "safe\u202Egnp.exe", zero: "a\u200Bb" })).toBe('{"path": "safe\\u202egnp.exe", "zero": "a\\u200bb"}');
    expect(visibleText("\u{E0041}")).toBe("\\u{e0041}");
  });

  it("has no invisible character, whatever the arguments are", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string({ unit: "binary" }), fc.string({ unit: "binary" })), (value) => {
        expect(exactText(value)).not.toMatch(/[\p{Cf}\p{Cc}]/u);
      }),
    );
  });
});

describe("the fate of an answer", () => {
  const token = RESTOCK.find((event) => event.type === "tool.approval_requested");
  const pauseToken = (token?.payload as { PauseToken: string }).PauseToken;
  const given = (eventId: string): GivenAnswer => ({ run: RESTOCK_RUN, token: pauseToken, verb: "approve", eventId, at: 1 });
  const runUntil = (type: string, count = 1): RunView => {
    const store = new RunStore();
    const places = RESTOCK.flatMap((event, at) => (event.type === type ? [at] : []));
    store.apply(RESTOCK.slice(0, (places[count - 1] ?? 0) + 1));
    store.noteSent({ run: RESTOCK_RUN, type: "APPROVE", eventId: "ev-1", at: Date.UTC(2026, 10, 28, 6, 38, 8) });
    store.noteSent({ run: RESTOCK_RUN, type: "APPROVE", eventId: "ev-2", at: Date.UTC(2026, 10, 28, 6, 38, 8) });
    return store.run(RESTOCK_RUN) as RunView;
  };

  it("is sent, then received, then counted by the event that ends the pause", () => {
    expect(answerFate(given("ev-1"), runUntil("tool.approval_requested"), 0).phase).toBe("sent");
    const received = RESTOCK.filter((event) => event.type === "control.received").findIndex(
      (event) => (event.payload as { EventID: string }).EventID === "ev-1",
    );
    expect(answerFate(given("ev-1"), runUntil("control.received", received + 1), 0).phase).toBe("received");
    expect(answerFate(given("ev-1"), runUntil("pause.resumed"), 0)).toMatchObject({ phase: "counted", isOver: true });
  });

  it("tells the second person who was first, and how", () => {
    const run = runUntil("pause.resumed");
    const fate = answerFate(given("ev-2"), run, (run.pauses[0]?.settledAt ?? 0) + 4200);
    expect(fate.phase).toBe("second");
    expect(fate.words.text).toBe("dev approved this 4 s ago, as it was asked. Your answer came second and was not counted.");
    const edited = runUntil("tool.approved");
    expect(answerFate(given("ev-2"), edited, edited.pauses[0]?.settledAt ?? 0).words.text).toMatch(/just now, with changes/);
  });

  it("that the server refused, or that does not fit, leaves the row", () => {
    const store = new RunStore();
    store.apply(RESTOCK.slice(0, 90));
    store.noteSent({ run: RESTOCK_RUN, type: "APPROVE", eventId: "new", at: 5 });
    store.noteNotSent(RESTOCK_RUN, "new", "not_found", 6);
    expect(answerFate({ ...given("new"), token: "other" }, store.run(RESTOCK_RUN), 0)).toMatchObject({ phase: "not_sent", isOver: false });
    expect(answerFate({ ...given("ev-bad"), token: "other" }, runUntil("control.applied"), 0)).toMatchObject({ phase: "failed", isOver: false });
  });

  it("is known at a foreign server by the control's own end", () => {
    const events = asForeign(RESTOCK);
    const start = events.findIndex((event) => event.type === "control.received" && (event.payload as { Type: string }).Type === "APPROVE");
    const store = new RunStore();
    store.apply(events.slice(0, start));
    for (const eventId of ["bad", "mine"]) store.noteSent({ run: RESTOCK_RUN, type: "APPROVE", eventId, at: 1 });
    store.apply(events.slice(start, events.findIndex((event) => event.type === "tool.approved") + 1));
    const run = store.run(RESTOCK_RUN);
    expect(answerFate(given("mine"), run, 0).phase).toBe("counted");
    expect(answeredWords(run?.pauses[0] as RunView["pauses"][number], 0)).toMatch(/elsewhere/);
  });

  it("sends payloads as the wire has them", () => {
    expect(approvePayload("t", { change: { kind: "patch", args_patch: { count: 12 } }, remember: "run" })).toEqual({
      token: "t",
      remember: "run",
      args_patch: { count: 12 },
    });
    expect(actedPayload("t", true, "done")).toEqual({ token: "t", acted: true, result: "done" });
    expect(actedPayload("t", false)).toEqual({ token: "t", acted: false });
  });

  it("takes no click right after the row changed", () => {
    expect([mayClick(1000, 1399), mayClick(1000, 1400)]).toEqual([false, true]);
  });
});
