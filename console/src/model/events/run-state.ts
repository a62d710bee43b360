import {
  NO_TOKENS,
  type ChildRef,
  type ControlView,
  type ModelCall,
  type Moment,
  type PauseView,
  type Principal,
  type RunStatus,
  type RunView,
  type StepView,
  type ToolCall,
  type Wait,
} from "./views.ts";

export type Writable<T> = { -readonly [K in keyof T]: T[K] };

/** A step that the fold may write: it was made or copied since the last view was handed out. */
export interface WritableStep extends Omit<Writable<StepView>, "calls" | "waits" | "modelCalls" | "children"> {
  calls: Writable<ToolCall>[];
  waits: Writable<Wait>[];
  modelCalls: ModelCall[];
  children: ChildRef[];
}

type Facts = Omit<Writable<RunView>, "steps" | "controls" | "pauses" | "children" | "artifacts" | "notes" | "changes">;

/**
 * The state of one run while events are folded into it. `view()` hands out what stands now; from then on a step is
 * copied before it is written, so that a view never changes and unchanged steps stay the same objects.
 */
export class RunState {
  readonly facts: Facts;
  readonly steps: StepView[] = [];
  readonly controls: ControlView[] = [];
  readonly pauses: PauseView[] = [];
  readonly children: ChildRef[] = [];
  readonly artifacts: RunView["artifacts"][number][] = [];
  readonly notes: RunView["notes"][number][] = [];
  readonly changes: RunView["changes"][number][] = [];
  /** Calls without an id of the server's, by tool, oldest first; some may have ended. */
  readonly unnamed = new Map<string, string[]>();
  /** Where each call is: its step's number and its place in the step. */
  readonly callPlaces = new Map<string, { step: number; at: number }>();
  /** The number of the newest step that was decided; 0 for none. */
  decided = 0;
  synthesized = 0;
  /** Streamed texts that were told to be whole, as "3 text". */
  readonly endedTexts = new Set<string>();
  /** Whether an event told the run's status: then task rows, which may be older, tell only its end. */
  isToldByEvents = false;
  /** The number of the newest step whose end the record has told; 0 without a record. */
  recorded = 0;

  private readonly places = new Map<number, number>();
  private readonly fresh = new Set<object>();
  private handedOut: RunView | null = null;

  constructor(id: string, identity: Principal) {
    this.facts = {
      id,
      identity,
      kind: "",
      parentId: "",
      goal: "",
      agent: "",
      model: "",
      priority: 0,
      status: "pending",
      condition: "",
      errorClass: "",
      spawnedAt: null,
      startedAt: null,
      endedAt: null,
      tokens: NO_TOKENS,
      usd: 0,
      windowTokens: 0,
      answer: null,
      sequence: 0,
      isWhole: false,
    };
  }

  /** What stands now; the same object as before if nothing was written since. */
  view(): RunView {
    if (this.handedOut) return this.handedOut;
    this.fresh.clear();
    this.handedOut = {
      ...this.facts,
      steps: this.steps.slice(),
      controls: this.controls.slice(),
      pauses: this.pauses.slice(),
      children: this.children.slice(),
      artifacts: this.artifacts.slice(),
      notes: this.notes.slice(),
      changes: this.changes.slice(),
    };
    return this.handedOut;
  }

  /** Say that something is written, so that the next view is a new one. */
  touch(): void {
    this.handedOut = null;
  }

  get current(): StepView | undefined {
    return this.steps[this.steps.length - 1];
  }

  step(number: number): StepView | undefined {
    const at = this.places.get(number);
    return at === undefined ? undefined : this.steps[at];
  }

  /** The step of this number, to be written; it is opened at `now` if there is none. */
  writeStep(number: number, now: Moment): WritableStep {
    this.touch();
    const at = this.places.get(number);
    if (at === undefined) return this.openStep(number, now);
    const step = this.steps[at] as StepView;
    if (this.fresh.has(step)) return step as WritableStep;
    const copy = copyStep(step);
    this.fresh.add(copy);
    this.steps[at] = copy;
    return copy;
  }

  /** Put a whole step in the place of the one of its number. */
  putStep(step: StepView): void {
    this.touch();
    if (this.places.has(step.number)) this.steps[this.places.get(step.number) as number] = step;
    else this.insert(step);
    this.decided = step.decidedAt === null ? this.decided : Math.max(this.decided, step.number);
    step.calls.forEach((call, at) => this.callPlaces.set(call.id, { step: step.number, at }));
  }

  call(id: string): ToolCall | undefined {
    const place = this.callPlaces.get(id);
    return place && this.step(place.step)?.calls[place.at];
  }

  writeCall(id: string, now: Moment): Writable<ToolCall> | undefined {
    const place = this.callPlaces.get(id);
    return place && this.writeStep(place.step, now).calls[place.at];
  }

  /** Add a call that nobody else holds to its step. */
  addCall(call: Writable<ToolCall>, now: Moment): Writable<ToolCall> {
    const step = this.writeStep(call.step, now);
    call.branch = step.calls.push(call);
    this.callPlaces.set(call.id, { step: call.step, at: call.branch - 1 });
    return call;
  }

  /** What a run was before it ended changes nothing any more, however late it is told. */
  setStatus(status: RunStatus, at: Moment, error = ""): void {
    const last = this.changes[this.changes.length - 1];
    if (last && isEnd(last.status) && !isEnd(status) && at < last.at) return;
    this.touch();
    if (this.facts.status !== status || !this.changes.length) this.changes.push({ status, at, error });
    this.facts.status = status;
    this.facts.errorClass = error;
    this.facts.endedAt = isEnd(status) ? at : null;
  }

  /** Forget the first steps of those that have ended, at most so many; how many they were. Sums of the run stay. */
  dropSteps(most: number): number {
    const open = this.steps.findIndex((step) => step.endedAt === null);
    const count = Math.min(most, open < 0 ? this.steps.length : open);
    if (count <= 0) return 0;
    this.touch();
    this.facts.isWhole = false;
    for (const step of this.steps.splice(0, count)) {
      this.places.delete(step.number);
      this.fresh.delete(step);
      for (const call of step.calls) this.callPlaces.delete(call.id);
    }
    this.steps.forEach((step, at) => this.places.set(step.number, at));
    for (const [tool, ids] of this.unnamed) this.unnamed.set(tool, ids.filter((id) => this.callPlaces.has(id)));
    const first = this.steps[0]?.number ?? Infinity;
    keepOnly(this.pauses, (pause) => pause.settledAt === null || pause.step >= first);
    keepOnly(this.children, (child) => child.step >= first);
    return count;
  }

  private openStep(number: number, now: Moment): WritableStep {
    const step: WritableStep = {
      number,
      status: "deciding",
      decision: "",
      tool: "",
      startedAt: now,
      decidedAt: null,
      endedAt: null,
      reasoning: "",
      text: "",
      preview: "",
      modelCalls: [],
      calls: [],
      waits: [],
      children: [],
      error: null,
    };
    this.fresh.add(step);
    this.insert(step);
    return step;
  }

  private insert(step: StepView): void {
    const before = this.current;
    if (!before || before.number < step.number) {
      this.places.set(step.number, this.steps.push(step) - 1);
      return;
    }
    this.steps.splice(
      this.steps.findIndex((other) => other.number > step.number),
      0,
      step,
    );
    this.steps.forEach((other, at) => this.places.set(other.number, at));
  }
}

export function isEnd(status: RunStatus): boolean {
  return status === "complete" || status === "failed" || status === "cancelled";
}

function keepOnly<T>(list: T[], wanted: (item: T) => boolean): void {
  list.splice(0, list.length, ...list.filter(wanted));
}

function copyStep(step: StepView): WritableStep {
  return {
    ...step,
    calls: step.calls.map((call) => ({ ...call })),
    waits: step.waits.map((wait) => ({ ...wait })),
    modelCalls: step.modelCalls.slice(),
    children: step.children.slice(),
  };
}
