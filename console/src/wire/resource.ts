import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import { call, type Answer, type Body, type CallOptions, type Method } from "./client.ts";
import { connection } from "./connection.ts";
import { asWireError, type WireError } from "./error.ts";

/** What is asked for stands in exactly one of these. After an error no older data is kept: it may be wrong. */
export type Resource<T> =
  | { state: "disconnected" }
  | { state: "loading" }
  | { state: "failed"; error: WireError }
  | { state: "ready"; data: T; isRefreshing: boolean };

export interface AskOptions {
  /** Ask again after so many milliseconds, while the tab is in sight. */
  everyMs?: number;
  session?: string;
  /** Ask only when this is true. */
  when?: boolean;
}

/** Ask a method when the component comes, when `body` changes and when `reload` is called. */
export function useCall<M extends Method>(method: M, body: Body<M>, options: AskOptions = {}): [Resource<Answer<M>>, () => void] {
  const key = JSON.stringify([method, body, options.session ?? ""]);
  const asked = useRef(body);
  asked.current = body;
  const ask = useCallback(
    (signal: AbortSignal) => {
      const more: CallOptions = options.session === undefined ? { signal } : { signal, session: options.session };
      return call(method, asked.current, more);
    },
    [key],
  );
  return useAsked(ask, key, options);
}

/** The same for several calls that make one answer. `key` says what is asked: a new one asks again. */
export function useAsked<T>(ask: (signal: AbortSignal) => Promise<T>, key: string, options: AskOptions = {}): [Resource<T>, () => void] {
  const { everyMs = 0, when = true } = options;
  const to = connection.value;
  const [made, set] = useState<{ key: string; resource: Resource<T> }>({ key: "", resource: { state: "loading" } });
  const [turn, again] = useState(0);
  const newest = useRef(ask);
  newest.current = ask;
  const whole = `${key}\n${to?.baseUrl ?? ""}\n${to?.token.slice(-16) ?? ""}\n${to?.session ?? ""}`;

  useEffect(() => {
    if (!to || !when) return;
    const aborter = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const run = async (): Promise<void> => {
      try {
        const data = await newest.current(aborter.signal);
        if (!aborter.signal.aborted) set({ key: whole, resource: { state: "ready", data, isRefreshing: false } });
      } catch (error) {
        if (aborter.signal.aborted) return;
        set({ key: whole, resource: { state: "failed", error: asWireError(error) } });
      }
      if (everyMs && !aborter.signal.aborted) timer = setTimeout(next, everyMs);
    };
    const next = (): void => {
      if (document.hidden) timer = setTimeout(next, everyMs);
      else void run();
    };
    set((now) =>
      now.key === whole && now.resource.state === "ready"
        ? { key: whole, resource: { ...now.resource, isRefreshing: true } }
        : { key: whole, resource: { state: "loading" } },
    );
    void run();
    return () => {
      aborter.abort();
      clearTimeout(timer);
    };
  }, [whole, turn, when, everyMs]);

  const reload = useCallback(() => again((count) => count + 1), []);
  if (!to) return [{ state: "disconnected" }, reload];
  return [made.key === whole ? made.resource : { state: "loading" }, reload];
}
