import { formatClock, formatDeadline, formatDuration, formatTime, isoTime, shortId } from "../model/formats.ts";
import { parseTime } from "../model/events/wire.ts";
import { look } from "../shell/look.ts";
import { now } from "../shell/clock.ts";
import { Due } from "./figures.tsx";
import { CopyButton } from "./states.tsx";

/** The zone that times are shown in; undefined is that of the browser. */
export function zone(): string | undefined {
  return look.value.times === "utc" ? "UTC" : undefined;
}

function momentOf(at: string | number | null | undefined): number | null {
  return typeof at === "string" ? parseTime(at) : (at ?? null);
}

/** A moment, as long as it must be; the whole of it in its title. Nothing for a time that is not set. */
export function Moment({ at, exact = false }: { at: string | number | null | undefined; exact?: boolean }) {
  const moment = momentOf(at);
  if (moment === null) return null;
  const isRelative = look.value.times === "relative" && !exact;
  const text = isRelative
    ? `${formatDuration(Math.max(0, now.value - moment))} ago`
    : exact
      ? formatClock(moment, zone())
      : formatTime(moment, { now: now.peek(), zone: zone() });
  return (
    <time dateTime={new Date(moment).toISOString()} title={isoTime(moment, zone())}>
      {text}
    </time>
  );
}

/** Time that goes on: from a moment to now, once a second. */
export function Since({ at }: { at: string | number | null | undefined }) {
  const moment = momentOf(at);
  return moment === null ? null : <span>{formatDuration(Math.max(0, now.value - moment))}</span>;
}

/** Until when somebody may answer; nothing where no deadline is set. */
export function Deadline({ deadline, opened }: { deadline: string | number | null | undefined; opened: string | number | null | undefined }) {
  const until = momentOf(deadline);
  if (until === null) return null;
  const said = formatDeadline(until, momentOf(opened) ?? now.value, now.value);
  return <Due text={said.text} left={said.left} late={said.isUrgent} />;
}

/** The last six characters of an id; its title and copying give all. */
export function Id({ id, href }: { id: string; href?: string }) {
  const short = <code title={id}>{shortId(id)}</code>;
  return (
    <span class="whole">
      {href ? (
        <a class="link" href={href}>
          {short}
        </a>
      ) : (
        short
      )}
      <CopyButton text={id} label={`Copy ${id}`} />
    </span>
  );
}
