import { expect, it } from "vitest";
import { EVENT_TYPES, type Methods } from "../wire/types.ts";
import type { WireEvent as StreamedEvent } from "../wire/stream.ts";
import type { CountedBucket } from "./charts.ts";
import type { CompareAnswer } from "./compare/answer.ts";
import type { Message } from "./compare/messages.ts";
import { FOLDED_TYPES } from "./events/fold.ts";
import type { RunHistory } from "./events/history.ts";
import type { TaskRowFacts } from "./events/rows.ts";
import type { WireEvent } from "./events/wire.ts";
import type { PauseSnapshot } from "./inbox.ts";

/** What the model reads is what the generated types of the wire have: a drift does not compile. */
export interface Shapes {
  event: (sent: StreamedEvent) => WireEvent;
  row: (sent: Methods["tasks.list"]["answer"]["rows"][number]) => TaskRowFacts;
  task: (sent: Methods["tasks.get"]["answer"]["task"]) => TaskRowFacts;
  history: (sent: Methods["runs.steps"]["answer"]) => RunHistory;
  comparison: (sent: Methods["runs.compare"]["answer"]) => CompareAnswer;
  bucket: (sent: Methods["events.aggregate"]["answer"]["buckets"][number]) => CountedBucket;
  pause: (sent: Methods["pause.list"]["answer"]["snapshots"][number]) => PauseSnapshot;
  message: (sent: NonNullable<Methods["runs.step"]["answer"]["saw"]>["asks"][number]["messages"][number]) => Message;
}

const SHAPES: Shapes = {
  event: (sent) => sent,
  row: (sent) => sent,
  task: (sent) => sent,
  history: (sent) => sent,
  comparison: (sent) => sent,
  bucket: (sent) => sent,
  pause: (sent) => sent,
  message: (sent) => sent,
};

it("is read as the wire has it", () => {
  expect(Object.keys(SHAPES)).toHaveLength(8);
  expect(FOLDED_TYPES.filter((type) => !(EVENT_TYPES as readonly string[]).includes(type))).toEqual([]);
});
