import { isEnd } from "./events/run-state.ts";
import type { ChildRef, ControlView, Moment, PauseView, RunView, StepView, ToolCall } from "./events/views.ts";

/** One line of a run in the conversation of the Playground, in the order in which it happened. */
export type ConversationItem =
  | { readonly kind: "reasoning"; readonly id: string; readonly step: number; readonly text: string; readonly isOpen: boolean }
  | { readonly kind: "text"; readonly id: string; readonly step: number; readonly text: string; readonly isOpen: boolean }
  | { readonly kind: "call"; readonly id: string; readonly step: number; readonly call: ToolCall }
  | { readonly kind: "child"; readonly id: string; readonly step: number; readonly child: ChildRef }
  | { readonly kind: "pause"; readonly id: string; readonly step: number; readonly pause: PauseView }
  | { readonly kind: "control"; readonly id: string; readonly step: number | null; readonly control: ControlView }
  | { readonly kind: "end"; readonly id: string; readonly status: "failed" | "cancelled"; readonly error: string };

export interface Conversation {
  readonly items: readonly ConversationItem[];
  /** The answer so far; once the run is complete the final one takes its place. */
  readonly answer: string;
  readonly isAnswering: boolean;
}

/** Controls that are lines among the steps; answers to pauses show at their pause. */
const SHOWN_CONTROLS: readonly string[] = ["USER_MESSAGE", "REDIRECT", "INJECT_CONTEXT", "CANCEL", "PAUSE", "RESUME", "PRIORITIZE"];

/** A run as a conversation. What is not the answer is a line: text before a call, calls, steers with their fate. */
export function conversationOf(run: RunView): Conversation {
  const answering = answeringStep(run);
  const items = run.steps.flatMap((step) => [...controlsBefore(run, step), ...itemsOf(run, step, step === answering)]);
  const late = run.controls.filter((control) => isShown(control) && placeOf(run, control) === null).map(controlItem);
  return {
    items: [...items, ...late, ...endOf(run)],
    answer: run.answer ?? answering?.text ?? "",
    isAnswering: !isEnd(run.status) && Boolean(answering?.text) && answering?.decidedAt === null,
  };
}

/** The step whose text is the answer: the one that finishes, or the last one while it is being decided. */
function answeringStep(run: RunView): StepView | undefined {
  const last = run.steps[run.steps.length - 1];
  return last && (last.decision === "Finish" || last.decidedAt === null) ? last : undefined;
}

function itemsOf(run: RunView, step: StepView, isAnswer: boolean): ConversationItem[] {
  const { number } = step;
  const isOpen = step.decidedAt === null && !isEnd(run.status);
  const items: ConversationItem[] = [];
  if (step.reasoning) items.push({ kind: "reasoning", id: `${number}/reasoning`, step: number, text: step.reasoning, isOpen: isOpen && step.text === "" });
  if (step.text && !isAnswer) items.push({ kind: "text", id: `${number}/text`, step: number, text: step.text, isOpen: false });
  for (const call of step.calls) items.push({ kind: "call", id: `${number}/${call.id}`, step: number, call });
  for (const child of step.children) items.push({ kind: "child", id: `${number}/${child.id}`, step: number, child });
  const pauses = run.pauses.filter((pause) => pause.step === number);
  return [...items, ...pauses.map((pause): ConversationItem => ({ kind: "pause", id: pause.token, step: number, pause }))];
}

function controlsBefore(run: RunView, step: StepView): ConversationItem[] {
  return run.controls.filter((control) => isShown(control) && placeOf(run, control) === step.number).map(controlItem);
}

function isShown(control: ControlView): boolean {
  return SHOWN_CONTROLS.includes(control.type);
}

/** The step above which a control stands: the one that it was applied before, else the next that began. */
function placeOf(run: RunView, control: ControlView): number | null {
  const wanted = control.step ?? nextStepAfter(run, control.settledAt);
  return wanted !== null && run.steps.some((step) => step.number === wanted) ? wanted : null;
}

function nextStepAfter(run: RunView, moment: Moment | null): number | null {
  if (moment === null) return null;
  return run.steps.find((step) => step.startedAt >= moment)?.number ?? null;
}

function controlItem(control: ControlView): ConversationItem {
  return { kind: "control", id: control.key, step: control.step, control };
}

function endOf(run: RunView): ConversationItem[] {
  if (run.status !== "failed" && run.status !== "cancelled") return [];
  return [{ kind: "end", id: "end", status: run.errorClass === "cancelled" ? "cancelled" : run.status, error: run.errorClass }];
}

/** The `answer` of a finished run's `result_inline`; null where there is none or it cannot be read. */
export function answerOfResult(resultInline: string): string | null {
  try {
    const value: unknown = JSON.parse(resultInline);
    const answer = typeof value === "object" && value !== null ? (value as Record<string, unknown>)["answer"] : undefined;
    return typeof answer === "string" ? answer : "";
  } catch {
    return null;
  }
}
