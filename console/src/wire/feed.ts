import { batch, computed, effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { call } from "./client.ts";
import { connection, seesFleet } from "./connection.ts";
import { EventStream, type Gap, type StreamState, type WireEvent } from "./stream.ts";
import { EVENT_TYPES } from "./types.ts";

/** The one stream that the whole console shares: every event of what the viewer may see, streamed words left out. */
export const streamState = signal<StreamState>({ kind: "resting" });
export const newestSequence = signal(0);
export const droppedCount = signal(0);
export const gap = signal<Gap | null>(null);
/** What the newest event of the shared stream says the time is, in milliseconds; 0 before the first one. */
export const newestAt = signal(0);

const KEPT = 500;
const recent = signal<readonly WireEvent[]>([]);
/** The newest events, oldest first; at most 500 of them. */
export const recentEvents = computed(() => recent.value);

const RATE_MS = 10_000;
const arrivals: number[] = [];
export const eventsPerSecond = signal(0);

type Listener = (events: readonly WireEvent[]) => void;
const listeners = new Set<Listener>();
let open: EventStream | null = null;

export const SHARED_TYPES: readonly string[] = EVENT_TYPES.filter((type) => type !== "llm.completion.chunk");

/** Hear of events while a component is there: at most once a frame, with all that came since. */
export function useEvents(hear: Listener): void {
  const newest = useRef(hear);
  newest.current = hear;
  useEffect(() => {
    const listener: Listener = (events) => newest.current(events);
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
    };
  }, []);
}

/** Hear of events outside of components. Returns what ends it. */
export function onEvents(hear: Listener): () => void {
  listeners.add(hear);
  return () => listeners.delete(hear);
}

export function tryNow(): void {
  open?.tryNow();
}

function take(events: WireEvent[]): void {
  const now = Date.now();
  for (let index = 0; index < events.length; index++) arrivals.push(now);
  batch(() => {
    const last = events.at(-1);
    if (last) {
      newestSequence.value = last.sequence;
      newestAt.value = Date.parse(last.occurred_at) || now;
    }
    recent.value = [...recent.value, ...events].slice(-KEPT);
    measure(now);
  });
  for (const hear of listeners) hear(events);
}

function measure(now: number): void {
  while (arrivals.length && now - (arrivals[0] ?? now) > RATE_MS) arrivals.shift();
  eventsPerSecond.value = arrivals.length / (RATE_MS / 1000);
}

/** Keep the shared stream open to the runtime that is attached, whichever it is. */
export function startFeed(staysWhenHidden: () => boolean = () => false): void {
  const target = computed(() => {
    const to = connection.value;
    return to && `${to.baseUrl}\n${to.tenant}\n${to.user}\n${seesFleet.value ? "" : to.session}`;
  });
  effect(() => {
    const now = target.value;
    open?.close();
    open = null;
    batch(() => {
      recent.value = [];
      streamState.value = { kind: "resting" };
      gap.value = null;
      droppedCount.value = 0;
      newestSequence.value = 0;
    });
    if (!now) return;
    open = new EventStream({
      types: SHARED_TYPES,
      admin: seesFleet.peek(),
      onEvents: take,
      onCursor: (sequence) => {
        newestSequence.value = Math.max(newestSequence.peek(), sequence);
      },
      onState: (state) => {
        streamState.value = state;
      },
      onGap: (lost) => {
        gap.value = lost;
        droppedCount.value += lost.lost;
      },
      staysWhenHidden,
    });
  });
  setInterval(() => !document.hidden && measure(Date.now()), 1_000);
}

/** How many wait for a person, and how many run or work in the background: what the sidebar counts. */
export const counts = signal<{ waiting?: number; running?: number; background?: number }>({});

const COUNTS_MS = 5_000;

/** Count what the sidebar shows: every five seconds, and sooner when a pause opens or ends. */
export function startCounts(): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isAsking = false;
  const ask = async (): Promise<void> => {
    clearTimeout(timer);
    if (isAsking) return;
    if (connection.value && !document.hidden) {
      isAsking = true;
      const [pauses, figures] = await Promise.allSettled([
        call("pause.list", { filter: { status: ["paused"] }, page_size: 1 }),
        call("runtime.counters", {}),
      ]);
      isAsking = false;
      counts.value = {
        ...(pauses.status === "fulfilled" ? { waiting: pauses.value.total_rows } : {}),
        ...(figures.status === "fulfilled"
          ? { running: figures.value.tasks_running, background: figures.value.background_jobs_active }
          : {}),
      };
    }
    timer = setTimeout(() => void ask(), COUNTS_MS);
  };
  effect(() => {
    if (connection.value) void ask();
    else counts.value = {};
  });
  const TELLING = new Set(["pause.requested", "pause.resumed", "tool.approval_requested", "task.completed", "task.started", "task.failed"]);
  onEvents((events) => {
    if (!events.some((event) => TELLING.has(event.type))) return;
    clearTimeout(timer);
    timer = setTimeout(() => void ask(), 300);
  });
}
