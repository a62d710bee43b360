import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { axisTicks } from "./axis.ts";
import { extentOf, LEAST_WIDTH, markAt, timeMap, type Span } from "./time-map.ts";

const S = 1000;
const T0 = 1_795_847_887_000;

const span = fc.record({
  start: fc.double({ min: 0, max: 4e8, noNaN: true }).map((at) => T0 + at),
  length: fc.oneof(
    fc.double({ min: 0, max: 5000, noNaN: true }),
    fc.double({ min: 0, max: 3e8, noNaN: true }),
  ),
  isOpen: fc.boolean(),
  isIdle: fc.boolean(),
});
const drawn = fc.record({
  spans: fc.array(span, { maxLength: 40 }).map((all) =>
    all.map(({ start, length, isOpen, isIdle }): Span => ({ start, end: isOpen ? null : start + length, isIdle })),
  ),
  width: fc.integer({ min: 120, max: 4000 }),
  mode: fc.constantFrom("working" as const, "wall" as const),
});
const NOW = T0 + 8e8;

describe("the map of time", () => {
  it("never goes back, and begins and ends at the edges", () => {
    fc.assert(
      fc.property(drawn, fc.array(fc.double({ min: 0, max: 1, noNaN: true })), ({ spans, width, mode }, places) => {
        const map = timeMap(spans, { width, mode, now: NOW });
        const moments = places.map((place) => map.start + place * (map.end - map.start)).sort((a, b) => a - b);
        const xs = moments.map((moment) => map.x(moment));
        expect(xs).toEqual(xs.toSorted((a, b) => a - b));
        expect(map.x(map.start)).toBe(0);
        expect(map.x(map.end)).toBeCloseTo(width, 6);
      }),
    );
  });

  it("can be inverted", () => {
    fc.assert(
      fc.property(drawn, fc.double({ min: 0, max: 1, noNaN: true }), ({ spans, width, mode }, place) => {
        const map = timeMap(spans, { width, mode, now: NOW });
        const x = place * width;
        expect(map.x(map.t(x))).toBeCloseTo(x, 2);
        const moment = map.start + place * (map.end - map.start);
        const drift = Math.abs(map.t(map.x(moment)) - moment);
        expect(drift).toBeLessThanOrEqual(Math.max(1, (map.end - map.start) * 1e-6));
      }),
    );
  });

  it("draws every span at least 2 px wide, a failed one 8, an unknown one 13, inside of the axis", () => {
    fc.assert(
      fc.property(drawn, fc.constantFrom(...Object.values(LEAST_WIDTH)), ({ spans, width, mode }, least) => {
        const map = timeMap(spans, { width, mode, now: NOW });
        for (const one of spans) {
          const extent = extentOf(map, one.start, one.end ?? NOW, least);
          expect(extent.width).toBeGreaterThanOrEqual(least);
          expect(extent.x).toBeGreaterThanOrEqual(0);
          expect(extent.x + extent.width).toBeLessThanOrEqual(width + 1e-6);
        }
      }),
    );
  });

  it("folds only what is idle in every row, and nothing on the wall clock", () => {
    fc.assert(
      fc.property(drawn, ({ spans, width, mode }) => {
        const map = timeMap(spans, { width, mode, now: NOW });
        if (mode === "wall") expect(map.folds).toEqual([]);
        for (const fold of map.folds) {
          const working = spans.filter((one) => !one.isIdle && one.start < fold.end && (one.end ?? NOW) > fold.start);
          expect(working).toEqual([]);
        }
      }),
    );
  });

  it("keeps folds apart, in order, and at most three fifths of the axis", () => {
    fc.assert(
      fc.property(drawn, ({ spans, width }) => {
        const { folds } = timeMap([...spans, { start: T0, end: T0 + 5, isIdle: false }], { width, now: NOW });
        folds.forEach((fold, at) => at && expect(fold.x).toBeGreaterThan((folds[at - 1]?.x ?? 0) + (folds[at - 1]?.width ?? 0)));
        expect(folds.reduce((sum, fold) => sum + fold.width, 0)).toBeLessThanOrEqual(width * 0.6 + 1e-6);
      }),
    );
  });
});

describe("folds", () => {
  const work = (from: number, to: number): Span => ({ start: T0 + from * S, end: T0 + to * S, isIdle: false });
  const wait = (from: number, to: number | null): Span => ({ start: T0 + from * S, end: to && T0 + to * S, isIdle: true });

  it("are 9 % wide, at most 72 px, and 24 px from the seventh on", () => {
    const spans = Array.from({ length: 9 }, (_, at) => [work(at * 100, at * 100 + 10), wait(at * 100 + 10, at * 100 + 100)]).flat();
    const widths = timeMap(spans, { width: 2000, now: T0 + 900 * S }).folds.map((fold) => Math.round(fold.width));
    expect(widths).toEqual([72, 72, 72, 72, 72, 72, 24, 24, 24]);
    const narrow = timeMap(spans.slice(0, 4), { width: 400, now: T0 + 200 * S }).folds;
    expect(narrow.map((fold) => Math.round(fold.width))).toEqual([36, 36]);
  });

  it("begin beyond 10 s, or 8 % of the working time where that is more", () => {
    const short = [work(0, 20), wait(20, 29), work(29, 40)];
    expect(timeMap(short, { width: 800, now: T0 + 40 * S }).folds).toHaveLength(0);
    const long = [work(0, 20), wait(20, 31), work(31, 40)];
    expect(timeMap(long, { width: 800, now: T0 + 40 * S }).folds).toHaveLength(1);
    const much = [work(0, 600), wait(600, 640), work(640, 700)];
    expect(timeMap(much, { width: 800, now: T0 + 700 * S }).folds).toHaveLength(0);
  });

  it("do not move what is before a wait that goes on", () => {
    const spans = [work(0, 20), wait(20, 60), work(60, 70), wait(70, null)];
    const [early, late] = [75, 90_000].map((now) => timeMap(spans, { width: 800, now: T0 + now * S }));
    for (const at of [0, 10, 20, 40, 60, 70]) {
      expect(late?.x(T0 + at * S)).toBeCloseTo(early?.x(T0 + at * S) ?? -1, 6);
    }
    expect(late?.folds.map((fold) => fold.isOpen)).toEqual([false, true]);
    expect(late?.folds[1]?.x).toBeCloseTo(early?.folds[1]?.x ?? -1, 6);
  });

  it("keep marks 6 px from their edges", () => {
    const map = timeMap([work(0, 20), wait(20, 600), work(600, 610)], { width: 800, now: T0 + 610 * S });
    const [fold] = map.folds;
    for (const at of [19.99, 20, 600, 600.01]) {
      const x = markAt(map, T0 + at * S);
      expect(x <= (fold?.x ?? 0) - 5.9 || x >= (fold?.x ?? 0) + (fold?.width ?? 0) + 5.9).toBe(true);
    }
  });

  it("restart the labels of the axis", () => {
    const map = timeMap([work(0, 31), wait(31, 8000), work(8000, 8012)], { width: 700, now: T0 + 8012 * S });
    const labels = axisTicks(map).map((tick) => tick.label);
    expect(labels.slice(0, 3)).toEqual(["0 s", "5 s", "10 s"]);
    expect(labels).toContain("+5 s");
  });

  it("hold for a run that only waits, and for no span at all", () => {
    expect(timeMap([wait(0, null)], { width: 500, now: T0 + 90 * S }).x(T0 + 90 * S)).toBeCloseTo(500, 6);
    expect(timeMap([], { width: 500, now: T0 }).folds).toEqual([]);
  });
});
