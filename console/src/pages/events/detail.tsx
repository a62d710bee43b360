import { useState } from "preact/hooks";

import { artifactOf } from "../../model/event-list.ts";
import { exactLines } from "../../model/approval/exact.ts";
import { formatBytes, formatExact } from "../../model/formats.ts";
import { isObject, type Json } from "../../model/json.ts";
import { runOf, type WireEvent } from "../../model/events/wire.ts";
import { Button, ButtonLink } from "../../parts/button.tsx";
import { EventSign } from "../../parts/events.tsx";
import { Facts } from "../../parts/figures.tsx";
import { Id, Moment, Since } from "../../parts/moments.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { FoldedText } from "../../parts/rich.tsx";
import { CopyButton } from "../../parts/states.tsx";
import { call } from "../../wire/client.ts";
import { asWireError, type WireError } from "../../wire/error.ts";

/** One event: whose, of which run, and its payload as it came. */
export function EventDetail({ event, onFilter, onClose }: { event: WireEvent; onFilter?: (name: string, value: string) => void; onClose: () => void }) {
  const run = runOf(event);
  const payload = (event.payload ?? null) as Json;
  const extra = event.extra ?? {};
  const step = isObject(payload) && typeof payload["Step"] === "number" && payload["Step"] > 0 ? payload["Step"] : null;
  return (
    <>
      <div class="pane-head">
        <EventSign type={event.type} />
        <h2 class="cut">
          <code>{event.type}</code>
        </h2>
        <span class="grow" />
        <Button kind="quiet" icon="close" label="Close" onClick={onClose} />
      </div>
      <div class="section">
        <Facts
          label="Event"
          rows={[
            ["Time", <><Moment at={event.occurred_at} exact /> <span class="faint"><Since at={event.occurred_at} /> ago</span></>],
            ["Sequence", formatExact(event.sequence)],
            ["Identity", `${event.tenant} / ${event.user} / ${event.session}`],
            ["Run", run && <><Id id={run} href={`/tasks/${encodeURIComponent(run)}`} />{step !== null && `, step ${step}`}</>],
            ["Source", extra["source"]],
            ["Span", extra["span_id"]],
          ]}
        />
        <div class="event-actions">
          {onFilter && (
            <>
              <Button small icon="filter" onClick={() => onFilter("type", event.type)}>
                Only this type
              </Button>
              {run && (
                <Button small icon="filter" onClick={() => onFilter("run", run)}>
                  Only this run
                </Button>
              )}
              <Button small icon="filter" onClick={() => onFilter("tenant", event.tenant)}>
                Only this tenant
              </Button>
              <ButtonLink small href={`/sessions/${encodeURIComponent(event.session)}`}>
                Open session
              </ButtonLink>
            </>
          )}
          {run && (
            <ButtonLink small href={`/tasks/${encodeURIComponent(run)}${step === null ? "" : `?step=${step}`}`}>
              Open run
            </ButtonLink>
          )}
        </div>
      </div>
      <PaneHead title="Payload" level={3}>
        <CopyButton text={exactLines(payload)} label="Copy the payload" />
      </PaneHead>
      <div class="event-payload">
        {artifactOf(event) ? <CutPayload event={event} /> : payload === null ? <p class="faint">It has none.</p> : <FoldedText text={exactLines(payload)} />}
      </div>
    </>
  );
}

/** A payload that was too large for the stream: where the whole of it is. */
function CutPayload({ event }: { event: WireEvent }) {
  const [asked, say] = useState<{ url: string } | WireError | "asking" | null>(null);
  const reference = isObject(event.payload) && isObject(event.payload["artifact_ref"]) ? event.payload["artifact_ref"] : {};
  const size = reference["size"];
  const open = async (): Promise<void> => {
    say("asking");
    try {
      const scope = { tenant: event.tenant, user: event.user, session: event.session };
      const found = await call("artifacts.get_ref", { scope, id: artifactOf(event) }, { session: event.session });
      say({ url: found.presigned_url });
    } catch (error) {
      say(asWireError(error));
    }
  };
  return (
    <>
      <p class="soft">
        Too large for the stream{typeof size === "number" && `: ${formatBytes(size)}`}. It is kept as artifact <code>{artifactOf(event)}</code>.
      </p>
      {asked instanceof Error && (
        <p class="small" role="alert">
          <code>{asked.code}</code>: {asked.code === "presign_unsupported" ? "this store of artifacts makes no links" : asked.message}
        </p>
      )}
      {asked && asked !== "asking" && !(asked instanceof Error) ? (
        <a class="link" href={asked.url} target="_blank" rel="noopener noreferrer">
          Download
        </a>
      ) : (
        <Button small icon="link" why={asked === "asking" ? "The link is on its way" : undefined} onClick={() => void open()}>
          {asked instanceof Error ? "Try again" : "Get a link"}
        </Button>
      )}
    </>
  );
}
