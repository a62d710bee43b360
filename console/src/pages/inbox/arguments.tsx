import { exactLines, visibleText } from "../../model/approval/exact.ts";
import { isObject, type Json } from "../../model/json.ts";
import { Segments } from "../../parts/button.tsx";
import { Value } from "../../parts/rich.tsx";

export type ArgsView = "values" | "rendered" | "exact";

/** The arguments of a call in full. Only *Values* and *Exact* hide nothing, so only they may stand above an approval. */
export function Arguments({ args, view, onView, isMasked }: { args: Json; view: ArgsView; onView: (view: ArgsView) => void; isMasked: boolean }) {
  const entries = isObject(args) ? Object.entries(args) : null;
  return (
    <section class="section" aria-label="Arguments">
      <div class="inbox-args-head">
        <h3>Arguments</h3>
        <Segments
          small
          label="Arguments as"
          value={view}
          onChange={onView}
          choices={[
            { value: "values", text: "Values" },
            { value: "rendered", text: "Rendered" },
            { value: "exact", text: "Exact" },
          ]}
        />
      </div>
      {view === "exact" || !entries ? (
        <pre class="block">{exactLines(args)}</pre>
      ) : entries.length === 0 ? (
        <p class="soft">The call takes none.</p>
      ) : (
        <dl class="inbox-args">
          {entries.map(([name, value]) => (
            <div key={name} class={isLong(value as Json) ? "is-long" : ""}>
              <dt>{name}</dt>
              <dd>{view === "rendered" ? <Value value={value as Json} /> : <Plain value={value as Json} />}</dd>
            </div>
          ))}
        </dl>
      )}
      {isMasked && <p class="small soft">Values shown as *** are masked; the call runs with the true ones.</p>}
    </section>
  );
}

function isLong(value: Json): boolean {
  return typeof value === "string" ? value.includes("\n") : typeof value === "object" && value !== null;
}

/** A value with each of its characters: texts of several lines as lines, all else as JSON. */
function Plain({ value }: { value: Json }) {
  if (typeof value === "string" && value.includes("\n")) return <pre class="block">{value.split("\n").map(visibleText).join("\n")}</pre>;
  return isLong(value) ? <pre class="block">{exactLines(value)}</pre> : <code>{visibleText(JSON.stringify(value))}</code>;
}
