import { CHILD_SPAWNED, foldEvent, isFolded } from "./fold.ts";
import { noteNotSent, noteSent, type SentControl } from "./fold-controls.ts";
import { addHistory, type RunHistory } from "./history.ts";
import { isEnd, RunState } from "./run-state.ts";
import { noteRow, type TaskRowFacts } from "./rows.ts";
import type { Moment, Principal, RunView } from "./views.ts";
import { numberAt, parseTime, payloadOf, runOf, textAt, type WireEvent } from "./wire.ts";

/** Events that did not come: dropped for a slow reader, or no longer kept when the stream was resumed. */
export interface EventGap {
  readonly from: number;
  readonly to: number;
  readonly lost: number;
  readonly why: string;
  readonly at: Moment;
}

/** Steps of all runs together that a store keeps, unless it is told otherwise. */
const MOST_STEPS = 20_000;
/** Pruning goes on to this share, so that it is rare. */
const KEPT_SHARE = 0.75;

interface Followed {
  state: RunState;
  /** The newest sequence that was folded. */
  newest: number;
  /** Every event of the run in order, kept only while a page shows the run whole. */
  log: WireEvent[] | null;
  /** What came late and made the folded state wrong; the log is folded anew when a view is asked for. */
  isStale: boolean;
  /** What did not come by events and is put on again after the log was folded anew. */
  given: Map<string, (state: RunState) => void>;
}

/**
 * What the console knows of runs, by run. Events go in once, in any order and as often as they come; views come out.
 *
 * Events of a run are folded in order of their sequence. One that was folded already changes nothing. A late one is put
 * in its place if the run is watched (its events are kept); for other runs it is taken as seen. Pieces of streamed text
 * are numbered by connection: give the store those of one connection only.
 */
export class RunStore {
  readonly gaps: EventGap[] = [];
  private readonly runs = new Map<string, Followed>();

  apply(events: readonly WireEvent[]): Set<string> {
    const changed = new Set<string>();
    for (const event of events) this.applyOne(event, changed);
    return changed;
  }

  /** The run as it stands now, or nothing if no event, row or record named it. The same object until it changes. */
  run(id: string): RunView | undefined {
    const followed = this.runs.get(id);
    if (!followed) return undefined;
    if (followed.isStale) refold(followed);
    return followed.state.view();
  }

  ids(): string[] {
    return [...this.runs.keys()];
  }

  /** All runs, the newest first. */
  all(): RunView[] {
    const views = this.ids().map((id) => this.run(id) as RunView);
    return views.sort((a, b) => startOf(b) - startOf(a) || (a.id < b.id ? 1 : -1));
  }

  /** Keep the events of this run from now on, so that its history may come in while the run goes on. */
  watch(id: string, identity: Principal): void {
    const followed = this.followed(id, identity);
    followed.log ??= [];
  }

  /** Drop the kept events of a run; what was folded from them stays. */
  unwatch(id: string): void {
    const followed = this.runs.get(id);
    if (!followed) return;
    if (followed.isStale) refold(followed);
    followed.log = null;
  }

  forget(id: string): void {
    this.runs.delete(id);
  }

  /**
   * Drop the oldest ended runs beyond `most`, and the oldest steps of long runs beyond `mostSteps` in all, so that a page
   * that is open for days does not grow. Watched runs stay whole.
   */
  prune(most: number, mostSteps = MOST_STEPS): void {
    const ended = [...this.runs].filter(([, run]) => run.log === null && isEnd(run.state.facts.status));
    for (const [id] of ended.slice(0, Math.max(0, this.runs.size - most))) this.runs.delete(id);
    const states = [...this.runs.values()].filter((run) => run.log === null).map((run) => run.state);
    let steps = states.reduce((sum, state) => sum + state.steps.length, 0);
    if (steps <= mostSteps) return;
    for (const state of states.sort((a, b) => b.steps.length - a.steps.length)) {
      if (steps <= mostSteps * KEPT_SHARE) return;
      steps -= state.dropSteps(Math.ceil(state.steps.length / 2));
    }
  }

  noteGap(gap: EventGap): void {
    const known = this.gaps.find((other) => other.from === gap.from && other.to === gap.to);
    if (!known) this.gaps.push(gap);
  }

  /** A row of `tasks.list` or the `task` of `tasks.get`: goal, agent, status, cost. */
  noteTask(row: TaskRowFacts): void {
    const identity = { tenant: row.identity?.tenant ?? "", user: row.identity?.user ?? "", session: row.parent_session_id };
    this.give(row.id, "row", identity, (state) => noteRow(state, row));
  }

  /** The final answer of a run, as `tasks.get` brought it. */
  noteAnswer(id: string, answer: string): void {
    this.giveKnown(id, "answer", (state) => void (state.facts.answer = answer));
  }

  /** An answer of `runs.steps`: what the record says takes the place of what events said. */
  noteHistory(history: RunHistory): void {
    const { tenant = "", user = "", session = "" } = history.run.identity;
    const key = `steps ${history.steps[0]?.step ?? 0}`;
    this.give(history.run.id, key, { tenant, user, session }, (state) => addHistory(state, history));
  }

  noteSent(sent: SentControl): void {
    this.giveKnown(sent.run, `sent ${sent.eventId}`, (state) => noteSent(state, sent));
  }

  noteNotSent(run: string, eventId: string, code: string, at: Moment): void {
    this.giveKnown(run, `not sent ${eventId}`, (state) => noteNotSent(state, eventId, code, at));
  }

  private giveKnown(id: string, key: string, put: (state: RunState) => void): void {
    const followed = this.runs.get(id);
    if (followed) this.give(id, key, followed.state.facts.identity, put);
  }

  /** Put in what did not come by events. It is kept, one under each key, for when the events are folded anew. */
  private give(id: string, key: string, identity: Principal, put: (state: RunState) => void): void {
    const followed = this.followed(id, identity);
    if (followed.isStale) refold(followed);
    followed.given.delete(key);
    followed.given.set(key, put);
    put(followed.state);
    followed.state.touch();
  }

  private applyOne(event: WireEvent, changed: Set<string>): void {
    if (event.type === "bus.dropped") return this.noteDropped(event);
    if (!isFolded(event.type)) return;
    const id = runOf(event) || this.onlyRunOf(event);
    if (!id) return;
    const identity = { tenant: event.tenant, user: event.user, session: event.session };
    if (!this.take(this.followed(id, identity), event)) return;
    changed.add(id);
    if (event.type === "task.spawned") this.noteParent(event, identity, changed);
  }

  /** Take an event of a run; false if it was taken before. */
  private take(followed: Followed, event: WireEvent): boolean {
    const isNext = event.sequence > followed.newest;
    if (followed.log) {
      if (isNext) followed.log.push(event);
      else if (!insert(followed.log, event)) return false;
    } else if (!isNext) return false;
    followed.newest = Math.max(followed.newest, event.sequence);
    if (!isNext) followed.isStale = true;
    else if (!followed.isStale) foldEvent(followed.state, event, parseTime(event.occurred_at) ?? 0);
    return true;
  }

  private noteParent(event: WireEvent, identity: Principal, changed: Set<string>): void {
    const parent = textAt(payloadOf(event), "ParentTaskID");
    if (!parent) return;
    // The parent's log has the event, too, so that folding it anew finds the child at its place.
    if (this.take(this.followed(parent, identity), { ...event, type: CHILD_SPAWNED })) changed.add(parent);
  }

  private noteDropped(event: WireEvent): void {
    const payload = payloadOf(event);
    const from = numberAt(payload, "FromSeq") ?? event.sequence;
    const to = numberAt(payload, "ToSeq") ?? event.sequence;
    const at = parseTime(event.occurred_at) ?? 0;
    this.noteGap({ from, to, lost: numberAt(payload, "DroppedCount") ?? 0, why: "dropped", at });
  }

  /** A foreign server leaves the run out of some events: the only run of the session that goes on is meant. */
  private onlyRunOf(event: WireEvent): string {
    const going = [...this.runs].filter(
      ([, { state }]) => state.facts.identity.session === event.session && !isEnd(state.facts.status),
    );
    return going.length === 1 ? (going[0]?.[0] ?? "") : "";
  }

  private followed(id: string, identity: Principal): Followed {
    const known = this.runs.get(id);
    if (known) return known;
    const made: Followed = { state: new RunState(id, identity), newest: 0, log: null, isStale: false, given: new Map() };
    this.runs.set(id, made);
    return made;
  }
}

/** Fold the kept events anew, in order, and put on again what did not come by events. */
function refold(followed: Followed): void {
  const { id, identity } = followed.state.facts;
  followed.state = new RunState(id, identity);
  for (const event of followed.log ?? []) foldEvent(followed.state, event, parseTime(event.occurred_at) ?? 0);
  for (const put of followed.given.values()) put(followed.state);
  followed.isStale = false;
}

/** Put an event at its place in a log that is in order; false if it is there already. */
function insert(log: WireEvent[], event: WireEvent): boolean {
  let low = 0;
  let high = log.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((log[middle] as WireEvent).sequence < event.sequence) low = middle + 1;
    else high = middle;
  }
  if (log[low]?.sequence === event.sequence) return false;
  log.splice(low, 0, event);
  return true;
}

function startOf(run: RunView): number {
  return run.startedAt ?? run.spawnedAt ?? 0;
}
