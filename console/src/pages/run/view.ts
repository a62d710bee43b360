import { setQuery, useQuery } from "../../shell/router.ts";
import type { Moment, RunView } from "../../model/events/views.ts";

export type RailTab = "step" | "events" | "controls" | "raw";

/** What of a run is looked at; all of it is in the address. */
export interface Looking {
  /** The id of the current row, "" for none. */
  readonly row: string;
  readonly tab: RailTab;
  /** The moment of time travel; null for now. */
  readonly at: Moment | null;
  readonly isWall: boolean;
}

const TABS: readonly string[] = ["step", "events", "controls", "raw"];

export function useLooking(id: string): Looking {
  const [step] = useQuery("step");
  const [tab] = useQuery("tab");
  const [at] = useQuery("at");
  const [view] = useQuery("view");
  const moment = Number(at);
  return {
    // Step 5 of the run itself is `5`; rows inside of it, and of child runs, are named in full.
    row: /^\d+$/.test(step) ? `${id}/${step}` : step,
    tab: TABS.includes(tab) ? (tab as RailTab) : "step",
    at: at && Number.isFinite(moment) ? moment : null,
    isWall: view === "wall",
  };
}

export function lookAtRow(id: string, row: string): void {
  const own = `${id}/`;
  const rest = row.startsWith(own) ? row.slice(own.length) : "";
  setQuery({ step: /^\d+$/.test(rest) ? rest : row });
}

export function lookAtTab(tab: RailTab): void {
  setQuery({ tab: tab === "step" ? "" : tab });
}

/** Go to a moment of the run; null is now. A moment keeps its fraction: a step may begin in the millisecond in which another ended. */
export function travelTo(at: Moment | null): void {
  setQuery({ at: at === null ? "" : String(at) });
}

export function setWall(isWall: boolean): void {
  setQuery({ view: isWall ? "wall" : "" });
}

/** Where time travel by keys stops: the end of each step. */
export function stopsOf(run: RunView): Moment[] {
  return run.steps.map((step) => step.endedAt).filter((end) => end !== null);
}

/** The stop before or after a moment; null is now. */
export function nextStop(run: RunView, at: Moment | null, step: 1 | -1): Moment | null {
  const stops = stopsOf(run);
  if (step < 0) return stops.findLast((stop) => stop < (at ?? Infinity)) ?? at ?? null;
  return at === null ? null : (stops.find((stop) => stop > at) ?? null);
}

/** The newest step that had ended at a moment; 0 for none. */
export function stepEndedAt(run: RunView, at: Moment): number {
  return run.steps.findLast((step) => step.endedAt !== null && step.endedAt <= at)?.number ?? 0;
}
