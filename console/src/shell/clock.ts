import { signal } from "@preact/signals";

/** The time to the second, from the one timer of the console; it rests while nobody looks at the tab. */
export const now = signal(Date.now());

export function startClock(): void {
  setInterval(() => {
    if (!document.hidden) now.value = Date.now();
  }, 1_000);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) now.value = Date.now();
  });
}
