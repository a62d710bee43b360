import { signal } from "@preact/signals";

import { say } from "../parts/toast.tsx";
import type { GlyphName } from "../parts/glyph.tsx";
import { runOf } from "../model/events/wire.ts";
import { onEvents } from "../wire/feed.ts";
import { runs } from "../wire/runs.ts";
import type { WireEvent } from "../wire/stream.ts";

/** `off`: not at all. `tab`: in the tab. `both`: also by the browser, while nobody looks at the tab. */
export type When = "off" | "tab" | "both";

interface NoticeClass {
  id: string;
  name: string;
  note?: string;
  usual: When;
  glyph: GlyphName;
  types: readonly string[];
  words: string;
}

const BOTH = "In this tab, and by your browser when the tab is hidden";

/** What can be told of. The text names tool and agent, never arguments. */
export const CLASSES: readonly NoticeClass[] = [
  { id: "approval", name: "Asks for approval", note: BOTH, usual: "off", glyph: "waiting", types: ["tool.approval_requested"], words: "asks to run" },
  { id: "auth", name: "Needs a sign-in", usual: "off", glyph: "sign-in", types: ["tool.auth_required"], words: "needs a sign-in to" },
  { id: "failed", name: "Run failed", usual: "off", glyph: "failed", types: ["task.failed"], words: "failed" },
  { id: "budget", name: "Budget exceeded", usual: "tab", glyph: "waiting", types: ["governance.budget_exceeded"], words: "exceeded its budget" },
  { id: "expired", name: "Agent's credentials expired", usual: "tab", glyph: "sign-in", types: ["agent.credentials_expired"], words: "has expired credentials" },
  { id: "health", name: "Runtime degraded", usual: "tab", glyph: "failed", types: ["runtime.error", "memory.health_changed"], words: "is degraded" },
];

const KEY = "harborage.notices";
const chosen = signal<Record<string, When>>(stored());

function stored(): Record<string, When> {
  try {
    return JSON.parse(globalThis.localStorage?.getItem(KEY) ?? "{}") as Record<string, When>;
  } catch {
    return {};
  }
}

export function whenOf(id: string): When {
  return chosen.value[id] ?? CLASSES.find((one) => one.id === id)?.usual ?? "off";
}

export function setWhen(id: string, when: When): void {
  chosen.value = { ...chosen.value, [id]: when };
  localStorage.setItem(KEY, JSON.stringify(chosen.value));
}

export const permission = signal<NotificationPermission>(globalThis.Notification?.permission ?? "denied");

export async function askPermission(): Promise<void> {
  if (globalThis.Notification && Notification.permission === "default") await Notification.requestPermission();
  permission.value = globalThis.Notification?.permission ?? "denied";
}

/** Whether the stream must stay open in a tab that nobody looks at. */
export function tellsWhenHidden(): boolean {
  return permission.peek() === "granted" && CLASSES.some((one) => (chosen.peek()[one.id] ?? one.usual) === "both");
}

function tell(event: WireEvent, of: NoticeClass): void {
  const payload = (event.payload ?? {}) as Record<string, unknown>;
  const run = runOf(event);
  const agent = (run && runs.run(run)?.agent) || "A run";
  const tool = [payload["Tool"], payload["SourceName"], payload["Source"]].find((one) => typeof one === "string" && one);
  const text = [agent, of.words, tool].filter(Boolean).join(" ");
  const href = of.id === "approval" || of.id === "auth" ? "/inbox" : run ? `/tasks/${encodeURIComponent(run)}` : "/events";
  if (!document.hidden) say({ glyph: of.glyph, text, href, action: "View" });
  else if (whenOf(of.id) === "both" && permission.value === "granted") {
    const shown = new Notification(text, { tag: `${of.id} ${run}`, icon: "/favicon.svg" });
    shown.onclick = () => {
      window.focus();
      location.assign(href);
    };
  }
}

/** Tell of what was chosen as it happens. */
export function startNotices(): void {
  onEvents((events) => {
    for (const event of events) {
      const of = CLASSES.find((one) => one.types.includes(event.type));
      if (of && whenOf(of.id) !== "off") tell(event, of);
    }
  });
}
