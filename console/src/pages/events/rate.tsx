import { useState } from "preact/hooks";

import { FAMILIES, niceScale, rateOf, WINDOWS, type Family } from "../../model/charts.ts";
import { formatCount, formatTime } from "../../model/formats.ts";
import { Button } from "../../parts/button.tsx";
import { zone } from "../../parts/moments.tsx";
import { PartFailure } from "../../parts/states.tsx";
import { navigate } from "../../shell/router.ts";
import { useCall } from "../../wire/resource.ts";
import type { EventFilter } from "../../wire/types.ts";

const WORDS: Record<Family, string> = { llm: "llm", tool: "tool", task: "task", control: "control, pause", other: "other", failed: "failed" };

/** How many events came in each minute of the last hour, by family. */
export function Rate({ filter }: { filter: EventFilter }) {
  const [counted, reload] = useCall("events.aggregate", { ...WINDOWS["1h"], filter }, { everyMs: 10_000 });
  const [isTable, show] = useState(false);
  if (counted.state === "failed") return <PartFailure noun="The rate" error={counted.error} onRetry={reload} />;
  const columns = rateOf(counted.state === "ready" ? counted.data.buckets : []);
  const { top } = niceScale(Math.max(1, ...columns.map((column) => column.total)), 2);
  const sum = (family: Family) => columns.reduce((total, column) => total + column.counts[family], 0);
  const occurring = FAMILIES.filter((family) => sum(family) > 0);
  const clock = (at: number) => formatTime(at, { now: at, zone: zone() }).slice(0, 5);
  const said = occurring.map((family) => `${WORDS[family]} ${sum(family)}`).join(", ");
  return (
    <section class="rate" aria-label="Events per minute">
      <div class="rate-head">
        <span class="legend">
          {occurring.map((family) => (
            <span key={family}>
              <i class={`rate-swatch rate-${family}`} aria-hidden="true" />
              {WORDS[family]} {formatCount(sum(family))}
            </span>
          ))}
        </span>
        <span class="grow" />
        <span class="tiny faint whole hide-phone">per minute, last hour</span>
        <Button small kind="quiet" pressed={isTable} onClick={() => show(!isTable)}>
          Table
        </Button>
      </div>
      {isTable ? (
        <div class="rate-table">
          <table>
            <caption class="hidden-text">Events per minute, by family</caption>
            <thead>
              <tr>
                <th>Minute</th>
                {occurring.map((family) => (
                  <th key={family} class="number">
                    {WORDS[family]}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {columns.filter((column) => column.total).reverse().map((column) => (
                <tr key={column.start}>
                  <td>{clock(column.start)}</td>
                  {occurring.map((family) => (
                    <td key={family} class="number">
                      {column.counts[family]}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <figure class="rate-chart" role="img" aria-label={`Events of the last hour: ${said || "none"}`}>
          <span class="rate-top" aria-hidden="true">
            {top}
          </span>
          <div class="rate-bars" aria-hidden="true">
            {columns.map((column) => (
              <div
                key={column.start}
                class="rate-minute"
                title={`${clock(column.start)}: ${occurring.map((family) => `${column.counts[family]} ${WORDS[family]}`).join(", ")}`}
                onClick={() => navigate(`/tasks?since=${new Date(column.start).toISOString()}`)}
              >
                {[...FAMILIES].reverse().map((family) => column.counts[family] > 0 && <i key={family} class={`rate-${family}`} style={{ height: `${(column.counts[family] / top) * 100}%` }} />)}
              </div>
            ))}
          </div>
          <div class="rate-axis" aria-hidden="true">
            {[0, 15, 30, 45].map((at) => (
              <span key={at}>{columns[at] ? clock(columns[at].start) : ""}</span>
            ))}
            <span>now</span>
          </div>
        </figure>
      )}
    </section>
  );
}
