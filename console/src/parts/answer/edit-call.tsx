import "./answer.css";

import { useMemo, useRef, useState } from "preact/hooks";

import { choiceText, editability, editCall, inputOf, type EditedCall, type Edits } from "../../model/approval/editing.ts";
import { exactLines } from "../../model/approval/exact.ts";
import { fieldsOf, type Field } from "../../model/approval/fields.ts";
import { approveLabel, type ArgsChange } from "../../model/approval/patch.ts";
import type { Json, JsonObject } from "../../model/json.ts";
import { Button } from "../button.tsx";
import { useKeys, written } from "../../shell/keys.ts";

/** The arguments of a call as fields: what changed is marked, and what will run stands beside. */
export function EditCall(props: { tool: string; args: JsonObject; schema: Json | undefined; isMasked: boolean; onSend: (change: ArgsChange) => void; onCancel: () => void }) {
  const fields = useMemo(() => fieldsOf(props.schema, props.args, props.isMasked), [props.schema, props.args, props.isMasked]);
  const [edits, edit] = useState<Edits>({});
  const edited = useMemo(() => editCall(props.args, fields, edits), [props.args, fields, edits]);
  const form = useRef<HTMLFormElement>(null);
  const allowed = editability(props.isMasked, true, false);
  const send = (): void => {
    if (!edited.blocked && edited.change) props.onSend(edited.change);
  };
  useKeys("Edited call", [{ keys: "mod+Enter", does: "Approve the edited call", run: send, isMovement: true }]);
  const set = (name: string, text: string | null): void => {
    const next = { ...edits };
    if (text === null) delete next[name];
    else next[name] = text;
    edit(next);
  };
  return (
    <form
      ref={form}
      class="edit-call"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
      onKeyDown={(event) => {
        if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) {
          event.preventDefault();
          send();
        }
        if (event.key === "Escape") props.onCancel();
      }}
    >
      <div class="edit-fields">
        {fields.map((field, at) => (
          <EditField key={field.name} field={field} text={edits[field.name]} edited={edited} isFirst={at === 0} onEdit={(text) => set(field.name, text)} />
        ))}
        {allowed.why && <p class="small soft edit-note">{allowed.why}</p>}
      </div>
      <div class="edit-result">
        <h3>What will run</h3>
        <pre class="block">{`${props.tool}(${exactLines(edited.args)})`}</pre>
        <div class="call-form-actions">
          <Button kind="primary" type="submit" hint={written("mod+Enter")} why={edited.blocked || undefined}>
            {approveLabel(edited.changes)}
          </Button>
          <Button kind="quiet" onClick={props.onCancel}>
            Cancel
          </Button>
        </div>
        {edited.blocked && <p class="small is-failed">{edited.blocked}</p>}
      </div>
    </form>
  );
}

function EditField(props: { field: Field; text: string | undefined; edited: EditedCall; isFirst: boolean; onEdit: (text: string | null) => void }) {
  const { field, edited, onEdit } = props;
  const before = inputOf(field);
  const text = props.text ?? before;
  const isChanged = edited.changed.includes(field.name);
  const problem = edited.problems[field.name];
  const id = `edit-${field.name}`;
  const shared = {
    id,
    class: `input mono ${isChanged ? "is-changed" : ""}`,
    "aria-invalid": problem ? (true as const) : undefined,
    "aria-describedby": isChanged || problem || field.description ? `${id}-note` : undefined,
    disabled: field.isMasked,
  };
  return (
    <>
      <label for={id}>
        {field.name}
        {field.isRequired && <span class="faint" aria-hidden="true"> *</span>}
      </label>
      <div>
        {control(field, text, shared, onEdit)}
        <p class="note" id={`${id}-note`}>
          {problem && <span class="is-failed">{problem}. </span>}
          {isChanged && (
            <>
              was <code>{before || "not given"}</code>{" "}
              <button type="button" class="link-button" onClick={() => onEdit(null)}>
                undo
              </button>{" "}
            </>
          )}
          {field.description}
        </p>
      </div>
    </>
  );
}

function control(field: Field, text: string, shared: Record<string, unknown>, onEdit: (text: string) => void) {
  switch (field.kind) {
    case "choice":
      return (
        <select {...shared} value={text} onChange={(event) => onEdit(event.currentTarget.value)}>
          {!field.choices.some((one) => choiceText(one) === text) && <option value={text}>{text || "not given"}</option>}
          {field.choices.map((one) => (
            <option key={choiceText(one)} value={choiceText(one)}>
              {choiceText(one)}
            </option>
          ))}
        </select>
      );
    case "boolean":
      return (
        <select {...shared} value={text} onChange={(event) => onEdit(event.currentTarget.value)}>
          {!text && <option value="">not given</option>}
          <option>true</option>
          <option>false</option>
        </select>
      );
    case "lines":
    case "json":
      return <textarea {...shared} rows={Math.min(8, Math.max(2, text.split("\n").length))} value={text} onInput={(event) => onEdit(event.currentTarget.value)} />;
    default:
      return <input {...shared} inputMode={field.kind === "number" || field.kind === "integer" ? "decimal" : undefined} value={text} onInput={(event) => onEdit(event.currentTarget.value)} />;
  }
}
