import type { TargetedEvent } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";

/**
 * Keeps a list still while somebody points at it or has the focus in it.
 *
 * `shown` are the rows to draw: those that were there stay in their place with their newest values, also when they
 * ended; `fresh` counts what came since, and `release` lets it in (the key `.`). Spread `props` over the list's element.
 */
export function useHeldRows<Row>(rows: readonly Row[], keyOf: (row: Row) => string) {
  const [isHeld, hold] = useState(false);
  const [release, again] = useState(0);
  const order = useRef<string[]>([]);
  const last = useRef(new Map<string, Row>());
  return useMemo(() => {
    const now = new Map(rows.map((row) => [keyOf(row), row]));
    if (!isHeld) order.current = [...now.keys()];
    const shown: Row[] = [];
    for (const key of order.current) {
      const row = now.get(key) ?? last.current.get(key);
      if (row !== undefined) shown.push(row);
    }
    const held = new Set(order.current);
    for (const [key, row] of now) last.current.set(key, row);
    if (!isHeld) last.current = now;
    const leave = (event: TargetedEvent<HTMLElement>) => {
      if (!event.currentTarget.contains(document.activeElement)) hold(false);
    };
    return {
      shown,
      fresh: [...now.keys()].filter((key) => !held.has(key)).length,
      gone: (row: Row) => !now.has(keyOf(row)),
      release: () => {
        order.current = [...now.keys()];
        again((count) => count + 1);
      },
      props: { onPointerEnter: () => hold(true), onPointerLeave: leave, onFocusIn: () => hold(true), onFocusOut: leave },
    };
  }, [rows, keyOf, isHeld, release]);
}
