import { State, type GlyphName } from "../../parts/glyph.tsx";
import type { SessionRow } from "../../wire/types.ts";

/** The states of a session, with the words of a person who looks for one. */
export const STATES: Record<string, [GlyphName, string]> = {
  running: ["running", "Open"],
  paused: ["paused", "Paused"],
  completed: ["complete", "Closed"],
  failed: ["failed", "Failed"],
};

/** The state of a session; one that this console does not know is shown as it came. */
export function SessionState({ row }: { row: SessionRow }) {
  const [glyph, word] = STATES[row.status] ?? ["pending", row.status];
  return row.has_pending_intervention ? <State name="waiting" word="Waits for a person" /> : <State name={glyph} word={word} />;
}
