import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { answerFate, type AnswerFate, type AnswerVerb, type GivenAnswer } from "../../model/approval/answers.ts";
import { RunStore } from "../../model/events/store.ts";
import type { PauseView } from "../../model/events/views.ts";
import type { WireEvent } from "../../model/events/wire.ts";
import { inboxItem, inboxOf, type InboxItem } from "../../model/inbox.ts";
import { announce, say } from "../../parts/toast.tsx";
import { control } from "../../wire/client.ts";
import { asWireError } from "../../wire/error.ts";
import { useEvents } from "../../wire/feed.ts";
import { useCall, type Resource } from "../../wire/resource.ts";
import type { PauseSnapshot } from "../../wire/types.ts";

const OFTEN_MS = 5_000;
const SELDOM_MS = 15_000;
const MOST = 200;
const TELLING = new Set(["pause.requested", "pause.resumed", "tool.approval_requested", "tool.approved", "tool.rejected", "tool.auth_required", "tool.auth_completed", "task.cancelled"]);
const NO_ANSWERS: readonly PauseSnapshot[] = [];

/** A pause that has been answered: what was asked, and who decided what. */
export interface AnsweredItem {
  readonly item: InboxItem;
  readonly decision: string;
  readonly by: string;
  readonly at: string;
}

export interface Inbox {
  readonly listed: Resource<unknown>;
  readonly reload: () => void;
  /** What waits, the soonest deadline first; also what was answered here and is not known to be over. */
  readonly items: readonly InboxItem[];
  readonly answered: readonly AnsweredItem[];
  readonly total: number;
  /** The fate of this console's own answer; null where it gave none. */
  fateOf(token: string, now: number): AnswerFate | null;
  /** The pause as the events told it; undefined for one that they did not name. */
  pauseOf(item: InboxItem): PauseView | undefined;
  isOpen(item: InboxItem): boolean;
  send(item: InboxItem, verb: AnswerVerb, payload: Record<string, unknown>): Promise<void>;
}

/** Everything that waits for a person, as far as the viewer may see, with the fates of the answers given here. */
export function useInbox(): Inbox {
  const [listed, reload] = useCall("pause.list", { filter: { status: ["paused"] }, page_size: MOST }, { everyMs: OFTEN_MS });
  const [ended, reloadEnded] = useCall("pause.list", { filter: { status: ["resumed"] }, page_size: 50 }, { everyMs: SELDOM_MS });
  const store = useRef(new RunStore()).current;
  const [given, give] = useState<ReadonlyMap<string, GivenAnswer>>(new Map());
  const [, draw] = useState(0);
  const items = useMemo(() => (listed.state === "ready" ? inboxOf(listed.data.snapshots) : []), [listed]);

  useEffect(() => {
    if (listed.state === "ready") for (const row of listed.data.snapshots) store.apply([requestOf(row)]);
  }, [listed]);
  useEvents((events) => {
    const changed = store.apply(events as readonly WireEvent[]);
    if (changed.size) draw((count) => count + 1);
    if (!events.some((event) => TELLING.has(event.type))) return;
    reload();
    reloadEnded();
  });

  const send = async (item: InboxItem, verb: AnswerVerb, payload: Record<string, unknown>): Promise<void> => {
    const answer: GivenAnswer = { run: item.run, token: item.token, verb, eventId: `console-${crypto.randomUUID()}`, at: Date.now() };
    store.noteSent({ run: item.run, type: verb.toUpperCase(), eventId: answer.eventId, at: answer.at });
    give((now) => new Map(now).set(item.token, answer));
    try {
      await control(item.run, verb, payload, { eventId: answer.eventId, session: item.identity.session });
      announce(`${item.tool || "The answer"}: sent`);
    } catch (error) {
      const { code } = asWireError(error);
      store.noteNotSent(item.run, answer.eventId, code, Date.now());
      draw((count) => count + 1);
      say({ glyph: "failed", text: `${item.tool || "The answer"} was not sent: ${code}`, href: `/inbox/${encodeURIComponent(item.token)}` });
    }
    reload();
    reloadEnded();
  };
  const pauseOf = (item: InboxItem) => store.run(item.run)?.pauses.findLast((one) => one.token === item.token);
  const snapshots = ended.state === "ready" ? ended.data.snapshots : NO_ANSWERS;
  const answered = useMemo(() => snapshots.map(answeredItem), [snapshots]);
  return {
    listed,
    reload,
    items,
    answered,
    total: listed.state === "ready" ? listed.data.total_rows : 0,
    fateOf: (token, now) => {
      const mine = given.get(token);
      return mine ? answerFate(mine, store.run(mine.run), now) : null;
    },
    pauseOf,
    isOpen: (item) => {
      const pause = pauseOf(item);
      return items.some((one) => one.token === item.token) && (!pause || pause.settledAt === null);
    },
    send,
  };
}

function answeredItem(row: PauseSnapshot): AnsweredItem {
  return { item: inboxItem(row), decision: row.decision ?? "", by: row.by?.user ?? "", at: row.resumed_at };
}

/** A listed pause as the event that opened it: the list may be the first to tell of it. */
function requestOf(row: PauseSnapshot): WireEvent {
  const { tenant = "", user = "", session = "", run = "" } = row.identity;
  return {
    type: "pause.requested",
    sequence: 1,
    occurred_at: row.paused_at,
    tenant,
    user,
    session,
    run,
    payload: { Token: row.token, Reason: row.reason, ...(row.step ? { Step: row.step } : {}), ...(row.call_id ? { CallID: row.call_id } : {}) },
  };
}
