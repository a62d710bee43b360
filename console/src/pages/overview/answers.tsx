import { formatDuration } from "../../model/formats.ts";
import { parseTime } from "../../model/events/wire.ts";
import { ShareBars } from "../../parts/figures.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { useCall } from "../../wire/resource.ts";

const MINUTE = 60_000;
const CLASSES = [
  ["under 5 min", 5 * MINUTE],
  ["5 to 30 min", 30 * MINUTE],
  ["30 min to 4 h", 240 * MINUTE],
  ["over 4 h", Number.POSITIVE_INFINITY],
] as const;

/** How long what waits for a person waits: of the pauses that were answered, the newest hundred. */
export function AnswerTimes() {
  const [answered] = useCall("pause.list", { filter: { status: ["resumed"] }, page_size: 100 }, { everyMs: 60_000 });
  if (answered.state !== "ready") return null;
  const waits = answered.data.snapshots
    .flatMap((one) => {
      const from = parseTime(one.paused_at);
      const to = parseTime(one.resumed_at);
      return from === null || to === null ? [] : to - from;
    })
    .sort((a, b) => a - b);
  if (waits.length === 0) return null;
  const median = waits[Math.floor(waits.length / 2)] ?? 0;
  let below = 0;
  const rows = CLASSES.map(([name, most]) => {
    const count = waits.filter((wait) => wait < most).length - below;
    below += count;
    return { name, value: count, text: count, hot: name === "over 4 h" && count > 0 };
  });
  const part = answered.data.truncated || answered.data.total_rows > waits.length ? `, of the newest ${waits.length}` : "";
  return (
    <section class="overview-section answers" aria-label="People answer in">
      <PaneHead title="People answer in" count={`median ${formatDuration(median)}${part}`} />
      <ShareBars rows={rows} label="How long people take to answer" />
    </section>
  );
}
