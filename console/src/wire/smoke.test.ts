import { expect, test } from "vitest";

test("the test runner works", () => {
  expect(1 + 1).toBe(2);
});
