import { useEffect } from "preact/hooks";

import type { RunView } from "../model/events/views.ts";
import { call } from "./client.ts";
import { runs, touchRuns } from "./runs.ts";
import { hasCapability } from "./runtime.ts";

const STEPS = 100;

/** What was of these runs before the page opened comes from the record, where the runtime has one. */
export function useRunHistory(shown: readonly RunView[]): void {
  const ids = shown.map((run) => run.id).join(" ");
  const canAsk = hasCapability("run_history");
  useEffect(() => {
    if (!canAsk) return;
    let isCurrent = true;
    for (const run of shown) {
      if (run.steps.length > 0 && run.isWhole) continue;
      call("runs.steps", { id: run.id, limit: STEPS }, { session: run.identity.session }).then(
        (history) => {
          if (!isCurrent) return;
          runs.noteHistory(history as never);
          touchRuns();
        },
        () => undefined, // its lane begins with what came by the stream
      );
    }
    return () => {
      isCurrent = false;
    };
  }, [ids, canAsk]);
}
