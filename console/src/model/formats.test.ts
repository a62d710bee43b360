import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  cutText,
  foldText,
  formatBytes,
  formatChange,
  formatClock,
  formatCount,
  formatDeadline,
  formatDuration,
  formatMoney,
  formatPercent,
  formatTime,
  isoTime,
  plural,
  shortId,
  spokenDuration,
} from "./formats.ts";

const NOW = Date.UTC(2026, 10, 28, 14, 20, 0);
const style = { now: NOW, zone: "UTC" };
const DAY = 86_400_000;

describe("durations", () => {
  it.each([
    [0, "0 ms"],
    [0.4, "<1 ms"],
    [518, "518 ms"],
    [999.6, "1.0 s"],
    [4400, "4.4 s"],
    [59_960, "1 m"],
    [80_000, "1 m 20 s"],
    [3_599_800, "1 h"],
    [8_040_000, "2 h 14 m"],
    [DAY * 3 + 4 * 3_600_000, "3 d 4 h"],
    [DAY - 1, "1 d"],
    [-4400, "−4.4 s"],
  ])("%d ms is %s", (ms, text) => expect(formatDuration(ms)).toBe(text));

  it("are said in words for ears", () => {
    expect(spokenDuration(8_040_000)).toBe("2 hours 14 minutes");
    expect(spokenDuration(1000)).toBe("1.0 second");
  });

  it("have two units at most, never a full unit in the lower one, and are near the truth", () => {
    const sizes: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: DAY };
    fc.assert(
      fc.property(fc.double({ min: 1, max: 400 * DAY, noNaN: true }), (ms) => {
        const parts = [...formatDuration(ms).matchAll(/([\d.]+) (ms|s|m|h|d)/g)];
        expect(parts.length).toBeLessThanOrEqual(2);
        const value = parts.reduce((sum, [, count, unit]) => sum + Number(count) * (sizes[unit as string] ?? 0), 0);
        expect(Math.abs(value - ms)).toBeLessThanOrEqual(Math.max(0.5, ms * 0.051));
        const [, second] = parts;
        if (second) expect(Number(second[1])).toBeLessThan(second[2] === "h" ? 24 : 60);
      }),
    );
  });
});

describe("moments", () => {
  it("are as long as they must be", () => {
    expect(formatTime(Date.UTC(2026, 10, 28, 14, 17, 1), style)).toBe("14:17:01");
    expect(formatTime(Date.UTC(2026, 10, 23, 14, 17), style)).toBe("Mon 14:17");
    expect(formatTime(Date.UTC(2026, 10, 9, 14, 17), style)).toBe("9 Nov 14:17");
    expect(formatTime(Date.UTC(2025, 10, 9, 14, 17), style)).toBe("9 Nov 2025 14:17");
  });

  it("follow the zone", () => {
    const moment = Date.UTC(2026, 10, 28, 23, 30);
    expect(formatTime(moment, { now: moment, zone: "Asia/Kolkata" })).toBe("05:00:00");
    expect(isoTime(moment, "Asia/Kolkata")).toBe("2026-11-29T05:00:00+05:30");
    expect(isoTime(moment, "America/New_York")).toBe("2026-11-28T18:30:00-05:00");
    expect(formatClock(moment + 4, "UTC")).toBe("23:30:00.004");
  });

  it("in titles say exactly when it was", () => {
    const zones = fc.constantFrom("UTC", "Europe/Vienna", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu");
    fc.assert(
      fc.property(fc.integer({ min: Date.UTC(1975, 0, 1) / 1000, max: Date.UTC(2100, 0, 1) / 1000 }), zones, (second, zone) => {
        expect(Date.parse(isoTime(second * 1000, zone))).toBe(second * 1000);
      }),
    );
  });
});

describe("deadlines", () => {
  it.each([
    [38.9 * 60_000, "38 min left", false],
    [3.5 * 3_600_000, "3 h 30 m left", false],
    [42_900, "42 s left", true],
    [4 * 60_000, "4 min left", true],
    [-1, "the deadline has passed", true],
  ])("with %d ms left say %s", (rest, text, isUrgent) => {
    expect(formatDeadline(NOW + rest, NOW - 3_600_000, NOW)).toMatchObject({ text, isUrgent });
  });

  it("are urgent in the last tenth", () => {
    expect(formatDeadline(NOW + 2 * 3_600_000, NOW - 30 * 3_600_000, NOW).isUrgent).toBe(true);
  });
});

describe("numbers", () => {
  it.each([
    [0, "0"],
    [1204, "1,204"],
    [9999, "9,999"],
    [50_512, "50.5k"],
    [999_499, "999k"],
    [999_600, "1.00M"],
    [1_310_000, "1.31M"],
    [-1204, "−1,204"],
  ])("%d is %s", (count, text) => expect(formatCount(count)).toBe(text));

  it.each([
    [0.163, "run", "$0.16"],
    [0.019, "step", "$.019"],
    [0.019, "exact", "$0.0190"],
    [1204.5, "run", "$1,204.50"],
    [0.0001, "run", "<$0.01"],
    [1.5, "step", "$1.500"],
    [-0.04, "run", "−$0.04"],
    [0, "run", "$0.00"],
  ] as const)("$%d in a %s is %s", (usd, place, text) => expect(formatMoney(usd, place)).toBe(text));

  it.each([
    [0.094, "9.4 %"],
    [0.09, "9 %"],
    [0.1234, "12 %"],
    [0, "0 %"],
    [0.0001, "<0.1 %"],
  ])("%d is %s", (share, text) => expect(formatPercent(share)).toBe(text));

  it("keep their size and order in counts", () => {
    const value = (text: string): number => {
      const scale = text.endsWith("k") ? 1e3 : text.endsWith("M") ? 1e6 : text.endsWith("G") ? 1e9 : 1;
      return parseFloat(text.replaceAll(",", "").replace("−", "-")) * scale;
    };
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1e12 }), (count) => {
        const text = formatCount(count);
        expect(text.length).toBeLessThanOrEqual(6);
        expect(Math.abs(value(text) - count)).toBeLessThanOrEqual(count * 0.006);
      }),
    );
  });

  it("of bytes and changes", () => {
    expect([412, 4100, 1_300_000].map(formatBytes)).toEqual(["412 B", "4.1 KB", "1.3 MB"]);
    expect(formatChange(-1200, formatDuration)).toBe("−1.2 s");
    expect(formatChange(0.04, (usd) => formatMoney(usd))).toBe("+$0.04");
    expect([plural(1, "step"), plural(2, "step")]).toEqual(["1 step", "2 steps"]);
  });
});

describe("texts", () => {
  it("show an id by its last six", () => expect(shortId("01M8GE06BGEDQNAH4NCHQ7TX2M")).toBe("…Q7TX2M"));

  it("are cut at their end and never longer than asked for", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", maxLength: 80 }), fc.integer({ min: 2, max: 40 }), (text, most) => {
        expect([...cutText(text, most)].length).toBeLessThanOrEqual(most);
        expect(cutText(text, most)).not.toContain("\n");
      }),
    );
  });

  it("fold beyond 20 lines or 4 KB", () => {
    expect(foldText("a\n".repeat(19))).toBeNull();
    expect(foldText("a\n".repeat(400))?.label).toBe("Show all 800 characters");
    expect(foldText("x".repeat(5000))?.shown).toHaveLength(4096);
  });
});
