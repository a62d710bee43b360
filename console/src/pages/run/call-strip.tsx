import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";

import { actedPayload, answerFate, answerPayload, approvePayload, rejectPayload, type AnswerVerb, type GivenAnswer } from "../../model/approval/answers.ts";
import { exactLines, rowOffer } from "../../model/approval/exact.ts";
import { isObject, type Json } from "../../model/json.ts";
import type { Moment, PauseView, RunView, ToolCall } from "../../model/events/views.ts";
import { formatDuration } from "../../model/formats.ts";
import { openPauses } from "../../model/status.ts";
import { EditCall } from "../../parts/answer/edit-call.tsx";
import { ReasonForm, ResultForm, useGuard } from "../../parts/answer/forms.tsx";
import { Button } from "../../parts/button.tsx";
import { Glyph, type GlyphName } from "../../parts/glyph.tsx";
import { MenuButton, PopoverButton } from "../../parts/popover.tsx";
import { useCall } from "../../wire/resource.ts";
import { useKeys } from "../../shell/keys.ts";
import type { Send } from "./controls.tsx";
import { waitSentence } from "./words.ts";

/** A strip that says what somebody must know before all else, why, and what can be done. */
export function CallStrip(props: { tone: "waiting" | "unknown" | "failed" | "idle"; glyph: GlyphName; title: ComponentChildren; note?: ComponentChildren; actions?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <section class={`call-strip is-tinted-${props.tone}`} aria-label="What the run waits for">
      <Glyph name={props.glyph} />
      <div class="call-text">
        <b>{props.title}</b>
        {props.note && <p>{props.note}</p>}
      </div>
      {props.actions && <div class="call-actions">{props.actions}</div>}
      {props.children && <div class="call-more">{props.children}</div>}
    </section>
  );
}

interface WaitProps {
  run: RunView;
  session: string;
  now: Moment;
  send: Send;
}

/** What the run waits for, and its answers. Nothing counts before its event says so. */
export function WaitStrip(props: WaitProps) {
  const { run, now } = props;
  const open = openPauses(run);
  const [chosen, choose] = useState(0);
  const [given, give] = useState<GivenAnswer | null>(null);
  const pause = open[Math.min(chosen, open.length - 1)];
  const fate = given && answerFate(given, run, now);
  if (fate && given && (fate.phase === "second" || !pause)) {
    const isNews = fate.phase !== "counted" || now - given.at < 6_000;
    if (isNews && (fate.phase === "second" || fate.phase === "counted")) {
      return (
        <CallStrip
          tone="idle"
          glyph={fate.words.glyph}
          title={fate.words.text}
          actions={
            <Button small onClick={() => give(null)}>
              Close
            </Button>
          }
        />
      );
    }
  }
  if (!pause) return null;
  const answer = async (verb: AnswerVerb, payload: Record<string, unknown>): Promise<void> => {
    const at = Date.now();
    const eventId = await props.send(verb, payload);
    give({ run: run.id, token: pause.token, verb, eventId, at });
  };
  const mine = given?.token === pause.token && fate ? fate : null;
  const others = open.length > 1 && (
    <Button small kind="quiet" onClick={() => choose((chosen + 1) % open.length)}>
      {`${Math.min(chosen, open.length - 1) + 1} of ${open.length}, next`}
    </Button>
  );
  return (
    <OnePause key={pause.token} {...props} pause={pause} answer={answer}>
      {mine && (
        <span class={`state is-${mine.words.tone}`} data-fate={mine.phase}>
          <Glyph name={mine.words.glyph} />
          {mine.words.text}
        </span>
      )}
      {others}
    </OnePause>
  );
}

interface PauseProps extends WaitProps {
  pause: PauseView;
  answer: (verb: AnswerVerb, payload: Record<string, unknown>) => Promise<void>;
  children: ComponentChildren;
}

function OnePause(props: PauseProps) {
  const { pause, run } = props;
  const call = run.steps.find((step) => step.number === pause.step)?.calls.find((one) => one.id === pause.callId);
  if (pause.reason === "approval_required") return <Approval {...props} call={call} />;
  if (pause.signIn || pause.link) return <SignIn {...props} />;
  return pause.reason === "await_input" ? <Awaited {...props} call={call} /> : <Held {...props} />;
}

function stepOf(pause: PauseView): string {
  return pause.step > 0 ? `Step ${pause.step}: ` : "";
}

// ── An approval ───────────────────────────────────────────────────────────────────────────────────────────────────────

interface Payload {
  readonly approvers: readonly string[];
  readonly schema: Json | undefined;
  readonly args: Json | undefined;
  readonly why: string;
}

/** The pause as `pause.list` has it: with the schema of its arguments, and the arguments where events cut them. */
function usePayload(pause: PauseView, session: string): Payload {
  const [listed] = useCall("pause.list", { filter: { session_ids: [session], status: ["paused"] } }, { session });
  return useMemo(() => {
    const found = listed.state === "ready" ? listed.data.snapshots.find((one) => one.token === pause.token) : undefined;
    const payload = found?.payload ?? {};
    const summary = payload["args_summary"];
    return {
      approvers: pause.approvers.length ? pause.approvers : (found?.approvers ?? []),
      schema: payload["args_schema"] as Json | undefined,
      args: pause.args ?? (isObject(summary) ? (summary["args"] as Json | undefined) : undefined),
      why: typeof payload["reason"] === "string" ? payload["reason"] : pause.why,
    };
  }, [listed, pause]);
}

function Approval(props: PauseProps & { call: ToolCall | undefined }) {
  const { pause, call, answer, now } = props;
  const payload = usePayload(pause, props.session);
  const [isOpen, open] = useState(false);
  const [isEditing, edit] = useState(false);
  const [isRejecting, askReason] = useState(false);
  const guard = useGuard(`${pause.token} ${isOpen}`);
  const tool = pause.tool || call?.tool || "a tool";
  const isCut = payload.args === undefined && pause.argsCut !== null;
  const offer = rowOffer({ args: payload.args, isCut, isMasked: pause.isMasked });
  // Nobody approves what they cannot see: the exact arguments stand in full before the button does.
  const maySend = offer.kind === "approve" || (isOpen && payload.args !== undefined && !isCut);
  const args = isObject(payload.args) ? payload.args : undefined;
  const approve = (remember?: "run" | "always") => guard(() => void answer("approve", approvePayload(pause.token, remember ? { remember } : {})));
  const canEdit = args === undefined ? "The arguments are not known here" : "";
  useKeys("Approval", [
    { keys: "a", does: `Approve ${tool}`, why: maySend && !isEditing ? "" : "Review it first", run: () => approve() },
    { keys: "e", does: `Edit ${tool}`, why: canEdit, run: () => { open(true); edit(true); } },
    { keys: "r", does: `Reject ${tool}`, run: () => askReason(true) },
  ]);
  const actions = (
    <>
      {props.children}
      {!isEditing &&
        (maySend ? (
          <span class="button-pair">
            <Button kind="primary" hint="A" onClick={() => approve()}>
              Approve
            </Button>
            <MenuButton
              icon="down"
              label="More ways to approve"
              says="More ways to approve"
              items={[
                { text: `Allow ${tool} for this run`, onPick: () => approve("run") },
                { text: "Allow this very call from now on", onPick: () => approve("always") },
              ]}
            />
          </span>
        ) : (
          <Button kind="primary" why={isCut ? "The arguments are too large to be shown here" : undefined} onClick={() => open(true)}>
            Review
          </Button>
        ))}
      {!isEditing && (
        <Button hint="E" why={canEdit || undefined} onClick={() => { open(true); edit(true); }}>
          Edit
        </Button>
      )}
      <Button hint="R" expanded={isRejecting} onClick={() => askReason(!isRejecting)}>
        Reject
      </Button>
    </>
  );
  return (
    <CallStrip
      tone="waiting"
      glyph="waiting"
      title={
        <>
          {stepOf(pause)}approve <code>{tool}</code>
          {payload.why && <span class="call-why"> · {payload.why}</span>}
        </>
      }
      note={waitSentence({ ...pause, approvers: payload.approvers }, now)}
      actions={actions}
    >
      {offer.kind === "approve" && !isOpen && <code class="call-args">{offer.text}</code>}
      {isRejecting && (
        <ReasonForm
          onCancel={() => askReason(false)}
          onSend={(reason) => {
            askReason(false);
            void answer("reject", rejectPayload(pause.token, reason));
          }}
        />
      )}
      {isOpen && !isEditing && payload.args !== undefined && (
        <div class="call-exact">
          <pre class="block">{exactLines(payload.args)}</pre>
          {pause.isMasked && <p class="small soft">Values shown as *** are masked; the call runs with the true ones.</p>}
        </div>
      )}
      {isEditing && args && (
        <EditCall
          tool={tool}
          args={args}
          schema={payload.schema}
          isMasked={pause.isMasked}
          onCancel={() => edit(false)}
          onSend={(change) => {
            edit(false);
            void answer("approve", approvePayload(pause.token, { change }));
          }}
        />
      )}
    </CallStrip>
  );
}

// ── Other pauses ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** An answer that is asked for: what came of a call whose worker was lost, or whatever the agent wants to know. */
function Awaited(props: PauseProps & { call: ToolCall | undefined }) {
  const { pause, call, session } = props;
  const [listed] = useCall("pause.list", { filter: { session_ids: [session], status: ["paused"] } }, { session });
  const found = listed.state === "ready" ? listed.data.snapshots.find((one) => one.token === pause.token) : undefined;
  const whole = pause.approvers.length ? pause : { ...pause, approvers: found?.approvers ?? [] };
  const isUnknown = call?.status === "unknown" || found?.payload?.["question"] === "unknown_outcome";
  const calls = props.run.steps.find((step) => step.number === (pause.step || found?.step))?.calls ?? [];
  // Its events may not name the call: the listed pause does, or it is the only one of its step.
  const lost = call ?? calls.find((one) => one.id === found?.call_id) ?? calls[0];
  if (isUnknown && lost) return <UnknownOutcome {...props} pause={whole} call={lost} />;
  if (listed.state === "loading") return null;
  return <Question {...props} pause={whole} payload={found?.payload ?? {}} />;
}

function UnknownOutcome(props: PauseProps & { call: ToolCall }) {
  const { pause, call, answer, now } = props;
  const into = call.startedAt !== null && call.lostAt !== null ? ` ${formatDuration(call.lostAt - call.startedAt)} into the call` : " in the call";
  return (
    <CallStrip
      tone="unknown"
      glyph="unknown"
      title={
        <>
          {stepOf(pause)}
          <code>{call.tool}</code> may have acted. The worker was lost{into}; nothing was run again.
        </>
      }
      note={waitSentence(pause, now)}
      actions={
        <>
          {props.children}
          <PopoverButton text="It acted…" says="What came of the call">
            {(close) => (
              <ResultForm
                onSend={(result) => {
                  close();
                  void answer("resume", actedPayload(pause.token, true, result));
                }}
              />
            )}
          </PopoverButton>
          <Button onClick={() => void answer("resume", actedPayload(pause.token, false))}>It did not: run again</Button>
          <Button onClick={() => void answer("reject", rejectPayload(pause.token))}>Nobody knows</Button>
        </>
      }
    />
  );
}

function Question(props: PauseProps & { payload: Readonly<Record<string, unknown>> }) {
  const { pause, payload, answer, now } = props;
  const asked = [payload["question"], payload["prompt"], payload["message"], pause.why].find((one) => typeof one === "string" && one);
  const [text, write] = useState("");
  const send = (): void => {
    if (text.trim()) void answer("resume", answerPayload(pause.token, text.trim()));
  };
  return (
    <CallStrip tone="waiting" glyph="question" title={<>{stepOf(pause)}{(asked as string) || "the agent asks for an answer"}</>} note={waitSentence(pause, now)} actions={props.children}>
      <form
        class="call-form is-line"
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
      >
        <input class="input" aria-label="Answer" value={text} onInput={(event) => write(event.currentTarget.value)} />
        <Button kind="primary" type="submit" why={text.trim() ? undefined : "Write an answer first"}>
          Answer
        </Button>
      </form>
    </CallStrip>
  );
}

function SignIn(props: PauseProps) {
  const { pause, now } = props;
  const safe = /^https?:\/\//i.test(pause.link) ? pause.link : "";
  return (
    <CallStrip
      tone="waiting"
      glyph="sign-in"
      title={<>{stepOf(pause)}sign in to {pause.signIn || pause.tool}</>}
      note={waitSentence(pause, now)}
      actions={
        <>
          {props.children}
          {safe && (
            <a class="button primary" href={safe} target="_blank" rel="noopener noreferrer">
              Sign in
            </a>
          )}
        </>
      }
    />
  );
}

function Held(props: PauseProps) {
  const { pause, run, answer, now } = props;
  const control = run.controls.findLast((one) => one.type === "PAUSE" && one.outcome === "applied");
  const by = pause.reason === "external_event" && control?.by?.user ? ` by ${control.by.user}` : "";
  const title = control && pause.reason === "external_event" ? `Paused${by}` : `Waits: ${pause.reason.replaceAll("_", " ")}`;
  return (
    <CallStrip
      tone="waiting"
      glyph="paused"
      title={<>{stepOf(pause)}{title}</>}
      note={waitSentence(pause, now)}
      actions={
        <>
          {props.children}
          <Button kind="primary" icon="play" onClick={() => void answer("resume", { token: pause.token })}>
            Resume
          </Button>
        </>
      }
    />
  );
}
