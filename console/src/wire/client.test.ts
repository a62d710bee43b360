import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { call, control } from "./client.ts";
import { connection, scopesOf, tokenProblem } from "./connection.ts";
import type { WireError } from "./error.ts";

let sent: { url: string; body: Record<string, unknown>; headers: Record<string, string> }[] = [];

function answers(body: string, status = 200): void {
  vi.stubGlobal("fetch", async (url: string, options: RequestInit) => {
    sent.push({ url, body: JSON.parse(String(options.body)), headers: options.headers as Record<string, string> });
    return new Response(body, { status });
  });
}

beforeEach(() => {
  sent = [];
  connection.value = { baseUrl: "http://runtime.test", token: "t", tenant: "acme", user: "ada", session: "s-1", scopes: [] };
});

afterEach(() => {
  vi.unstubAllGlobals();
  connection.value = null;
});

test("a call says who asks in its headers and the same in its body", async () => {
  answers('{"rows":[]}');
  await call("tasks.list", { page_size: 25 });
  expect(sent[0]).toMatchObject({
    url: "http://runtime.test/v1/tasks/list",
    body: { identity: { tenant: "acme", user: "ada", session: "s-1" }, page_size: 25 },
    headers: { "X-Harbor-Session": "s-1" },
  });
});

test("another session is looked at with the same token", async () => {
  answers("{}");
  await call("tasks.list", {}, { session: "s-2" });
  expect(sent[0]).toMatchObject({ body: { identity: { session: "s-2" } }, headers: { "X-Harbor-Session": "s-2" } });
});

test("a blank session leaves the identity to the token", async () => {
  answers("{}");
  await call("tasks.list", {}, { session: "" });
  expect(sent[0]).toMatchObject({ body: { identity: {} }, headers: { "X-Harbor-Session": "" } });
});

test("a control names its run and claims no more than it needs", async () => {
  answers('{"accepted":true}');
  await control("r-1", "pause");
  await control("r-1", "prioritize", { priority: 3 });
  connection.value = { ...(connection.value as NonNullable<typeof connection.value>), scopes: ["admin"] };
  await control("r-1", "prioritize", { priority: 3 });
  expect(sent.map(({ body }) => body["identity"])).toEqual([
    { run: "r-1", scope: "owner_user" },
    { run: "r-1", scope: "owner_user" },
    { run: "r-1", scope: "admin" },
  ]);
});

test("a refusal keeps code, message and status; what is no JSON is shown as it came", async () => {
  answers('{"code":"scope_mismatch","message":"needs admin"}', 403);
  await expect(call("tasks.list", {})).rejects.toMatchObject({ code: "scope_mismatch", message: "needs admin", status: 403, isForbidden: true });
  answers("<h1>Bad gateway</h1>", 502);
  await expect(call("tasks.list", {})).rejects.toMatchObject({ code: "runtime_error", message: "<h1>Bad gateway</h1>", status: 502 });
});

test("an empty answer is an empty one, and without a runtime nothing is asked", async () => {
  answers("");
  await expect(call("tasks.list", {})).resolves.toEqual({});
  connection.value = null;
  await expect(call("tasks.list", {})).rejects.toMatchObject({ code: "not_connected" } satisfies Partial<WireError>);
  expect(sent).toHaveLength(1);
});

test("a token of a runtime has three parts and is not short", () => {
  expect(tokenProblem("")).toMatch(/needed/);
  expect(tokenProblem("a.b")).toMatch(/three parts/);
  expect(tokenProblem("a.b.c")).toMatch(/too short/);
  expect(tokenProblem(`${"a".repeat(200)}.b.c`)).toBe("");
  expect(scopesOf(" admin, ,console:fleet")).toEqual(["admin", "console:fleet"]);
});
