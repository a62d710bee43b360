import { useEffect, useRef, useState } from "preact/hooks";

import { EventList } from "../model/event-list.ts";
import { STORED_UNIT } from "../model/events/wire.ts";
import { seesFleet } from "./connection.ts";
import { newestSequence, recentEvents, SHARED_TYPES, useEvents } from "./feed.ts";
import { EventStream } from "./stream.ts";

const KEPT = 500;
const GIVE_UP_MS = 5_000;

/**
 * The newest 500 events of what the viewer may see, those from before the page opened among them.
 *
 * A server that does not say its newest sequence gives only what comes from now on. `touch` draws anew after a change
 * of the list; `isWhole` is false while older events are on their way.
 */
export function useEventList(): { list: EventList; touch: () => void; isWhole: boolean } {
  const list = useRef<EventList | null>(null);
  const [, draw] = useState(0);
  const [isWhole, whole] = useState(false);
  const touch = useRef(() => draw((count) => count + 1)).current;
  if (!list.current) {
    list.current = new EventList(KEPT);
    list.current.push(recentEvents.peek());
  }
  const kept = list.current;
  useEvents((events) => {
    kept.push(events);
    touch();
  });
  const isKnown = newestSequence.value > 0;
  useEffect(() => {
    if (!isKnown) return;
    return readBack(null, (events) => kept.push(events), touch, () => whole(true));
  }, [isKnown]);
  return { list: kept, touch, isWhole };
}

/** The newest events of one session, and those that come. */
export function useSessionEvents(session: string): EventList {
  const made = useRef<{ session: string; list: EventList } | null>(null);
  const [, draw] = useState(0);
  if (made.current?.session !== session) {
    made.current = { session, list: new EventList(KEPT) };
    made.current.list.push(recentEvents.peek().filter((event) => event.session === session));
  }
  const list = made.current.list;
  const touch = useRef(() => draw((count) => count + 1)).current;
  useEvents((events) => {
    const ours = events.filter((event) => event.session === session);
    if (!ours.length) return;
    list.push(ours);
    touch();
  });
  useEffect(() => readBack(session, (events) => list.push(events), touch, () => undefined), [session]);
  return list;
}

/** Read what was before now: all of one session, or the newest of what the viewer may see. Returns what ends it. */
function readBack(
  session: string | null,
  take: (events: Parameters<EventList["push"]>[0]) => void,
  touch: () => void,
  onWhole: () => void,
): () => void {
  const until = newestSequence.peek();
  const done = (): void => {
    clearTimeout(timer);
    stream.close();
    onWhole();
  };
  const timer = setTimeout(done, GIVE_UP_MS);
  const stream: EventStream = new EventStream({
    types: SHARED_TYPES,
    admin: session === null && seesFleet.peek(),
    ...(session === null ? {} : { session }),
    after: session === null ? Math.max(0, until - KEPT * STORED_UNIT) : 0,
    onEvents: (events) => {
      take(events);
      touch();
      if (events.some((event) => event.sequence >= until)) done();
    },
    onState: (state) => {
      if (state.kind === "refused" || state.kind === "lost") done();
    },
  });
  return () => {
    clearTimeout(timer);
    stream.close();
  };
}
