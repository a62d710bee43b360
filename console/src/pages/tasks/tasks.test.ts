import { expect, it } from "vitest";

import { readQuery } from "../../model/query.ts";
import { moveOf } from "./board.tsx";
import { filterOf, isNarrowed, JOB_VIEWS, queryOfView, SPEC, TASK_VIEWS, viewSearch, widen } from "./query.ts";

const OWN = { tenant: "acme", user: "ada", isFleet: false };
const NOW = Date.parse("2026-11-28T08:00:00Z");

it("asks the server for what the address says", () => {
  const query = readQuery("status=paused&over=600000&approval=1&q=tea&error=no_path", SPEC);
  expect(filterOf(query, OWN, "background", NOW)).toEqual({
    statuses: ["paused"],
    kinds: ["background"],
    error_classes: ["no_path"],
    latency_above_ms: 600000,
    has_pending_approval: true,
    search: "tea",
    identities: [{ tenant: "acme", user: "ada" }],
  });
  expect(filterOf(readQuery("scope=session", SPEC), OWN, "", NOW)).toEqual({});
});

it("asks the same for a while when a view means the last day", () => {
  const failed = readQuery("since=24h", SPEC);
  expect(filterOf(failed, OWN, "", NOW)).toEqual(filterOf(failed, OWN, "", NOW + 60_000));
  expect(filterOf(readQuery("since=nonsense", SPEC), OWN, "", NOW).since).toBeUndefined();
});

it.each([...TASK_VIEWS, ...JOB_VIEWS])("knows the view $name again by its filters", (view) => {
  const now = readQuery("layout=board&at=r-1&cursor=abc", SPEC);
  const seen = queryOfView(view, now);
  expect(viewSearch(seen)).toBe(view.search);
  expect(seen.filters["layout"]).toEqual(["board"]);
  expect(seen.filters["cursor"]).toBeUndefined();
  expect(isNarrowed(widen(seen))).toBe(false);
});

it("maps a card's way to a control only where there is one", () => {
  expect(moveOf("running", "paused")?.verb).toBe("pause");
  expect(moveOf("paused", "running")?.verb).toBe("resume");
  expect(moveOf("running", "failed")?.verb).toBe("cancel");
  expect(moveOf("complete", "running")).toBeNull();
  expect(moveOf("pending", "running")).toBeNull();
});
