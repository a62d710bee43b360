import { useState } from "preact/hooks";

import { formatCount, formatTime } from "../../model/formats.ts";
import { parseTime } from "../../model/events/wire.ts";
import { Button } from "../../parts/button.tsx";
import { zone } from "../../parts/moments.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { PartFailure } from "../../parts/states.tsx";
import { navigate } from "../../shell/router.ts";
import { useCall } from "../../wire/resource.ts";

const HOUR_NS = 3_600_000_000_000;
const KINDS = ["complete", "failed", "cancelled"] as const;
const TYPES = { complete: "task.completed", failed: "task.failed", cancelled: "task.cancelled" } as const;

/** How the runs of each hour of the last day ended. */
export function Outcomes() {
  const body = { window: 24 * HOUR_NS, bucket: HOUR_NS, filter: { event_types: Object.values(TYPES) } };
  const [counted, reload] = useCall("events.aggregate", body, { everyMs: 60_000 });
  const [isTable, show] = useState(false);
  if (counted.state === "failed") return <PartFailure noun="Runs by outcome" error={counted.error} onRetry={reload} />;
  const hours = (counted.state === "ready" ? counted.data.buckets : []).map((bucket) => ({
    at: parseTime(bucket.bucket_start) ?? 0,
    complete: bucket.counts[TYPES.complete] ?? 0,
    failed: bucket.counts[TYPES.failed] ?? 0,
    cancelled: bucket.counts[TYPES.cancelled] ?? 0,
  }));
  const sum = (kind: (typeof KINDS)[number]) => hours.reduce((total, hour) => total + hour[kind], 0);
  const most = niceCeiling(Math.max(1, ...hours.map((hour) => hour.complete + hour.failed + hour.cancelled)));
  const clock = (at: number) => formatTime(at, { now: at, zone: zone() }).slice(0, 5);
  const said = `complete ${sum("complete")}, failed ${sum("failed")}, cancelled ${sum("cancelled")}`;
  return (
    <section class="overview-section outcomes" aria-label="Runs by outcome">
      <PaneHead title="Runs by outcome" count="24 h, per hour">
        <span class="legend">
          {KINDS.map((kind) => (
            <span key={kind}>
              <i class={`swatch outcome-${kind}`} aria-hidden="true" />
              {kind} {formatCount(sum(kind))}
            </span>
          ))}
        </span>
        <Button small kind="quiet" pressed={isTable} onClick={() => show(!isTable)}>
          Table
        </Button>
      </PaneHead>
      {isTable ? (
        <table class="plain-table">
          <caption class="hidden-text">Runs by outcome, by hour</caption>
          <thead>
            <tr>
              <th>Hour</th>
              {KINDS.map((kind) => (
                <th key={kind} class="number">
                  {kind}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {hours
              .filter((hour) => KINDS.some((kind) => hour[kind]))
              .map((hour) => (
                <tr key={hour.at}>
                  <td>{clock(hour.at)}</td>
                  {KINDS.map((kind) => (
                    <td key={kind} class="number">
                      {hour[kind]}
                    </td>
                  ))}
                </tr>
              ))}
          </tbody>
        </table>
      ) : (
        <figure class="outcome-chart" role="img" aria-label={`Runs of the last 24 hours: ${said}`}>
          <div class="outcome-scale" aria-hidden="true">
            <span>{most}</span>
            <span>{most / 2 >= 1 ? formatCount(most / 2) : ""}</span>
            <span>0</span>
          </div>
          <div class="outcome-bars" aria-hidden="true">
            {hours.map((hour) => (
              <div
                key={hour.at}
                class="outcome-hour"
                title={`${clock(hour.at)}: ${KINDS.map((kind) => `${hour[kind]} ${kind}`).join(", ")}`}
                onClick={() => navigate(`/tasks?since=${new Date(hour.at).toISOString()}`)}
              >
                {[...KINDS].reverse().map((kind) => (
                  <i key={kind} class={`outcome-${kind}`} style={{ height: `${(hour[kind] / most) * 100}%` }} />
                ))}
              </div>
            ))}
          </div>
          <div class="outcome-axis" aria-hidden="true">
            {[0, 6, 12, 18].map((at) => (
              <span key={at}>{hours[at] ? clock(hours[at].at) : ""}</span>
            ))}
            <span>now</span>
          </div>
        </figure>
      )}
    </section>
  );
}

/** The next number that reads well above a value: 1, 2, 4, 10, 20, 40, 100 … */
function niceCeiling(value: number): number {
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 10].map((step) => step * size).find((step) => step >= value) ?? value;
}
