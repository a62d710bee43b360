import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

import { Button } from "./button.tsx";
import { Glyph, type GlyphName } from "./glyph.tsx";

export interface Toast {
  id: number;
  glyph?: GlyphName;
  text: ComponentChildren;
  href?: string;
  action?: string;
}

const LASTS_MS = 8_000;
const toasts = signal<readonly Toast[]>([]);
let counted = 0;

/** Say something in passing. One at a time is on the screen for long enough to read; nothing has to be closed. */
export function say(toast: Omit<Toast, "id">): void {
  const id = ++counted;
  toasts.value = [...toasts.value.slice(-2), { ...toast, id }];
  setTimeout(() => drop(id), LASTS_MS);
}

function drop(id: number): void {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}

const spoken = signal("");
let nextAt = 0;
let later: ReturnType<typeof setTimeout> | undefined;

/** Tell a screen reader of an answer or a fate: the newest alone, at most one in five seconds. */
export function announce(text: string): void {
  clearTimeout(later);
  const wait = Math.max(0, nextAt - Date.now());
  later = setTimeout(() => {
    nextAt = Date.now() + 5_000;
    spoken.value = text;
  }, wait);
}

export function Toasts() {
  return (
    <>
      <div class="hidden-text" role="status" aria-live="polite">
        {spoken.value}
      </div>
      {toasts.value.length > 0 && (
        <ul class="toasts" aria-label="Messages">
          {toasts.value.map((one) => (
            <li key={one.id} class="toast" role="status">
              {one.glyph && <Glyph name={one.glyph} />}
              <span>{one.text}</span>
              {one.href && (
                <a class="button small" href={one.href}>
                  {one.action ?? "Open"}
                </a>
              )}
              <Button small kind="quiet" icon="close" label="Close" onClick={() => drop(one.id)} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
