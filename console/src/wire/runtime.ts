import { effect, signal } from "@preact/signals";

import { call, type Answer } from "./client.ts";
import { connection } from "./connection.ts";

/** What the runtime said of itself when the console attached; null until then. */
export const runtime = signal<Answer<"runtime.info"> | null>(null);

/** Whether the runtime has what not every runtime of the protocol has. What it lacks is absent, not disabled. */
export function hasCapability(name: string): boolean {
  return runtime.value?.capabilities.includes(name) ?? false;
}

/** Ask the runtime what it is whenever another one is attached. */
export function startRuntime(): void {
  let asked = "";
  effect(() => {
    const to = connection.value;
    const key = to ? `${to.baseUrl} ${to.tenant} ${to.user}` : "";
    if (key === asked) return;
    asked = key;
    runtime.value = null;
    if (!to) return;
    call("runtime.info", {}).then(
      (info) => {
        if (asked === key) runtime.value = info;
      },
      () => {
        // The pages say what is wrong when they ask; this line of the status bar is just not there.
      },
    );
  });
}
