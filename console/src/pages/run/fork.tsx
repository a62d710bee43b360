import { useEffect, useRef, useState } from "preact/hooks";

import type { RunView } from "../../model/events/views.ts";
import { Button } from "../../parts/button.tsx";
import { Field } from "../../parts/field.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { written } from "../../shell/keys.ts";
import { navigate } from "../../shell/router.ts";
import { call } from "../../wire/client.ts";
import { asWireError, type WireError } from "../../wire/error.ts";
import { useCall } from "../../wire/resource.ts";
import type { AgentRow } from "../../wire/types.ts";

/** Run again from a step on, with another goal, model or instructions. What was before it is served from the record. */
export function ForkForm(props: { run: RunView; step: number; session: string; onClose: () => void }) {
  const { run, step, session } = props;
  const [goal, setGoal] = useState(run.goal);
  const [model, setModel] = useState(run.model);
  const [instructions, setInstructions] = useState("");
  const [hasInstructions, choose] = useState(false);
  const [isLive, live] = useState(false);
  const [isSending, sending] = useState(false);
  const [failed, fail] = useState<WireError | null>(null);
  const [key] = useState(() => crypto.randomUUID());
  const [agents] = useCall("agents.list", {});
  const models = agents.state === "ready" ? [...new Set([run.model, ...agents.data.agents.map((agent: AgentRow) => agent.model)])].filter(Boolean) : [];
  const fork = async (): Promise<void> => {
    sending(true);
    fail(null);
    try {
      const made = await call(
        "runs.fork",
        {
          id: run.id,
          step,
          ...(goal.trim() && goal !== run.goal ? { goal } : {}),
          ...(model.trim() && model !== run.model ? { model: model.trim() } : {}),
          ...(hasInstructions && instructions.trim() ? { instructions } : {}),
          ...(isLive ? { live: true } : {}),
          idempotency_key: `${key} ${goal} ${model} ${instructions} ${isLive}`.slice(0, 200),
        },
        { session },
      );
      props.onClose();
      navigate(`/tasks/${encodeURIComponent(run.id)}/compare/${encodeURIComponent(made.task_id)}${location.search.includes("session=") ? `?session=${encodeURIComponent(session)}` : ""}`);
    } catch (error) {
      fail(asWireError(error));
      sending(false);
    }
  };
  const served = step === 1 ? "Nothing is served from the record: the first step is decided anew" : step === 2 ? "Step 1 is served from the record: no call is made again" : `Steps 1 to ${step - 1} are served from the record: no call is made again`;
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    box.current?.querySelector("textarea")?.focus();
    return () => before instanceof HTMLElement && before.focus();
  }, []);
  return (
    <div ref={box} class="fork-popover" role="dialog" aria-label={`Fork from step ${step}`}>
      <form
        class="fork-form"
        onSubmit={(event) => {
          event.preventDefault();
          void fork();
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) void fork();
          if (event.key !== "Escape") return;
          event.stopPropagation();
          props.onClose();
        }}
      >
        <div class="fork-head">
          <h2>Fork from step {step}</h2>
          <span class="grow" />
          <Button small kind="quiet" icon="close" label="Close" onClick={props.onClose} />
        </div>
        <div class="fork-fields">
          <Field label="Goal" hint={goal !== run.goal ? `was “${run.goal}”` : undefined}>
            {(parts) => <textarea {...parts} class={`input ${goal !== run.goal ? "is-changed" : ""}`} rows={2} value={goal} onInput={(event) => setGoal(event.currentTarget.value)} />}
          </Field>
          <Field label="Model" hint={model !== run.model ? `was ${run.model}` : undefined}>
            {(parts) => (
              <>
                <input {...parts} class={`input ${model !== run.model ? "is-changed" : ""}`} list="fork-models" value={model} onInput={(event) => setModel(event.currentTarget.value)} />
                <datalist id="fork-models">
                  {models.map((one) => (
                    <option key={one} value={one} />
                  ))}
                </datalist>
              </>
            )}
          </Field>
          <Field label="Instructions" hint={hasInstructions ? "was as in the run" : undefined}>
            {(parts) => (
              <>
                <select {...parts} class={`input ${hasInstructions ? "is-changed" : ""}`} value={hasInstructions ? "other" : "same"} onChange={(event) => choose(event.currentTarget.value === "other")}>
                  <option value="same">as in the run</option>
                  <option value="other">others</option>
                </select>
                {hasInstructions && <textarea class="input" aria-label="Other instructions" rows={4} value={instructions} onInput={(event) => setInstructions(event.currentTarget.value)} />}
              </>
            )}
          </Field>
          <ul class="fork-says">
            <li class="state is-complete">
              <Glyph name="complete" />
              <span>{served}</span>
            </li>
            <li class="state">
              <Glyph name={isLive ? "failed" : "paused"} />
              <span>{isLive ? "New effects are run for real, and may cost and change things" : "New effects are held back and shown, not run"}</span>
            </li>
          </ul>
          <label class="state">
            <input type="checkbox" checked={isLive} onChange={(event) => live(event.currentTarget.checked)} />
            Run new effects for real
          </label>
          {failed && (
            <p class="small is-failed" role="alert">
              <code>{failed.code}</code>: {failed.message}
            </p>
          )}
          <div class="call-form-actions">
            <Button kind={isLive ? "danger" : "primary"} type="submit" icon="fork" hint={written("mod+Enter")} why={isSending ? "It is being forked" : undefined}>
              {isLive ? "Fork and run effects" : "Fork and compare"}
            </Button>
            <Button kind="quiet" onClick={props.onClose}>
              Cancel
            </Button>
          </div>
        </div>
      </form>
    </div>
  );
}
