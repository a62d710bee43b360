import type { ComponentChildren, TargetedPointerEvent } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { findSteps, jumpsOf, minimapOf, type MinimapColumn } from "../../model/bars/strip.ts";
import type { Moment, RunView } from "../../model/events/views.ts";
import { plural } from "../../model/formats.ts";
import { look } from "../../shell/look.ts";
import { Glyph, type GlyphName } from "../../parts/glyph.tsx";
import { SearchField } from "../../parts/field.tsx";

interface MinimapProps {
  run: RunView;
  now: Moment;
  /** The steps in sight. */
  first: number;
  last: number;
  current: number;
  onStep: (step: number) => void;
  /** Bring the part of the run that begins at this share of it into sight. */
  onTop: (share: number) => void;
  children: ComponentChildren;
}

/** A whole long run in one strip, with its failures and waits; below it find and the chips that jump. */
export function Minimap(props: MinimapProps) {
  const { run, first, last } = props;
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  useLayoutEffect(() => {
    const shown = box.current;
    if (!shown) return;
    const measured = new ResizeObserver(() => setWidth(shown.clientWidth));
    measured.observe(shown);
    return () => measured.disconnect();
  }, []);
  const count = run.steps.length;
  // A minimap of a run that goes on is drawn again when a step came, not when a second passed.
  const columns = useMemo(() => minimapOf(run, width / 2, props.now), [run.steps, width]);
  const number = (step: number): number => Math.max(0, run.steps.findIndex((one) => one.number >= step));
  const from = (number(first) / count) * 100;
  const to = ((number(last) + 1) / count) * 100;
  const drag = (event: TargetedPointerEvent<HTMLDivElement>): void => {
    const place = event.currentTarget.getBoundingClientRect();
    const share = (event.clientX - place.left) / place.width - (to - from) / 200;
    props.onTop(Math.max(0, share));
  };
  return (
    <div class="minimap">
      <div
        ref={box}
        class="minimap-strip"
        aria-hidden="true"
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          drag(event);
        }}
        onPointerMove={(event) => event.currentTarget.hasPointerCapture(event.pointerId) && drag(event)}
      >
        <Columns columns={columns} width={width} />
        <i class="minimap-window" style={{ left: `${from}%`, width: `max(6px, ${to - from}%)` }} />
      </div>
      <Jumps {...props} />
    </div>
  );
}

const HEIGHT = 40;

/** Marks may outnumber pixels: they are painted, not elements. */
function Columns({ columns, width }: { columns: readonly MinimapColumn[]; width: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = look.value.theme;
  const [scheme, setScheme] = useState(0);
  useEffect(() => {
    const list = matchMedia("(prefers-color-scheme: dark)");
    const changed = (): void => setScheme((turn) => turn + 1);
    list.addEventListener("change", changed);
    return () => list.removeEventListener("change", changed);
  }, []);
  useLayoutEffect(() => {
    const shown = canvas.current;
    const paint = shown?.getContext("2d");
    if (!shown || !paint) return;
    const scale = devicePixelRatio || 1;
    shown.width = Math.round(width * scale);
    shown.height = Math.round(HEIGHT * scale);
    paint.scale(scale, scale);
    paintColumns(paint, columns, width, getComputedStyle(shown));
  }, [columns, width, theme, scheme]);
  return <canvas ref={canvas} class="minimap-canvas" />;
}

function paintColumns(paint: CanvasRenderingContext2D, columns: readonly MinimapColumn[], width: number, style: CSSStyleDeclaration): void {
  const color = (name: string): string => style.getPropertyValue(name).trim();
  const step = width / Math.max(1, columns.length);
  paint.clearRect(0, 0, width, HEIGHT);
  paint.fillStyle = color("--tool-2");
  columns.forEach((column, at) => {
    const height = Math.max(2, column.height * (HEIGHT - 4));
    paint.fillRect(at * step, HEIGHT - height, Math.max(1, step - 0.4), height);
  });
  const marks = { failed: color("--failed-fill"), unknown: color("--unknown-fill"), wait: color("--waiting-fill") };
  columns.forEach((column, at) => {
    if (!column.mark) return;
    paint.fillStyle = marks[column.mark];
    paint.fillRect(at * step - 0.5, 2, Math.max(2.5, step), HEIGHT - 2);
  });
  if ((columns.at(-1)?.cost ?? 0) === 0) return;
  paint.strokeStyle = color("--fg");
  paint.lineWidth = 1.5;
  paint.beginPath();
  columns.forEach((column, at) => {
    const y = HEIGHT - 2 - column.cost * (HEIGHT - 6);
    if (at === 0) paint.moveTo(0, y);
    else paint.lineTo(at * step, y);
  });
  paint.stroke();
}

function Jumps({ run, current, onStep, children }: MinimapProps) {
  const [query, find] = useState("");
  const jumps = useMemo(() => jumpsOf(run), [run.steps, run.controls]);
  const found = useMemo(() => (query.trim() ? findSteps(run, query) : []), [query, run.steps]);
  const next = (steps: readonly number[]): void => {
    const to = steps.find((step) => step > current) ?? steps[0];
    if (to !== undefined) onStep(to);
  };
  const chip = (glyph: GlyphName, steps: readonly number[], text: string) =>
    steps.length > 0 && (
      <button type="button" class="chip" title="Go to the next one" onClick={() => next(steps)}>
        <Glyph name={glyph} />
        {text}
      </button>
    );
  return (
    <div class="minimap-jumps" role="group" aria-label="Find and jump">
      <form
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          next(found);
        }}
      >
        <SearchField label="Find a step" value={query} onChange={find} />
      </form>
      {query.trim() && <span class="small soft whole">{found.length ? `${plural(found.length, "step")}, Enter goes to the next` : "No step has it"}</span>}
      {chip("failed", jumps.failed, `${jumps.failed.length} failed`)}
      {chip("waiting", jumps.waits, plural(jumps.waits.length, "wait"))}
      {chip("applied", jumps.controls, plural(jumps.controls.length, "control"))}
      <span class="grow" />
      {current > 0 && <span class="small faint whole hide-small">at step {current}</span>}
      {children}
    </div>
  );
}
