import "./answer.css";

import { useEffect, useRef, useState } from "preact/hooks";

import { mayClick } from "../../model/approval/answers.ts";
import type { Json } from "../../model/json.ts";
import { Button } from "../button.tsx";
import { Field } from "../field.tsx";

/** Buttons ignore clicks for a moment after the row under them changed. */
export function useGuard(key: string): (act: () => void) => void {
  const changed = useRef({ key, at: 0 });
  useEffect(() => {
    changed.current = { key, at: Date.now() };
  }, [key]);
  return (act) => {
    if (mayClick(changed.current.at, Date.now())) act();
  };
}

/** Why a call is rejected, which the agent reads. */
export function ReasonForm({ onSend, onCancel }: { onSend: (reason: string) => void; onCancel: () => void }) {
  const [reason, write] = useState("");
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);
  return (
    <form
      class="call-form"
      onSubmit={(event) => {
        event.preventDefault();
        onSend(reason.trim());
      }}
    >
      <Field label="Reason, which the agent reads">
        {(parts) => (
          <textarea
            {...parts}
            ref={field}
            class="input"
            rows={2}
            maxLength={4096}
            value={reason}
            onInput={(event) => write(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) onSend(reason.trim());
              if (event.key === "Escape") onCancel();
            }}
          />
        )}
      </Field>
      <div class="call-form-actions">
        <Button kind="primary" type="submit">
          Reject
        </Button>
        <Button kind="quiet" onClick={onCancel}>
          Cancel
        </Button>
      </div>
    </form>
  );
}

/** What a call of unknown outcome returned, by whoever looked. */
export function ResultForm({ onSend }: { onSend: (result: Json) => void }) {
  const [text, write] = useState("");
  return (
    <form
      class="control-form"
      onSubmit={(event) => {
        event.preventDefault();
        onSend(valueOf(text));
      }}
    >
      <Field label="Result of the call" hint="JSON, or a text. The agent gets it as what the call returned.">
        {(parts) => <textarea {...parts} class="input mono" rows={3} value={text} onInput={(event) => write(event.currentTarget.value)} />}
      </Field>
      <Button kind="primary" type="submit">
        It acted
      </Button>
    </form>
  );
}

/** JSON where it is JSON, else the text itself. */
function valueOf(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}
