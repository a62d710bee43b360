import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { answerOfResult } from "../../model/conversation.ts";
import { FOLDED_TYPES } from "../../model/events/fold.ts";
import { isEnd } from "../../model/events/run-state.ts";
import { RunStore } from "../../model/events/store.ts";
import type { RunView } from "../../model/events/views.ts";
import { call, control, type Answer, type Control } from "../../wire/client.ts";
import { connection } from "../../wire/connection.ts";
import { asWireError, type WireError } from "../../wire/error.ts";
import { hasCapability, runtime } from "../../wire/runtime.ts";
import { EventStream, type StreamState } from "../../wire/stream.ts";

/** A conversation: the runs of one session that a person started, oldest first, and the runs below them. */
export interface Conversation {
  readonly session: string;
  readonly turns: readonly RunView[];
  /** The newest run, if it goes on: what a steer goes to, and what a queue waits for. */
  readonly active: RunView | null;
  /** What this page's own messages say, by the id of their event: no event carries the text. */
  readonly said: ReadonlyMap<string, string>;
  readonly childOf: (id: string) => RunView | undefined;
  readonly stream: StreamState;
  readonly error: WireError | null;
  readonly isLoading: boolean;
  readonly reload: () => void;
  readonly send: (run: string, verb: Control, payload?: Record<string, unknown>) => Promise<void>;
  /** Start a run; it is a turn at once, before its first event. Throws a WireError. */
  readonly start: (asked: Asked) => Promise<string>;
}

export interface Asked {
  readonly text: string;
  readonly agent: string;
  readonly artifacts: readonly string[];
  /** Whether what was said before is sent along, for an agent that remembers nothing of its session. */
  readonly withEarlier: boolean;
}

const PAST_TURNS = 50;
const WITH_STEPS = 12;
const MOST_STEPS = 200;
const EARLIER_TURNS = 10;
const UNREADABLE = "(failed to parse answer payload)";

/** Follow a session for as long as the page shows it. */
export function useConversation(session: string): Conversation {
  const to = connection.value;
  const canRead = hasCapability("run_history");
  const key = `${session}\n${to?.baseUrl}\n${to?.tenant}\n${to?.user}`;
  const store = useMemo(() => new RunStore(), [key]);
  const [stream, setStream] = useState<StreamState>({ kind: "connecting" });
  const [loaded, setLoaded] = useState<{ store: RunStore | null; error: WireError | null }>({ store: null, error: null });
  const [turn, again] = useState(0);
  const [, draw] = useState(0);
  const said = useRef(new Map<string, string>()).current;
  const redraw = (): void => draw((count) => count + 1);

  useEffect(() => {
    if (!to || !session || !runtime.value) return;
    const aborter = new AbortController();
    setLoaded({ store: null, error: null });
    const opened = new EventStream({
      types: FOLDED_TYPES,
      session,
      onEvents: (came) => {
        store.apply(came);
        redraw();
      },
      onState: setStream,
      onGap: (lost) => store.noteGap({ from: lost.from, to: lost.to, lost: lost.lost, why: "dropped", at: Date.now() }),
    });
    readPast(store, session, canRead, aborter.signal).then(
      () => setLoaded({ store, error: null }),
      (error: unknown) => {
        if (!aborter.signal.aborted) setLoaded({ store, error: asWireError(error) });
      },
    );
    return () => {
      aborter.abort();
      opened.close();
    };
  }, [store, turn, runtime.value !== null]);

  const turns = store
    .all()
    .filter((run) => !run.parentId && run.identity.session === session && run.kind !== "background")
    .reverse();
  const children = store.all().filter((run) => run.parentId && run.identity.session === session);
  useRows(store, [...turns, ...children], session, redraw);
  const last = turns.at(-1);

  const send = async (run: string, verb: Control, payload: Record<string, unknown> = {}): Promise<void> => {
    const eventId = `console-${crypto.randomUUID()}`;
    if (typeof payload["message"] === "string") said.set(eventId, payload["message"]);
    store.noteSent({ run, type: verb.toUpperCase(), eventId, at: Date.now() });
    redraw();
    try {
      await control(run, verb, payload, { eventId, session });
    } catch (error) {
      store.noteNotSent(run, eventId, asWireError(error).code, Date.now());
      redraw();
    }
  };
  const start = async (asked: Asked): Promise<string> => {
    const earlier = asked.withEarlier ? earlierOf(turns) : [];
    const { task_id } = await call(
      "start",
      {
        query: asked.text,
        description: "",
        ...(asked.agent ? { agent: asked.agent } : {}),
        ...(asked.artifacts.length ? { input_artifact_ids: [...asked.artifacts] } : {}),
        ...(earlier.length ? { messages: earlier } : {}),
      },
      { session },
    );
    await readRow(store, task_id, session);
    redraw();
    return task_id;
  };
  return {
    session,
    turns,
    active: last && !isEnd(last.status) ? last : null,
    said,
    childOf: (id) => store.run(id),
    stream,
    error: loaded.error,
    isLoading: loaded.store !== store,
    reload: () => again((count) => count + 1),
    send,
    start,
  };
}

/** Rebuild the turns of before: rows, then answers, then the steps of the newest, where there is a record. */
async function readPast(store: RunStore, session: string, canRead: boolean, signal: AbortSignal): Promise<void> {
  const { rows } = await call("tasks.list", { page_size: PAST_TURNS }, { session, signal });
  for (const row of rows) {
    const { tenant = "", user = "" } = row.identity;
    store.watch(row.id, { tenant, user, session: row.parent_session_id });
    store.noteTask(row);
  }
  const roots = rows.filter((row) => !row.parent_task_id && row.kind !== "background");
  await Promise.allSettled([
    ...roots.filter((row) => row.status === "complete").map((row) => readRow(store, row.id, session, signal)),
    ...(canRead ? roots.slice(0, WITH_STEPS) : []).map(async (row) => {
      const page = await call("runs.steps", { id: row.id, limit: MOST_STEPS }, { session, signal });
      store.noteHistory(page as never);
    }),
  ]);
}

async function readRow(store: RunStore, id: string, session: string, signal?: AbortSignal): Promise<void> {
  const detail = await call("tasks.get", { id }, { session, ...(signal ? { signal } : {}) });
  const { tenant = "", user = "" } = detail.task.identity;
  store.watch(id, { tenant, user, session: detail.task.parent_session_id });
  store.noteTask(detail.task);
  const answer = answerOfDetail(detail);
  if (answer !== null) store.noteAnswer(id, answer);
}

function answerOfDetail(detail: Answer<"tasks.get">): string | null {
  if (detail.task.status !== "complete" || !detail.result_inline) return null;
  return answerOfResult(detail.result_inline) ?? UNREADABLE;
}

/** Events name no goal, and no final answer: the row of a run has both, so it is asked when a run is new and when it ends. */
function useRows(store: RunStore, known: readonly RunView[], session: string, redraw: () => void): void {
  const asked = useRef(new Set<string>());
  const missing = known
    .filter((run) => !run.goal || (run.status === "complete" && run.answer === null))
    .map((run) => `${run.id} ${run.status}`)
    .filter((one) => !asked.current.has(one));
  useEffect(() => {
    for (const one of missing) {
      asked.current.add(one);
      void readRow(store, one.split(" ")[0] ?? "", session).then(redraw, () => undefined);
    }
  }, [missing.join("\n")]);
}

function earlierOf(turns: readonly RunView[]) {
  return turns
    .filter((run) => run.status === "complete" && run.goal)
    .slice(-EARLIER_TURNS)
    .flatMap((run) => [
      { role: "user" as const, text: run.goal },
      ...(run.answer ? [{ role: "assistant" as const, text: run.answer }] : []),
    ]);
}
