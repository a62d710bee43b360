import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { spansOfRun } from "../../model/bars/bars.ts";
import { LONG_RUN, rowsOf, type Row } from "../../model/bars/rows.ts";
import type { Moment, RunView } from "../../model/events/views.ts";
import { isEnd } from "../../model/events/run-state.ts";
import type { RunStore } from "../../model/events/store.ts";
import type { Span } from "../../model/time-map.ts";
import { Button } from "../../parts/button.tsx";
import { Legend, type BarFill } from "../../parts/figures.tsx";
import { GridLines, TimelineHead } from "./axis.tsx";
import { mapOfRows, useSight } from "./geometry.ts";
import { Minimap } from "./minimap.tsx";
import { TimelineRow } from "./row.tsx";
import { lookAtRow, travelTo } from "./view.ts";

const BEYOND = 5;

export interface TimelineProps {
  store: RunStore;
  run: RunView;
  effectsOf: (tool: string) => string;
  now: Moment;
  at: Moment | null;
  isWall: boolean;
  /** The id of the current row. */
  current: string;
}

/** The run in time: a row a step, their bars on one axis, what they cost above. Only the rows in sight are drawn. */
export function Timeline(props: TimelineProps) {
  const { store, run, now, at, current } = props;
  const [toggled, toggle] = useState<ReadonlySet<string>>(new Set());
  const box = useRef<HTMLDivElement>(null);
  const sight = useSight(box);
  const isLong = run.steps.length >= LONG_RUN;
  const rows = useMemo(
    () => rowsOf(run, { toggled, childOf: (id) => store.run(id), effectsOf: props.effectsOf, now }),
    [run, toggled, props.effectsOf, now, store, childrenKey(run, store)],
  );
  const first = Math.max(0, Math.floor(sight.top / sight.row) - BEYOND);
  const count = Math.ceil((sight.height - sight.head) / sight.row);
  const last = Math.min(rows.length, first + count + 2 * BEYOND);
  const seen = Math.max(0, Math.min(rows.length - 1, Math.floor(sight.top / sight.row)));
  const inSight = isLong ? rows.slice(seen, seen + count + 1) : rows;
  const spans = useMemo((): Span[] => (isLong ? [] : [...spansOfRun(run, (id) => store.run(id)), ...laterSpans(run)]), [isLong, rows]);
  const map = useMemo(
    () => mapOfRows(inSight, spans, { width: sight.bars, now: run.endedAt ?? now, isWall: props.isWall }),
    [spans, isLong ? inSight : rows, isLong && seen, isLong && count, sight.bars, now, props.isWall, run.endedAt],
  );
  const follow = useFollow(box, rows.length, sight.row, !isEnd(run.status) && at === null);
  const index = rows.findIndex((row) => row.id === current);
  const bring = (to: number): void => bringIntoSight(box.current, to, sight.row, sight.head);
  useBringCurrent(index, current, bring);

  const move = (to: number, isFocus = true): void => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, to))];
    if (!row) return;
    if (to < rows.length - 1) follow.stop();
    lookAtRow(run.id, row.id);
    bring(rows.indexOf(row));
    if (isFocus) requestAnimationFrame(() => box.current?.querySelector<HTMLElement>("[role=row][tabindex='0']")?.focus({ preventScroll: true }));
  };
  const flip = (row: Row): void => {
    const next = new Set(toggled);
    if (!next.delete(row.id)) next.add(row.id);
    toggle(next);
  };
  const onKeyDown = (event: TargetedKeyboardEvent<HTMLDivElement>): void => {
    if (event.altKey || event.metaKey || event.ctrlKey || (event.target as HTMLElement).matches("input")) return;
    if (!onKey(event.key, { rows, index, move, flip, page: Math.max(1, count - 1) })) return;
    event.preventDefault();
    event.stopPropagation();
  };
  const kinds = useMemo(() => kindsOf(rows, map.folds.length > 0), [rows]);
  return (
    <section class="timeline" aria-label="Timeline of the run">
      {isLong && (
        <Minimap run={run} now={now} first={inSight[0]?.step ?? 1} last={inSight.at(-1)?.step ?? 1} current={stepOf(rows[index])} onStep={(step) => move(rows.findIndex((row) => row.depth === 0 && row.step === step), false)} onTop={(share) => box.current?.scrollTo({ top: share * rows.length * sight.row })}>
          {follow.canFollow && !follow.isOn && <FollowButton onFollow={follow.start} />}
        </Minimap>
      )}
      <div ref={box} class={at === null ? "timeline-scroll" : "timeline-scroll is-past"}>
        <TimelineHead run={run} map={map} store={store} now={now} at={at} isLong={isLong} onTravel={travelTo} />
        <div
          class="timeline-rows"
          role="treegrid"
          aria-label="Steps"
          aria-rowcount={rows.length}
          aria-readonly="true"
          style={{ minHeight: `${rows.length * sight.row}px` }}
          onKeyDown={onKeyDown}
          data-list
        >
          <GridLines map={map} at={at} isLive={!isEnd(run.status)} isLong={isLong} onTravel={travelTo} />
          {rows.slice(first, last).map((row, offset) => (
            <TimelineRow
              key={row.id}
              row={row}
              index={first + offset}
              top={(first + offset) * sight.row}
              map={map}
              now={run.endedAt ?? now}
              at={at}
              isCurrent={row.id === current}
              isTabbable={row.id === current || (index < 0 && offset === 0)}
              onPick={() => move(first + offset)}
              onToggle={() => flip(row)}
            />
          ))}
        </div>
        <div class="timeline-probe" aria-hidden="true" />
      </div>
      <footer class="timeline-foot">
        <Legend kinds={kinds} />
        {!isLong && follow.canFollow && !follow.isOn && <FollowButton onFollow={follow.start} />}
      </footer>
    </section>
  );
}

function FollowButton({ onFollow }: { onFollow: () => void }): ComponentChildren {
  return (
    <Button small icon="live" hint="End" onClick={onFollow}>
      Follow
    </Button>
  );
}

function stepOf(row: Row | undefined): number {
  return row?.step ?? 0;
}

/** What changes when a run below this one does. */
function childrenKey(run: RunView, store: RunStore, depth = 0): string {
  if (depth > 6) return "";
  return run.children.map((child) => `${child.id} ${store.run(child.id)?.sequence ?? 0} ${store.run(child.id)?.agent ?? ""} ${childrenKey(store.run(child.id) ?? { ...run, children: [] }, store, depth + 1)}`).join();
}

/** Nothing of a run that ended lies behind its end, and one that goes on reaches to now. */
function laterSpans(run: RunView): Span[] {
  const start = run.startedAt ?? run.spawnedAt;
  return start === null ? [] : [{ start, end: start, isIdle: true }];
}

const ORDER: readonly BarFill[] = ["model", "tool", "effect", "child", "await", "wait", "lost", "unknown", "failed", "rejected", "live", "held"];

function kindsOf(rows: readonly Row[], _hasFolds: boolean): BarFill[] {
  const found = new Set<BarFill>();
  for (const row of rows) {
    for (const bar of row.bars) {
      found.add(bar.kind);
      if (bar.end === null && (bar.kind === "model" || bar.kind === "tool" || bar.kind === "effect")) found.add("live");
    }
    if (found.size === ORDER.length) break;
  }
  return ORDER.filter((kind) => found.has(kind));
}

interface Moves {
  rows: readonly Row[];
  index: number;
  page: number;
  move: (to: number) => void;
  flip: (row: Row) => void;
}

/** What a key does in the rows, as WAI-ARIA has it for a tree of rows; false if it does nothing. */
function onKey(key: string, { rows, index, page, move, flip }: Moves): boolean {
  const row = rows[index];
  const to: Record<string, number> = { j: index + 1, ArrowDown: index + 1, k: index - 1, ArrowUp: index - 1, PageDown: index + page, PageUp: index - page, Home: 0 };
  const next = to[key];
  if (next !== undefined) {
    move(next);
    return true;
  }
  if (!row) return false;
  if (key === "ArrowRight" && row.isExpandable) {
    if (row.isExpanded) move(index + 1);
    else flip(row);
    return true;
  }
  if (key !== "ArrowLeft") return false;
  if (row.isExpandable && row.isExpanded) flip(row);
  else move(rows.findLastIndex((other, at) => at < index && other.depth < row.depth));
  return true;
}

/** Follow what comes: on while the last row is in sight. Scrolling up ends it, End begins it again. */
function useFollow(box: { current: HTMLDivElement | null }, count: number, row: number, canFollow: boolean) {
  const [isOn, turn] = useState(true);
  const wanted = useRef(true);
  const start = (): void => {
    wanted.current = true;
    turn(true);
    const shown = box.current;
    shown?.scrollTo({ top: shown.scrollHeight });
  };
  const stop = (): void => {
    const shown = box.current;
    if (shown && shown.scrollHeight - shown.clientHeight > 4) {
      wanted.current = false;
      turn(false);
    }
  };
  useEffect(() => {
    const shown = box.current;
    if (!shown) return;
    let top = shown.scrollTop;
    const onScroll = (): void => {
      const isAtEnd = shown.scrollTop + shown.clientHeight >= shown.scrollHeight - row;
      if (shown.scrollTop < top - 2 && !isAtEnd) wanted.current = false;
      if (isAtEnd) wanted.current = true;
      top = shown.scrollTop;
      turn(wanted.current);
    };
    shown.addEventListener("scroll", onScroll, { passive: true });
    return () => shown.removeEventListener("scroll", onScroll);
  }, [row]);
  useLayoutEffect(() => {
    const shown = box.current;
    if (canFollow && wanted.current && shown) shown.scrollTop = shown.scrollHeight;
  }, [count, canFollow]);
  useEffect(() => {
    const onFollow = (): void => start();
    addEventListener("run-follow", onFollow);
    return () => removeEventListener("run-follow", onFollow);
  }, []);
  return { isOn, canFollow, start, stop };
}

/** A row that came by the address or a jump is brought into sight once. */
function useBringCurrent(index: number, current: string, bring: (to: number) => void): void {
  const done = useRef("");
  useLayoutEffect(() => {
    if (index < 0 || done.current === current) return;
    done.current = current;
    bring(index);
  }, [index < 0, current]);
}

function bringIntoSight(shown: HTMLDivElement | null, to: number, row: number, head: number): void {
  if (!shown || to < 0) return;
  const top = to * row;
  const bottom = top + row;
  const seen = shown.clientHeight - head;
  if (top < shown.scrollTop) shown.scrollTop = top;
  else if (bottom > shown.scrollTop + seen) shown.scrollTop = bottom - seen;
}
