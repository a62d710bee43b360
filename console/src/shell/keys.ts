import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

/** One thing that a key does. */
export interface KeyBinding {
  /** `j`, `⇧P`, `g i` (one after the other), `mod+k` (⌘ or Ctrl), `Escape`. */
  keys: string;
  does: string;
  run: () => void;
  /** Why it does nothing now; "" when it does. It stays in the list of keys. */
  why?: string;
  /** Kept out of the palette: movements, which are of no use there. */
  isMovement?: boolean;
}

export interface KeyGroup {
  where: string;
  bindings: readonly KeyBinding[];
}

const groups = signal<readonly (KeyGroup & { id: number })[]>([]);
const SEQUENCE_MS = 1_200;
let counted = 0;
let pending = "";
let pendingAt = 0;

/** Whether keys without Ctrl, Alt or ⌘ do anything (WCAG 2.1.4 wants a way to turn them off). */
export const singleKeys = signal(globalThis.localStorage?.getItem("harborage.look.keys") !== "off");

export function setSingleKeys(isOn: boolean): void {
  singleKeys.value = isOn;
  localStorage.setItem("harborage.look.keys", isOn ? "on" : "off");
}

/** What keys do now, group by group: the newest last. */
export function keyGroups(): readonly KeyGroup[] {
  return groups.value;
}

/** Have keys while a component is there. The newest group wins where two name the same key. */
export function useKeys(where: string, bindings: readonly KeyBinding[]): void {
  const newest = useRef(bindings);
  newest.current = bindings;
  const names = bindings.map((one) => `${one.keys} ${one.does} ${one.why ?? ""}`).join("\n");
  useEffect(() => {
    const id = ++counted;
    const group = {
      id,
      where,
      bindings: newest.current.map((one, index) => ({ ...one, run: () => newest.current[index]?.run() })),
    };
    groups.value = [...groups.value, group];
    return () => {
      groups.value = groups.value.filter((one) => one.id !== id);
    };
  }, [where, names]);
}

/** The spelling of a key press in a binding; "" for one that no binding can have. */
export function spelling(event: Pick<KeyboardEvent, "key" | "metaKey" | "ctrlKey" | "altKey" | "shiftKey">): string {
  if (event.altKey || ["Shift", "Control", "Meta", "Alt"].includes(event.key)) return "";
  if (event.metaKey || event.ctrlKey) return `mod+${event.key.toLowerCase()}`;
  if (event.key === " ") return "Space";
  const isLetter = /^[a-z]$/i.test(event.key);
  return isLetter && event.shiftKey ? `⇧${event.key.toUpperCase()}` : isLetter ? event.key.toLowerCase() : event.key;
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input:not([type=checkbox]), select, textarea"));
}

function onKeyDown(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing) return;
  const key = spelling(event);
  if (!key) return;
  if (key === "Space" && event.target instanceof HTMLElement && event.target.closest("button, a, input, label, summary, [role=tab]")) return;
  const isSingle = !key.startsWith("mod+") && key !== "Escape";
  if (isSingle && (!singleKeys.value || isTyping(event.target))) return;
  if (key === "Escape" && isTyping(event.target)) {
    (event.target as HTMLElement).blur();
    return;
  }
  const before = event.timeStamp - pendingAt < SEQUENCE_MS ? pending : "";
  pending = "";
  const all = groups.value.flatMap((group) => group.bindings);
  const found = all.findLast((one) => one.keys === (before ? `${before} ${key}` : key)) ?? all.findLast((one) => one.keys === key);
  if (found) {
    if (found.why) return;
    event.preventDefault();
    found.run();
  } else if (all.some((one) => one.keys.startsWith(`${key} `))) {
    pending = key;
    pendingAt = event.timeStamp;
  }
}

export function startKeys(): void {
  document.addEventListener("keydown", onKeyDown);
}

const IS_MAC = /Mac|iP(hone|ad)/.test(globalThis.navigator?.platform ?? "");

/** How a binding is written for people: ⌘ on a Mac, Ctrl elsewhere. */
export function written(keys: string): string {
  return keys.replace("mod+", IS_MAC ? "⌘" : "Ctrl ").replace(/(⌘|Ctrl )([a-z])$/, (_, mod: string, key: string) => mod + key.toUpperCase());
}
