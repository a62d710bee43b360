import { signal } from "@preact/signals";

import { RunStore } from "../model/events/store.ts";
import type { RunView } from "../model/events/views.ts";
import { connection } from "./connection.ts";
import { gap, onEvents } from "./feed.ts";

/** What the shared stream has told of runs, by run. All pages read it; the run page puts the history of its run in. */
export let runs = new RunStore();

/** Grows whenever a run may have changed: read it in a component, and the component is drawn again. */
export const runsChanged = signal(0);

const MOST_ENDED = 400;

export function touchRuns(): void {
  runsChanged.value++;
}

/** The run as it stands now; undefined as long as nothing named it. */
export function runNow(id: string): RunView | undefined {
  void runsChanged.value;
  return runs.run(id);
}

/** Fold the shared stream into runs, for whichever runtime is attached. */
export function startRuns(): void {
  let whose = "";
  connection.subscribe((to) => {
    const now = to ? `${to.baseUrl}\n${to.tenant}\n${to.user}` : "";
    if (now === whose) return;
    whose = now;
    runs = new RunStore();
    touchRuns();
  });
  gap.subscribe((lost) => {
    if (lost?.lost) runs.noteGap({ from: lost.from, to: lost.to, lost: lost.lost, why: "dropped", at: Date.now() });
  });
  onEvents((events) => {
    if (runs.apply(events).size === 0) return;
    runs.prune(MOST_ENDED);
    touchRuns();
  });
}
