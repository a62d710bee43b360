import type { ComponentChildren } from "preact";

import type { BarKind } from "../model/bars/bars.ts";
import { Glyph, type GlyphName, type Tone } from "./glyph.tsx";

/** A small word with a ground: a property, not a state. */
export function Tag({ tone, children }: { tone?: Exclude<Tone, "idle">; children: ComponentChildren }) {
  return <span class={tone ? `tag is-tinted-${tone}` : "tag"}>{children}</span>;
}

/** One number of a strip, with what it is of, a line of how it went, and where it leads. */
export function Figure(props: {
  name: string;
  value: ComponentChildren;
  note?: ComponentChildren;
  glyph?: GlyphName;
  line?: readonly number[];
  href: string;
}) {
  return (
    <a class="figure" href={props.href}>
      <span class="figure-name">
        {props.glyph && <Glyph name={props.glyph} />}
        {props.name}
      </span>
      <span class="figure-value">
        {props.value}
        {props.note && <small>{props.note}</small>}
      </span>
      {props.line && <Sparkline values={props.line} label={`${props.name}, lately`} />}
    </a>
  );
}

export function Figures({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <section class="figures" aria-label={label}>
      {children}
    </section>
  );
}

/** A line of values from left to right, over zero. Fewer than two values draw nothing. */
export function Sparkline({ values, label }: { values: readonly number[]; label: string }) {
  if (values.length < 2) return null;
  const most = Math.max(...values, 1);
  const at = (value: number, index: number) =>
    `${((index / (values.length - 1)) * 84).toFixed(1)} ${(23 - (value / most) * 21).toFixed(1)}`;
  const line = values.map(at).join("L");
  return (
    <svg class="sparkline" viewBox="0 0 84 24" preserveAspectRatio="none" role="img" aria-label={`${label}: ${values.at(-1)}`}>
      <path class="area" d={`M0 24L${line}L84 24z`} />
      <path d={`M${line}`} />
    </svg>
  );
}

export interface ShareRow {
  name: string;
  value: number;
  text: ComponentChildren;
  /** What the value is measured against, in the same unit. */
  limit?: number | undefined;
  href?: string | undefined;
  hot?: boolean;
}

/** Names with a bar each, all on one scale that starts at zero. Each leads to what it counts. */
export function ShareBars({ rows, label }: { rows: readonly ShareRow[]; label: string }) {
  const most = Math.max(...rows.map((row) => row.limit ?? row.value), 1e-9);
  return (
    <ul class="share-bars" aria-label={label}>
      {rows.map((row) => (
        <li key={row.name}>
          {row.href ? (
            <a class="cut" href={row.href}>
              {row.name}
            </a>
          ) : (
            <span class="cut">{row.name}</span>
          )}
          <span class="share-track" aria-hidden="true">
            <i class={row.hot ? "hot" : undefined} style={{ width: `${Math.min(100, (row.value / (row.limit || most)) * 100)}%` }} />
          </span>
          <span class="number">{row.text}</span>
        </li>
      ))}
    </ul>
  );
}

/** How much of a time is left: words, and a bar that runs out. Amber until little is left, then red. */
export function Due({ text, left, late }: { text: string; left?: number; late?: boolean }) {
  return (
    <span class={late ? "due is-late" : "due"}>
      {text}
      {left !== undefined && (
        <span class="due-track" aria-hidden="true">
          <i style={{ width: `${Math.max(0, Math.min(1, left)) * 100}%` }} />
        </span>
      )}
    </span>
  );
}

/** Names and values, one a line. A value that is undefined takes its name with it: what is not known is not shown. */
export function Facts({ rows, label }: { rows: readonly (readonly [string, ComponentChildren])[]; label?: string }) {
  return (
    <dl class="facts-list" aria-label={label}>
      {rows
        .filter(([, value]) => value !== undefined && value !== null && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

/** A bar's fill: what it stands for, or that it goes on now. */
export type BarFill = BarKind | "live";

export const BAR_WORDS: Record<BarFill, string> = {
  model: "model",
  tool: "tool",
  effect: "tool with effects",
  child: "child run",
  await: "waits for a run or a time",
  wait: "waits for a person",
  lost: "no worker",
  unknown: "unknown outcome",
  failed: "failed",
  rejected: "rejected",
  live: "now",
  held: "held back",
};

/** What the fills of bars mean: only those that occur. */
export function Legend({ kinds }: { kinds: readonly BarFill[] }) {
  return (
    <span class="legend">
      {kinds.map((kind) => (
        <span key={kind}>
          <span class="track" aria-hidden="true">
            <i class={`bar bar-${kind}`} />
          </span>
          {BAR_WORDS[kind]}
        </span>
      ))}
    </span>
  );
}
