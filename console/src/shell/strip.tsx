import { Button } from "../parts/button.tsx";
import { Glyph } from "../parts/glyph.tsx";
import { gap, streamState, tryNow } from "../wire/feed.ts";
import { now } from "./clock.ts";

const seconds = (ms: number) => `${Math.max(0, Math.ceil(ms / 1000))} s`;

/** Says that no new facts come, since when, and when the next try is. The page stays as it was. */
export function StreamStrip() {
  const state = streamState.value;
  if (state.kind === "lost" && now.value - state.since > 1_500) {
    return (
      <div class="strip is-tinted-waiting" role="status">
        <Glyph name="running" />
        <div class="grow">
          <b>
            Stream lost {seconds(now.value - state.since)} ago; next try in {seconds(state.nextTry - now.value)}
          </b>
          <p>
            What you see is from {new Date(state.since).toLocaleTimeString("en-GB")}. Controls still work: they are calls, not the stream.
          </p>
        </div>
        <Button small onClick={tryNow}>
          Try now
        </Button>
      </div>
    );
  }
  if (state.kind === "refused") {
    return (
      <div class="strip is-tinted-failed" role="status">
        <Glyph name="failed" />
        <div class="grow">
          <b>The runtime refuses its stream of events</b>
          <p>
            <code>{state.error.code}</code>: {state.error.message}
          </p>
        </div>
      </div>
    );
  }
  return <GapStrip />;
}

function GapStrip() {
  const lost = gap.value;
  if (!lost) return null;
  return (
    <div class="strip" role="status">
      <Glyph name="unknown" />
      <div class="grow">
        <b>{lost.lost ? `${lost.lost} events were dropped, ${lost.from} to ${lost.to}` : "Some events are no longer kept"}</b>
        <p>
          {lost.canReadAgain
            ? "This reader was too slow. The record has them: lists and runs are read anew when they are opened."
            : "The stream went on behind them. Lists and runs are read from the record."}
        </p>
      </div>
      <Button
        small
        onClick={() => {
          gap.value = null;
        }}
      >
        Close
      </Button>
    </div>
  );
}
