import type { InboxItem } from "../../model/inbox.ts";
import { Button, ButtonLink } from "../../parts/button.tsx";
import { Field } from "../../parts/field.tsx";
import { PopoverButton } from "../../parts/popover.tsx";
import { hasScope } from "../../wire/connection.ts";
import type { Control } from "../../wire/client.ts";
import type { TaskRow } from "../../wire/types.ts";
import { sendToAll } from "./source.ts";

/** Why a control can be sent to none of these; "" where it can be sent to some. */
export function whyNot(verb: Control, rows: readonly TaskRow[], waits: ReadonlyMap<string, InboxItem>): string {
  return rowsFor(verb, rows, waits).length ? "" : { pause: "None of them runs", resume: "None of them is paused without a question", cancel: "All of them have ended" }[verb as "pause"] || "All of them have ended";
}

/** Those that a control can change. A run that waits for an answer is resumed by that answer, in the inbox. */
export function rowsFor(verb: Control, rows: readonly TaskRow[], waits: ReadonlyMap<string, InboxItem>): TaskRow[] {
  return rows.filter((row) => {
    if (verb === "pause") return row.status === "running" || row.status === "pending";
    if (verb === "resume") return row.status === "paused" && (waits.get(row.id)?.kind ?? "event") === "event";
    return ["pending", "running", "paused"].includes(row.status);
  });
}

/** What can be done with all that are selected. Approving is not: nobody approves what they do not see. */
export function BulkBar({ rows, waits, onDone }: { rows: readonly TaskRow[]; waits: ReadonlyMap<string, InboxItem>; onDone: () => void }) {
  const asked = rows.flatMap((row) => {
    const wait = waits.get(row.id);
    return wait && wait.kind !== "event" ? [wait] : [];
  });
  const send = (verb: Control, payload: Record<string, unknown> = {}) => void sendToAll(rowsFor(verb, rows, waits), verb, payload).then(onDone);
  const why = (verb: Control) => whyNot(verb, rows, waits) || undefined;
  const prioritize = hasScope("admin") ? why("prioritize") : "Needs the admin scope";
  const cancel = why("cancel");
  return (
    <div class="task-bulk" role="toolbar" aria-label="Selected tasks">
      <b>{rows.length} selected</b>
      {asked.length > 0 && <span class="soft hide-small">{asked.length === rows.length ? (rows.length === 1 ? "it waits for a person" : "all wait for a person") : `${asked.length} wait for a person`}</span>}
      <span class="grow" />
      {asked[0] && (
        <ButtonLink small icon="eye" href={`/inbox/${encodeURIComponent(asked[0].token)}`}>
          Review {asked.length}
        </ButtonLink>
      )}
      <Button small icon="pause" why={why("pause")} onClick={() => send("pause")}>
        Pause
      </Button>
      <Button small icon="play" why={why("resume")} onClick={() => send("resume")}>
        Resume
      </Button>
      <PopoverButton small icon="priority" text="Priority" says="Priority" {...(prioritize ? { why: prioritize } : {})}>
        {(close) => (
          <form
            class="task-form"
            onSubmit={(event) => {
              event.preventDefault();
              send("prioritize", { priority: Math.round(Number(new FormData(event.currentTarget).get("priority"))) });
              close();
            }}
          >
            <Field label="Priority" hint="Higher runs first among those that wait for a worker.">
              {(parts) => <input {...parts} class="input" type="number" name="priority" step={1} required defaultValue="0" />}
            </Field>
            <Button kind="primary" type="submit">
              Send
            </Button>
          </form>
        )}
      </PopoverButton>
      <PopoverButton small kind="danger" icon="stop" text="Cancel" says="Cancel the selected runs" {...(cancel ? { why: cancel } : {})}>
        {(close) => (
          <div class="task-form">
            <Button kind="primary" onClick={() => { close(); send("cancel"); }}>
              After this step
            </Button>
            <Button kind="danger" onClick={() => { close(); send("cancel", { hard: true }); }}>
              Now, stops the call in flight
            </Button>
          </div>
        )}
      </PopoverButton>
    </div>
  );
}
