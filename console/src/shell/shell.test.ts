import { expect, test } from "vitest";

import { spelling, written } from "./keys.ts";
import { PAGES, isRunPath, movedTo, pageOf } from "./pages.ts";
import { restOf } from "./router.ts";

const press = (key: string, more: object = {}) => spelling({ key, metaKey: false, ctrlKey: false, altKey: false, shiftKey: false, ...more });

test("a key press is spelled as bindings are", () => {
  expect(press("j")).toBe("j");
  expect(press("P", { shiftKey: true })).toBe("⇧P");
  expect(press("?", { shiftKey: true })).toBe("?");
  expect(press("k", { ctrlKey: true })).toBe("mod+k");
  expect(press("K", { metaKey: true })).toBe("mod+k");
  expect(press("Shift", { shiftKey: true })).toBe("");
  expect(written("g i")).toBe("g i");
  expect(written("mod+k")).toMatch(/^(Ctrl |⌘)K$/);
});

test("no two pages share a path or a key", () => {
  const keys = PAGES.flatMap((page) => page.key ?? []);
  expect(new Set(keys).size).toBe(keys.length);
  expect(new Set(PAGES.map((page) => page.path)).size).toBe(PAGES.length);
});

test("a path leads to its page, and that of a run to the run", () => {
  expect(pageOf("/tasks")?.title).toBe("Tasks");
  expect(pageOf("/tasks/r-1")?.title).toBe("Run");
  expect(pageOf("/tasks/r-1/compare/r-2")?.title).toBe("Compare");
  expect(pageOf("/agents/a%2Fb")?.title).toBe("Agents");
  expect(pageOf("/tasksx")).toBeUndefined();
  expect([isRunPath("/tasks"), isRunPath("/tasks/r")]).toEqual([false, true]);
});

test("addresses of notifications lead on, others stay", () => {
  expect(movedTo("/")).toBe("/overview");
  expect(movedTo("/console/tasks/r-1")).toBe("/tasks/r-1");
  expect(movedTo("/console/interventions/p-1")).toBe("/inbox/p-1");
  expect(movedTo("/overview")).toBe("");
});

test("the rest of a path is decoded, whatever stands in it", () => {
  expect(restOf("/agents/a%2Fb", "/agents")).toBe("a/b");
  expect(restOf("/agents", "/agents")).toBe("");
  expect(restOf("/agents/%", "/agents")).toBe("%");
});
