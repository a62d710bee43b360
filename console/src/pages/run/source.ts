import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { LONG_RUN } from "../../model/bars/rows.ts";
import { RunStore } from "../../model/events/store.ts";
import type { RunView } from "../../model/events/views.ts";
import { runOf, type WireEvent } from "../../model/events/wire.ts";
import { call, control, type Answer, type Control } from "../../wire/client.ts";
import { connection } from "../../wire/connection.ts";
import { asWireError, WireError } from "../../wire/error.ts";
import { hasCapability, runtime } from "../../wire/runtime.ts";
import { EventStream, type StreamState } from "../../wire/stream.ts";
import type { RunHeader } from "../../wire/types.ts";

/** A run as a page follows it: its events, its record and its row, folded together. */
export interface Followed {
  readonly store: RunStore;
  /** The run; undefined until something is known of it. */
  readonly run: RunView | undefined;
  /** The events of the run and of the runs below it, oldest first, without streamed text. */
  readonly events: readonly WireEvent[];
  /** What the record says of the whole run; null where no record is to be had. */
  readonly header: RunHeader | null;
  readonly session: string;
  readonly stream: StreamState;
  /** Why nothing is shown; null while all is well. */
  readonly error: WireError | null;
  readonly isLoading: boolean;
  readonly reload: () => void;
  readonly send: (verb: Control, payload?: Record<string, unknown>) => Promise<string>;
}

const MOST_STEPS = 1_000;
const MOST_EVENTS = 20_000;
const PAID_AGAIN_MS = 1_000;
const MOST_CHILDREN = 50;
const HEADER_AGAIN_MS = 2_000;

interface Loaded {
  error: WireError | null;
  isLoading: boolean;
  session: string;
  header: RunHeader | null;
}

const NOTHING: Loaded = { error: null, isLoading: true, session: "", header: null };

/** Follow a run from its beginning for as long as the page is there. */
export function useRun(id: string, wantedSession: string): Followed {
  const to = connection.value;
  const info = runtime.value;
  const canRead = hasCapability("run_history");
  const key = `${id}\n${to?.baseUrl}\n${to?.token.slice(-16)}\n${wantedSession}\n${to?.session}`;
  const store = useMemo(() => new RunStore(), [key]);
  const events = useRef<WireEvent[]>([]);
  const [loaded, setLoaded] = useState<Loaded>(NOTHING);
  const [stream, setStream] = useState<StreamState>({ kind: "connecting" });
  const [turn, again] = useState(0);
  const [, draw] = useState(0);

  useEffect(() => {
    if (!to || !info || !id) return;
    const aborter = new AbortController();
    const isGone = (): boolean => aborter.signal.aborted;
    const first = wantedSession || to.session;
    setLoaded(NOTHING);
    const open = async (): Promise<void> => {
      // The row comes at once and the stream behind it; the record of a long run takes longer.
      const row = await readRow(store, id, first, aborter.signal);
      if (isGone()) return;
      if (!(row instanceof WireError)) setLoaded({ ...NOTHING, session: first, isLoading: false });
      else if (!canRead) throw row;
      const header = canRead ? await readRecord(store, id, first, aborter.signal) : null;
      if (isGone()) return;
      const session = header?.identity.session || first;
      if (row instanceof WireError) await readRow(store, id, session, aborter.signal);
      setLoaded({ header, session, error: null, isLoading: false });
    };
    open().catch((error: unknown) => {
      if (!isGone()) setLoaded((now) => ({ ...now, error: now.session ? null : asWireError(error), isLoading: false }));
    });
    return () => aborter.abort();
  }, [key, turn, info !== null]);

  useEffect(() => {
    if (loaded.isLoading || loaded.error) return;
    events.current = [];
    let isIn = false;
    const opened = new EventStream({
      run: id,
      children: true,
      after: 0,
      session: loaded.session,
      onEvents: (came) => {
        store.apply(came);
        keep(events.current, came);
        draw((count) => count + 1);
        if (isIn && came.some((event) => isEndOf(event, id))) settle();
      },
      onState: (state) => {
        isIn = state.kind === "live";
        setStream(state);
      },
      onGap: (lost) => store.noteGap({ from: lost.from, to: lost.to, lost: lost.lost, why: "dropped", at: Date.now() }),
    });
    // What only the record and the row know: the answer, what it cost, how calls that were cut ended.
    const settle = (): void => {
      const { signal } = new AbortController();
      void readRow(store, id, loaded.session, signal).then(() => draw((count) => count + 1));
      if (!canRead) return;
      void readRecord(store, id, loaded.session, signal).then(
        (header) => setLoaded((now) => ({ ...now, header })),
        () => undefined,
      );
    };
    return () => opened.close();
  }, [store, loaded.isLoading, loaded.error, loaded.session]);

  const run = store.run(id);
  usePaid(store, id, loaded, run, canRead, () => draw((count) => count + 1));
  useChildRows(store, id, loaded, () => draw((count) => count + 1));
  useHeader(id, loaded, run, canRead, (header) => setLoaded((now) => ({ ...now, header })));

  const send = async (verb: Control, payload: Record<string, unknown> = {}): Promise<string> => {
    const eventId = `console-${crypto.randomUUID()}`;
    store.noteSent({ run: id, type: verb.toUpperCase(), eventId, at: Date.now() });
    draw((count) => count + 1);
    try {
      await control(id, verb, payload, { eventId, session: loaded.session });
    } catch (error) {
      store.noteNotSent(id, eventId, asWireError(error).code, Date.now());
      draw((count) => count + 1);
    }
    return eventId;
  };
  const reload = (): void => again((count) => count + 1);
  return { ...loaded, store, run, events: events.current, stream, reload, send };
}

/** Whether an event ends this very run. */
function isEndOf(event: WireEvent, id: string): boolean {
  return /^task\.(completed|failed|cancelled)$/.test(event.type) && runOf(event) === id;
}

function keep(kept: WireEvent[], came: readonly WireEvent[]): void {
  for (const event of came) if (event.type !== "llm.completion.chunk") kept.push(event);
  if (kept.length > MOST_EVENTS) kept.splice(0, kept.length - MOST_EVENTS);
}

/** Read the record of a run, page by page. It also says in which session the run is. */
async function readRecord(store: RunStore, id: string, session: string, signal: AbortSignal): Promise<RunHeader> {
  let after = 0;
  for (;;) {
    const page = await call("runs.steps", { id, after, limit: MOST_STEPS }, { session, signal });
    watch(store, page.run);
    store.noteHistory(page as never);
    after = page.steps.at(-1)?.step ?? after;
    if (!page.more || page.steps.length === 0) return page.run;
  }
}

/** Read the row of a run; the error where this token may not see it in that session. */
async function readRow(store: RunStore, id: string, session: string, signal: AbortSignal): Promise<WireError | null> {
  try {
    noteRow(store, id, await call("tasks.get", { id }, { session, signal }));
    return null;
  } catch (error) {
    return asWireError(error);
  }
}

function watch(store: RunStore, run: RunHeader): void {
  const { tenant = "", user = "", session = "" } = run.identity;
  store.watch(run.id, { tenant, user, session });
}

function noteRow(store: RunStore, id: string, detail: Answer<"tasks.get">): void {
  const { tenant = "", user = "" } = detail.task.identity;
  store.watch(id, { tenant, user, session: detail.task.parent_session_id });
  store.noteTask(detail.task);
  const answer = answerOf(detail.result_inline ?? "");
  if (answer !== null) store.noteAnswer(id, answer);
}

/** The text of a result: its `answer`, else the JSON as it is. */
function answerOf(result: string): string | null {
  if (!result) return null;
  try {
    const said = JSON.parse(result) as { answer?: unknown } | string;
    if (typeof said === "string") return said;
    return typeof said.answer === "string" ? said.answer : JSON.stringify(said.answer ?? said, null, 2);
  } catch {
    return result;
  }
}

/** A model without a price tells no event what a step used: the record has it, for each step that was decided since. */
function usePaid(store: RunStore, id: string, loaded: Loaded, run: RunView | undefined, canRead: boolean, drawAgain: () => void): void {
  const read = useRef(0);
  const last = run?.steps.findLast((step) => step.decidedAt !== null);
  const isMissing = canRead && loaded.header !== null && last !== undefined && last.modelCalls.length === 0 && last.number > read.current;
  useEffect(() => {
    if (!isMissing || !last) return;
    const timer = setTimeout(
      () => {
        const after = Math.max(0, run?.steps.find((step) => step.number > read.current && step.modelCalls.length === 0)?.number ?? last.number) - 1;
        read.current = last.number;
        void call("runs.steps", { id, after, limit: MOST_STEPS }, { session: loaded.session }).then(
          (page) => {
            store.noteHistory(page as never);
            drawAgain();
          },
          () => undefined,
        );
      },
      last.number > LONG_RUN ? 10 * PAID_AGAIN_MS : PAID_AGAIN_MS,
    );
    return () => clearTimeout(timer);
  }, [isMissing, last?.number]);
}

/** Events do not say which agent a child run is of: its row does. */
function useChildRows(store: RunStore, id: string, loaded: Loaded, drawAgain: () => void): void {
  const asked = useRef(new Set<string>());
  const unknown = loaded.isLoading ? "" : store.ids().filter((one) => one !== id && !asked.current.has(one)).slice(0, MOST_CHILDREN).join("\n");
  useEffect(() => {
    if (!unknown) return;
    for (const child of unknown.split("\n")) {
      asked.current.add(child);
      void call("tasks.get", { id: child }, { session: loaded.session }).then(
        (detail) => {
          store.noteTask(detail.task);
          drawAgain();
        },
        () => undefined,
      );
    }
  }, [unknown, store]);
}

/** A run that began after the page was opened gets its header as soon as there is one. */
function useHeader(id: string, loaded: Loaded, run: RunView | undefined, canRead: boolean, set: (header: RunHeader) => void): void {
  const isMissing = canRead && !loaded.isLoading && !loaded.error && (!loaded.header || !loaded.header.model) && run !== undefined;
  useEffect(() => {
    if (!isMissing) return;
    const timer = setTimeout(() => {
      void call("runs.steps", { id, limit: 1 }, { session: loaded.session }).then(
        (page) => set(page.run),
        () => undefined,
      );
    }, HEADER_AGAIN_MS);
    return () => clearTimeout(timer);
  }, [isMissing, id, run?.steps.length]);
}

/** What tools do to the world, as `tools.list` knows it; "" for a tool that it does not name. */
export function useEffectsOf(run: RunView | undefined, session: string): (tool: string) => string {
  const [known, know] = useState<ReadonlyMap<string, string>>(new Map());
  const missing = useMemo(() => {
    const tools = new Set(run?.steps.flatMap((step) => step.calls.filter((one) => !one.sideEffect).map((one) => one.tool)));
    return [...tools].filter((tool) => !known.has(tool)).sort().join("\n");
  }, [run, known]);
  useEffect(() => {
    if (!missing) return;
    const names = missing.split("\n");
    void Promise.all(names.map((id) => call("tools.describe", { id }, { session }).then((said) => said.side_effect, () => ""))).then((said) =>
      know((now) => new Map([...now, ...names.map((name, at): [string, string] => [name, said[at] ?? ""])])),
    );
  }, [missing, session]);
  return useMemo(() => (tool: string) => known.get(tool) ?? "", [known]);
}
