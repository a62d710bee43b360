import { headersOf } from "./client.ts";
import { attachToDevelopment, connection, isDevelopment, type Connection } from "./connection.ts";
import { WireError, asWireError, refusalOf } from "./error.ts";
import { FrameReader, type Frame } from "./sse.ts";
import type { EventPayloads, Json } from "./types.ts";

/** One event as the stream sends it. */
export interface WireEvent {
  type: string;
  sequence: number;
  occurred_at: string;
  tenant: string;
  user: string;
  session: string;
  run?: string;
  payload?: Json;
  extra?: Record<string, string>;
}

/** The payload of an event of one type. What a foreign server leaves out is missing here, too. */
export function payloadOf<T extends keyof EventPayloads>(event: WireEvent, _type: T): Partial<EventPayloads[T]> {
  return (event.payload ?? {}) as Partial<EventPayloads[T]>;
}

export type StreamState =
  | { kind: "connecting" }
  | { kind: "live"; since: number }
  | { kind: "lost"; since: number; nextTry: number; error: WireError }
  | { kind: "refused"; error: WireError }
  | { kind: "resting" };

/** Events that were not delivered: dropped for a slow reader, or no longer kept when the stream was resumed. */
export interface Gap {
  lost: number;
  from: number;
  to: number;
  canReadAgain: boolean;
}

export interface StreamOptions {
  types?: readonly string[];
  run?: string;
  children?: boolean;
  /** Begin behind this sequence; 0 is the beginning. Without it the stream begins with what comes now. */
  after?: number;
  admin?: boolean;
  session?: string;
  /** Called at most once a frame of the screen, with what came since. */
  onEvents(events: WireEvent[]): void;
  onState?(state: StreamState): void;
  onGap?(gap: Gap): void;
  /** Called with the newest sequence that the server has, when it says so as the stream opens. */
  onCursor?(sequence: number): void;
  /** Whether the stream stays open in a tab that nobody looks at. */
  staysWhenHidden?(): boolean;
}

const SILENCE_MS = 60_000;
const REST_AFTER_MS = 60_000;

/** How long to wait before the nth try in a row, in milliseconds; `random` is in 0..1. */
export function backOff(attempt: number, random: number): number {
  const most = Math.min(15_000, 500 * 2 ** Math.min(attempt, 10));
  return most * (0.75 + random / 4);
}

/** One stream of events that comes back by itself, behind the last event that it delivered. */
export class EventStream {
  private cursor: string;
  private attempt = 0;
  private lostSince = 0;
  private waiting: WireEvent[] = [];
  private isScheduled = false;
  private isClosed = false;
  private isResting = false;
  private aborter: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private silence: ReturnType<typeof setTimeout> | undefined;
  private hidden: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly options: StreamOptions) {
    this.cursor = options.after === undefined ? "" : String(options.after);
    globalThis.document?.addEventListener("visibilitychange", this.onVisibility);
    globalThis.addEventListener?.("online", this.tryNow);
    void this.run();
  }

  close(): void {
    this.isClosed = true;
    clearTimeout(this.timer);
    clearTimeout(this.silence);
    clearTimeout(this.hidden);
    globalThis.document?.removeEventListener("visibilitychange", this.onVisibility);
    globalThis.removeEventListener?.("online", this.tryNow);
    this.aborter?.abort();
  }

  /** Connect at once, if the stream waits for its next try. */
  readonly tryNow = (): void => {
    if (this.isClosed || this.aborter) return;
    clearTimeout(this.timer);
    this.attempt = 0;
    void this.run();
  };

  private readonly onVisibility = (): void => {
    clearTimeout(this.hidden);
    if (!document.hidden) {
      if (this.isResting) {
        this.isResting = false;
        this.tryNow();
      }
      return;
    }
    this.hidden = setTimeout(() => {
      if (this.options.staysWhenHidden?.()) return;
      this.isResting = true;
      clearTimeout(this.timer);
      this.options.onState?.({ kind: "resting" });
      this.aborter?.abort();
    }, REST_AFTER_MS);
  };

  private async run(): Promise<void> {
    const to = connection.value;
    if (!to || this.isClosed) return;
    const aborter = new AbortController();
    this.aborter = aborter;
    if (!this.lostSince) this.options.onState?.({ kind: "connecting" });
    let failure: WireError;
    try {
      await this.read(to, aborter);
      failure = new WireError("stream_ended", "the runtime ended the stream", 0);
    } catch (error) {
      failure = asWireError(error);
    }
    clearTimeout(this.silence);
    this.aborter = null;
    if (this.isClosed || this.isResting) return;
    if (await this.isRefused(failure, to)) {
      this.options.onState?.({ kind: "refused", error: failure });
      return;
    }
    this.lostSince ||= Date.now();
    const wait = backOff(this.attempt++, Math.random());
    const lost = { kind: "lost", since: this.lostSince, nextTry: Date.now() + wait, error: failure } as const;
    this.options.onState?.(lost);
    this.timer = setTimeout(() => void this.run(), wait);
  }

  /** Whether another try can only be refused again. A development server that was started anew gives a new token. */
  private async isRefused(failure: WireError, used: Connection): Promise<boolean> {
    if (failure.status !== 401 && failure.status !== 403 && failure.status !== 404) return false;
    if (failure.status !== 401 || !isDevelopment || used.baseUrl !== location.origin) return true;
    if (connection.value?.token !== used.token) return false;
    return attachToDevelopment().then(
      () => false,
      (error: unknown) => asWireError(error).status !== 0,
    );
  }

  private async read(to: Connection, aborter: AbortController): Promise<void> {
    const query = new URLSearchParams();
    for (const type of this.options.types ?? []) query.append("type", type);
    if (this.options.run) query.set("run", this.options.run);
    if (this.options.children) query.set("children", "1");
    if (this.options.admin) query.set("admin", "1");
    const headers = headersOf(to, this.options.session ?? to.session);
    if (this.cursor) headers["Last-Event-ID"] = this.cursor;
    const answer = await fetch(`${to.baseUrl}/v1/events?${query}`, {
      headers,
      credentials: "omit",
      cache: "no-store",
      signal: aborter.signal,
    });
    if (!answer.ok || !answer.body) throw refusalOf(answer.status, await answer.text());
    this.attempt = 0;
    this.lostSince = 0;
    this.options.onState?.({ kind: "live", since: Date.now() });
    const frames = new FrameReader();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      clearTimeout(this.silence);
      this.silence = setTimeout(() => aborter.abort(), SILENCE_MS);
      const { done, value } = await reader.read();
      if (done) return;
      for (const frame of frames.push(value)) this.take(frame);
    }
  }

  private take(frame: Frame): void {
    if (frame.id !== null) this.cursor = frame.id;
    if (frame.comment?.startsWith("stream.replay_unavailable")) {
      this.options.onGap?.({ lost: 0, from: 0, to: Number(frame.id ?? 0), canReadAgain: false });
    }
    if (!frame.data) {
      if (frame.id !== null && Number(frame.id) >= 0) this.options.onCursor?.(Number(frame.id));
      return;
    }
    let event: WireEvent;
    try {
      event = JSON.parse(frame.data) as WireEvent;
    } catch {
      return; // A frame that is no event of ours: another server may send its own.
    }
    if (event.type === "bus.dropped") this.options.onGap?.(gapOf(event));
    this.waiting.push(event);
    this.schedule();
  }

  private schedule(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    if (globalThis.document?.hidden === false) requestAnimationFrame(this.flush);
    else setTimeout(this.flush, 250);
  }

  private readonly flush = (): void => {
    this.isScheduled = false;
    const events = this.waiting;
    this.waiting = [];
    if (!this.isClosed && events.length) this.options.onEvents(events);
  };
}

function gapOf(event: WireEvent): Gap {
  const said = payloadOf(event, "bus.dropped");
  const number = (value: unknown) => (typeof value === "number" ? value : 0);
  return {
    lost: number(said.DroppedCount),
    from: number(said.FromSeq),
    to: number(said.ToSeq),
    canReadAgain: true,
  };
}
