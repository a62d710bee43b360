import type { JSX } from "preact";
import type { Glyph as GlyphName, Tone } from "../model/status.ts";

export type { GlyphName, Tone };

const SHAPES: Record<GlyphName, [tone: Tone, word: string, shape: JSX.Element]> = {
  pending: ["idle", "Pending", <circle cx="7" cy="7" r="5" stroke-width="1.5" stroke-dasharray="2 1.93" />],
  running: [
    "running",
    "Running",
    <>
      <circle class="dim" cx="7" cy="7" r="5" stroke-width="1.5" />
      <path class="turning" d="M7 2a5 5 0 015 5" stroke-width="2" />
      <circle class="solid" cx="7" cy="7" r="1.8" />
    </>,
  ],
  waiting: [
    "waiting",
    "Waiting",
    <>
      <path class="amber" d="M7 .8 13.2 7 7 13.2.8 7z" />
      <path class="on-amber" d="M7 4.2v3.4M7 9.6v.2" stroke-width="1.5" />
    </>,
  ],
  paused: [
    "waiting",
    "Paused",
    <>
      <circle cx="7" cy="7" r="5.4" />
      <path d="M5.5 4.8v4.4M8.5 4.8v4.4" stroke-width="1.5" />
    </>,
  ],
  timer: [
    "idle",
    "Waiting",
    <>
      <circle cx="7" cy="7" r="5.2" />
      <path d="M7 4v3l2 1.3" />
    </>,
  ],
  question: [
    "waiting",
    "Waiting",
    <>
      <path class="amber" d="M1.2 2h11.6v7.8H7.6L4.6 12.6V9.8H1.2z" />
      <path class="on-amber" d="M5.8 4.8a1.3 1.3 0 112 1.1c-.5.3-.8.5-.8.9M7 8.2v.1" stroke-width="1.2" />
    </>,
  ],
  "sign-in": [
    "waiting",
    "Waiting",
    <>
      <rect class="amber" x="2.2" y="6" width="9.6" height="6.8" rx="1.2" />
      <path d="M4.4 6V4.4a2.6 2.6 0 015.2 0V6" stroke-width="1.3" />
    </>,
  ],
  complete: [
    "complete",
    "Complete",
    <>
      <circle cx="7" cy="7" r="5.4" stroke-width="1.3" />
      <path d="M4.5 7.2l1.8 1.7L9.6 5.3" stroke-width="1.5" />
    </>,
  ],
  failed: [
    "failed",
    "Failed",
    <>
      <path class="solid" d="M4.3.8h5.4l3.5 3.5v5.4l-3.5 3.5H4.3L.8 9.7V4.3z" />
      <path class="on-fill" d="M4.8 4.8l4.4 4.4M9.2 4.8L4.8 9.2" stroke-width="1.5" />
    </>,
  ],
  cancelled: [
    "idle",
    "Cancelled",
    <>
      <circle cx="7" cy="7" r="5.2" />
      <path d="M3.5 10.5l7-7" />
    </>,
  ],
  interrupted: [
    "idle",
    "Interrupted",
    <>
      <path d="M5.5 2a5.2 5.2 0 00-1.6 9M8.5 12a5.2 5.2 0 001.6-9" stroke-width="1.5" />
      <path d="M7.8 4.2L6 7h2.2L6.3 9.8" stroke-width="1.3" />
    </>,
  ],
  blocked: [
    "failed",
    "Blocked",
    <>
      <rect x="1.5" y="1.5" width="11" height="11" rx="1.5" stroke-width="1.5" />
      <path d="M4.2 7h5.6" stroke-width="2" />
    </>,
  ],
  unknown: [
    "unknown",
    "Unknown outcome",
    <>
      <path d="M1 11.9h12L7 1.4z" />
      <path d="M5.7 6.2a1.4 1.4 0 112.2 1.1c-.5.3-.9.5-.9 1.1M7 10.3v.1" stroke-width="1.2" />
    </>,
  ],
  sent: ["idle", "Sent", <circle cx="7" cy="7" r="3.2" />],
  received: [
    "idle",
    "Received",
    <>
      <circle cx="7" cy="7" r="3.2" />
      <circle class="solid" cx="7" cy="7" r="1.2" />
    </>,
  ],
  applied: [
    "complete",
    "Applied",
    <>
      <circle class="solid" cx="7" cy="7" r="4" />
      <path class="on-fill" d="M5.2 7.2l1.3 1.2L8.9 5.9" stroke-width="1.3" />
    </>,
  ],
  rejected: [
    "failed",
    "Rejected",
    <>
      <circle cx="7" cy="7" r="4" />
      <path d="M5.4 5.4l3.2 3.2M8.6 5.4L5.4 8.6" />
    </>,
  ],
};

export const GLYPHS = Object.keys(SHAPES) as GlyphName[];

export function toneOf(name: GlyphName): Tone {
  return SHAPES[name][0];
}

/** The sign of a state. With `label` it says it to those who do not see it; without, a word stands beside it. */
export function Glyph({ name, label = "" }: { name: GlyphName; label?: string }) {
  const [tone, , shape] = SHAPES[name];
  const said = label ? { role: "img" as const, "aria-label": label } : { "aria-hidden": true as const };
  return (
    <svg class={`glyph is-${tone}`} viewBox="0 0 14 14" {...said}>
      {shape}
    </svg>
  );
}

/** A state: its glyph and its word. */
export function State({ name, word }: { name: GlyphName; word?: string }) {
  const [tone, usual] = SHAPES[name];
  return (
    <span class={`state is-${tone}`}>
      <Glyph name={name} />
      <span>{word ?? usual}</span>
    </span>
  );
}
