import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { fateOf, controlName } from "../../model/fates.ts";
import type { ControlView, RunView } from "../../model/events/views.ts";
import { isEnd } from "../../model/events/run-state.ts";
import { openPauses } from "../../model/status.ts";
import { Button } from "../../parts/button.tsx";
import { Field } from "../../parts/field.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import type { IconName } from "../../parts/icon-paths.ts";
import { PopoverButton } from "../../parts/popover.tsx";
import type { Control } from "../../wire/client.ts";
import { hasScope } from "../../wire/connection.ts";

export type Send = (verb: Control, payload?: Record<string, unknown>) => Promise<string>;

/** Why each control cannot be sent now; "" where it can. */
export interface Whys {
  readonly steer: string;
  readonly pause: string;
  readonly resume: string;
  readonly prioritize: string;
  readonly cancel: string;
}

export function whysOf(run: RunView): Whys {
  if (isEnd(run.status)) {
    const ended = "The run has ended";
    return { steer: ended, pause: ended, resume: ended, prioritize: ended, cancel: ended };
  }
  const open = openPauses(run);
  const waits = open.length > 0 || run.status === "paused";
  const isHeld = waits && (open.length === 0 || open.some((pause) => pause.reason === "external_event" || pause.reason === "constraints_conflict"));
  const asked = run.controls.findLast((one) => one.type === "PAUSE" && (one.outcome === "sent" || one.outcome === "received"));
  return {
    steer: "",
    pause: waits ? "The run already waits" : asked ? "Asked already; takes effect after this step" : "",
    resume: isHeld ? "" : waits ? "The run waits for an answer: give it above" : "The run is not paused",
    prioritize: hasScope("admin") ? "" : "Needs the admin scope",
    cancel: "",
  };
}

/** The controls that steer a run, with what became of the last one. Approve and reject stand in the call strip. */
export function ControlBar(props: { run: RunView; send: Send; children: ComponentChildren }) {
  const { run, send } = props;
  const why = whysOf(run);
  const newest = run.controls.findLast((one) => one.sentAt !== null && one.type !== "APPROVE" && one.type !== "REJECT");
  return (
    <div class="run-controls" role="toolbar" aria-label="Controls">
      <TextControl icon="message" text="Message" hint="M" noun="message" why={why.steer} onSend={(message) => void send("user_message", { message })}>
        The agent reads it before its next step.
      </TextControl>
      <TextControl icon="redirect" text="Redirect" noun="new goal" initial={run.goal} why={why.steer} onSend={(goal) => void send("redirect", { goal })}>
        Replaces the goal from the next step on.
      </TextControl>
      <TextControl icon="inject" text="Add context" noun="context" why={why.steer} onSend={(text) => void send("inject_context", { context: text })}>
        Shown to the agent as data beside its goal.
      </TextControl>
      <i class="rule" />
      <Button small kind="quiet" icon="pause" hint="⇧P" why={why.pause} onClick={() => void send("pause")}>
        Pause
      </Button>
      <Button small kind="quiet" icon="play" why={why.resume} onClick={() => void send("resume")}>
        Resume
      </Button>
      <PriorityControl run={run} why={why.prioritize} onSend={(priority) => void send("prioritize", { priority })} />
      <CancelControl why={why.cancel} onSend={(hard) => void send("cancel", hard ? { hard: true } : {})} />
      {newest && <NewestFate control={newest} run={run} />}
      <span class="grow" />
      {props.children}
    </div>
  );
}

function NewestFate({ control, run }: { control: ControlView; run: RunView }) {
  const fate = fateOf(control, openPauses(run).length > 0);
  return (
    <span class="newest-fate" data-fate={control.outcome}>
      <Glyph name={fate.glyph} />
      <span class="cut" title={fate.text}>
        <b>{controlName(control.type)}</b> {fate.text}
      </span>
    </span>
  );
}

interface TextControlProps {
  icon: IconName;
  text: string;
  noun: string;
  hint?: string;
  why: string;
  initial?: string;
  onSend: (text: string) => void;
  children: ComponentChildren;
}

function TextControl({ icon, text, noun, why, initial = "", onSend, children, ...more }: TextControlProps) {
  return (
    <PopoverButton small kind="quiet" icon={icon} text={text} says={`${text}: ${noun}`} {...(why ? { why } : {})} {...more}>
      {(close) => (
        <TextForm
          noun={noun}
          note={children}
          initial={initial}
          onSend={(said) => {
            close();
            onSend(said);
          }}
        />
      )}
    </PopoverButton>
  );
}

function TextForm(props: { noun: string; note: ComponentChildren; initial: string; onSend: (text: string) => void }) {
  const [text, write] = useState(props.initial);
  const send = () => text.trim() && props.onSend(text.trim());
  return (
    <form
      class="control-form"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <Field label={props.noun.charAt(0).toUpperCase() + props.noun.slice(1)} hint={props.note}>
        {(parts) => (
          <textarea
            {...parts}
            class="input"
            rows={3}
            maxLength={4096}
            value={text}
            onInput={(event) => write(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) send();
            }}
          />
        )}
      </Field>
      <Button kind="primary" type="submit" icon="send" why={text.trim() ? undefined : "Write something first"}>
        Send
      </Button>
    </form>
  );
}

function PriorityControl({ run, why, onSend }: { run: RunView; why: string; onSend: (priority: number) => void }) {
  return (
    <PopoverButton small kind="quiet" icon="priority" text="Priority" says="Priority" {...(why ? { why } : {})}>
      {(close) => (
        <form
          class="control-form"
          onSubmit={(event) => {
            event.preventDefault();
            const value = Number(new FormData(event.currentTarget).get("priority"));
            close();
            onSend(Math.round(value));
          }}
        >
          <Field label="Priority" hint="Higher runs first among those that wait for a worker.">
            {(parts) => <input {...parts} class="input" type="number" name="priority" step={1} required defaultValue={String(run.priority)} />}
          </Field>
          <Button kind="primary" type="submit" icon="send">
            Send
          </Button>
        </form>
      )}
    </PopoverButton>
  );
}

function CancelControl({ why, onSend }: { why: string; onSend: (hard: boolean) => void }) {
  return (
    <PopoverButton small kind={why ? "quiet" : "danger"} icon="stop" text="Cancel" says="Cancel the run" {...(why ? { why } : {})}>
      {(close) => {
        const choose = (hard: boolean) => () => {
          close();
          onSend(hard);
        };
        return (
          <div class="control-form">
            <Button kind="primary" onClick={choose(false)}>
              After this step
            </Button>
            <Button kind="danger" onClick={choose(true)}>
              Now, stops the call in flight
            </Button>
            <p class="small soft">Children of the run end with it.</p>
          </div>
        );
      }}
    </PopoverButton>
  );
}
