import { connection } from "../wire/connection.ts";
import { droppedCount, eventsPerSecond, newestSequence, streamState } from "../wire/feed.ts";
import { runtime } from "../wire/runtime.ts";
import { now } from "./clock.ts";
import { showKeys } from "./palette-state.ts";

declare const __VERSION__: string;

const WORDS = { connecting: "Connecting", live: "Live", lost: "Lost", refused: "Refused", resting: "Off" } as const;

function Clock() {
  return <span>{new Date(now.value).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" })}</span>;
}

/** Where the console stands: which runtime, which protocol, whether events come, what was lost on the way. */
export function StatusBar() {
  const to = connection.value;
  const stream = streamState.value.kind;
  return (
    <footer class="statusbar">
      <span class="state">
        <i class={`dot is-${!to ? "off" : stream === "live" ? "live" : stream === "lost" || stream === "refused" ? "lost" : "off"}`} aria-hidden="true" />
        <b>{to?.baseUrl ?? "Not connected"}</b>
      </span>
      {runtime.value && (
        <span>
          protocol <b>{runtime.value.protocol_version}</b>
        </span>
      )}
      <span>
        Events stream: <b>{WORDS[stream]}</b>
        {stream === "live" && ` · seq ${newestSequence.value.toLocaleString("en-US")} · ${eventsPerSecond.value.toFixed(1)}/s · ${droppedCount.value} dropped`}
      </span>
      <span class="grow" />
      <Clock />
      <span>
        Console <b>{__VERSION__}</b>
      </span>
      <button type="button" class="keys-hint" onClick={showKeys}>
        <kbd>?</kbd> keys
      </button>
    </footer>
  );
}
