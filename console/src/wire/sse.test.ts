import fc from "fast-check";
import { expect, test } from "vitest";

import { FrameReader, type Frame } from "./sse.ts";

const STREAM =
  "retry: 3000\nid: 8192\n\n" +
  ": keepalive\n\n" +
  'id: 12288\nevent: task.started\ndata: {"a":\ndata: 1}\n\n' +
  'event: llm.completion.chunk\ndata: {"Delta":"ü"}\n\n';

function read(pieces: string[]): Frame[] {
  const reader = new FrameReader();
  return pieces.flatMap((piece) => reader.push(piece));
}

test("a stream is cut into its frames: ids, names, joined data and comments", () => {
  const [first, alive, started, chunk] = read([STREAM]);
  expect(first).toMatchObject({ id: "8192", data: "" });
  expect(alive).toMatchObject({ comment: "keepalive", id: null });
  expect(started).toEqual({ event: "task.started", data: '{"a":\n1}', id: "12288", comment: null });
  expect(chunk).toMatchObject({ event: "llm.completion.chunk", id: null });
});

test("however the text is split on the way, the frames are the same", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(STREAM.length), { maxLength: 8 }), (cuts) => {
      const at = [0, ...cuts.sort((a, b) => a - b), STREAM.length];
      const pieces = at.slice(1).map((end, index) => STREAM.slice(at[index], end));
      expect(read(pieces)).toEqual(read([STREAM]));
    }),
  );
});

test("an unfinished frame waits for its end", () => {
  const reader = new FrameReader();
  expect(reader.push("data: 1")).toEqual([]);
  expect(reader.push("\n\n")).toHaveLength(1);
});
