import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { connection } from "./connection.ts";
import { EventStream, backOff, type Gap, type StreamState, type WireEvent } from "./stream.ts";

const frame = (sequence: number, type = "task.started", payload: unknown = {}) =>
  `id: ${sequence}\nevent: ${type}\ndata: ${JSON.stringify({ type, sequence, occurred_at: "", tenant: "", user: "", session: "", payload })}\n\n`;

/** A server that answers one connection after the other, and remembers how it was asked. */
function server(...answers: (Response | Error)[]) {
  const asked: { url: string; headers: Record<string, string> }[] = [];
  const fetch = vi.fn(async (url: string, options: RequestInit) => {
    asked.push({ url, headers: options.headers as Record<string, string> });
    const answer = answers.shift();
    if (!answer) return new Promise<Response>(() => undefined);
    if (answer instanceof Error) throw answer;
    return answer;
  });
  vi.stubGlobal("fetch", fetch);
  return asked;
}

function opened(options: Partial<ConstructorParameters<typeof EventStream>[0]> = {}) {
  const events: WireEvent[] = [];
  const states: StreamState["kind"][] = [];
  const gaps: Gap[] = [];
  const stream = new EventStream({
    onEvents: (some) => events.push(...some),
    onState: (state) => states.push(state.kind),
    onGap: (gap) => gaps.push(gap),
    ...options,
  });
  return { events, states, gaps, stream };
}

beforeEach(() => {
  vi.useFakeTimers();
  connection.value = { baseUrl: "http://runtime.test", token: "t", tenant: "acme", user: "ada", session: "s-1", scopes: [] };
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  connection.value = null;
});

test("a stream that breaks goes on behind the last event that came", async () => {
  const asked = server(new Response(`retry: 3000\nid: 4096\n\n${frame(8192)}${frame(12288)}`), new Response(frame(16384)));
  const { events, states, stream } = opened({ after: 0, run: "r-1" });
  await vi.advanceTimersByTimeAsync(2_000);
  expect(events.map((event) => event.sequence)).toEqual([8192, 12288, 16384]);
  expect(asked.map(({ headers }) => headers["Last-Event-ID"])).toEqual(["0", "12288", "16384"]);
  expect(asked[0]?.url).toBe("http://runtime.test/v1/events?run=r-1");
  expect(states.slice(0, 4)).toEqual(["connecting", "live", "lost", "live"]);
  stream.close();
});

test("who asks travels in headers, never in the address", async () => {
  const asked = server(new Response(""));
  const { stream } = opened();
  await vi.advanceTimersByTimeAsync(0);
  expect(asked[0]?.headers).toMatchObject({ Authorization: "Bearer t", "X-Harbor-Tenant": "acme", "X-Harbor-User": "ada", "X-Harbor-Session": "s-1" });
  expect(asked[0]?.url).not.toContain("token");
  expect(asked[0]?.headers["Last-Event-ID"]).toBeUndefined();
  stream.close();
});

test("a refusal ends it, and says why", async () => {
  const asked = server(new Response('{"code":"scope_mismatch","message":"needs admin"}', { status: 403 }));
  const refused: StreamState[] = [];
  const { stream } = opened({ onState: (state) => refused.push(state) });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(refused.at(-1)).toMatchObject({ kind: "refused", error: { code: "scope_mismatch", status: 403 } });
  expect(asked).toHaveLength(1);
  stream.close();
});

test("a server that is full or gone is tried again, later each time", async () => {
  const asked = server(new Response("", { status: 429 }), new Error("refused"), new Response("", { status: 503 }), new Response(frame(4096)));
  const { events, stream } = opened();
  await vi.advanceTimersByTimeAsync(6_000);
  expect(events).toHaveLength(1);
  expect(asked.length).toBeGreaterThanOrEqual(4);
  stream.close();
});

test("what was lost on the way is told", async () => {
  server(new Response(`id: 4096\n: stream.replay_unavailable 1\n\n${frame(8192, "bus.dropped", { FromSeq: 1, ToSeq: 9, DroppedCount: 3, SubscriberID: 1 })}`));
  const { gaps, stream } = opened();
  await vi.advanceTimersByTimeAsync(0);
  expect(gaps).toEqual([
    { lost: 0, from: 0, to: 4096, canReadAgain: false },
    { lost: 3, from: 1, to: 9, canReadAgain: true },
  ]);
  stream.close();
});

test("events of one moment come together", async () => {
  server(new Response(frame(4096) + frame(8192) + frame(12288)));
  const hear = vi.fn();
  const { stream } = opened({ onEvents: hear });
  await vi.advanceTimersByTimeAsync(300);
  expect(hear).toHaveBeenCalledTimes(1);
  stream.close();
});

test("the wait between tries grows to fifteen seconds and no further", () => {
  const waits = [0, 1, 2, 3, 10, 1000].map((attempt) => backOff(attempt, 1));
  expect(waits).toEqual([500, 1000, 2000, 4000, 15_000, 15_000]);
  expect(backOff(3, 0)).toBe(3000);
});
