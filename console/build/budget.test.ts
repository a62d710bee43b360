import { randomBytes } from "node:crypto";

import { expect, test } from "vitest";

import { BUDGET, overBudget } from "./budget.ts";

function chunk(fileName: string, code: string, more: object = {}) {
  return { type: "chunk", fileName, name: fileName, code, imports: [], isEntry: false, isDynamicEntry: false, ...more };
}

function bundleOf(pageCode: string) {
  const entry = chunk("main.js", "1", { isEntry: true, imports: ["shared.js"] });
  const page = chunk("page.js", pageCode, { isDynamicEntry: true, imports: ["shared.js"] });
  return { "main.js": entry, "shared.js": chunk("shared.js", "2"), "page.js": page } as never;
}

test("a light page is within its budget", () => {
  expect(overBudget(bundleOf("3"))).toEqual([]);
});

test("a page whose scripts are too heavy is named with what it weighs", () => {
  const heavy = randomBytes(BUDGET.js).toString("hex");
  expect(overBudget(bundleOf(heavy))).toEqual([expect.stringMatching(/^page\.js: js \d+ of 120000 bytes$/)]);
});
