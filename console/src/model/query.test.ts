import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  clearFilters,
  emptyQuery,
  isFiltered,
  queryRows,
  readQuery,
  selectRange,
  toggleFilter,
  toggleSelected,
  toggleSort,
  withText,
  writeQuery,
  type ListQuery,
  type QuerySpec,
} from "./query.ts";

const SPEC: QuerySpec = {
  filters: {
    status: { kind: "many", choices: ["running", "failed", "complete"] },
    agent: { kind: "many" },
    parent: { kind: "one" },
    pending: { kind: "flag" },
    page: { kind: "text" },
  },
  sorts: ["started", "cost"],
  defaultSort: { key: "started", isDescending: true },
};

const word = fc.string({ unit: "grapheme", minLength: 1, maxLength: 12 });
const query: fc.Arbitrary<ListQuery> = fc.record({
  filters: fc
    .record({
      status: fc.subarray(["running", "failed", "complete"]),
      agent: fc.uniqueArray(word, { maxLength: 4 }),
      parent: fc.array(word, { maxLength: 1 }),
      pending: fc.constantFrom<string[]>([], ["1"]),
      page: fc.array(word, { maxLength: 1 }),
    })
    .map((all) => Object.fromEntries(Object.entries(all).filter(([, values]) => values.length > 0))),
  text: fc.oneof(fc.constant(""), word),
  sort: fc.option(fc.record({ key: fc.constantFrom("started", "cost"), isDescending: fc.boolean() })),
  page: fc.integer({ min: 1, max: 1_000_000 }),
  size: fc.constantFrom(25, 50, 100),
  selected: fc.uniqueArray(word, { maxLength: 5 }),
  current: fc.oneof(fc.constant(""), word),
});

describe("the address of a list", () => {
  it("gives back the query that made it", () => {
    fc.assert(fc.property(query, (one) => void expect(readQuery(writeQuery(one, SPEC), SPEC)).toEqual(one)));
  });

  it("is the same for equal queries, and stays when it is read and written again", () => {
    fc.assert(
      fc.property(fc.webQueryParameters(), (search) => {
        const once = writeQuery(readQuery(search, SPEC), SPEC);
        expect(writeQuery(readQuery(once, SPEC), SPEC)).toBe(once);
      }),
    );
  });

  it("is empty for the page as it opens", () => {
    expect(writeQuery(emptyQuery(SPEC), SPEC)).toBe("");
    expect(readQuery("", SPEC)).toEqual(emptyQuery(SPEC));
  });

  it("can be read by people", () => {
    const one = withText(toggleFilter(toggleFilter(emptyQuery(SPEC), "status", "failed"), "status", "running"), "tea order");
    expect(writeQuery(one, SPEC)).toBe("status=running&status=failed&q=tea+order");
  });

  it("drops what the page does not have", () => {
    const read = readQuery("status=exploded&other=1&sort=size&page=-3&size=7&pending=yes", SPEC);
    expect(read).toEqual(emptyQuery(SPEC));
  });
});

describe("changes of a query", () => {
  const start = { ...emptyQuery(SPEC), page: 4, selected: ["a"] };

  it("go back to the first page and drop what was ticked", () => {
    expect(toggleFilter(start, "agent", "x")).toMatchObject({ page: 1, selected: [], filters: { agent: ["x"] } });
    expect(toggleFilter(toggleFilter(start, "agent", "x"), "agent", "x").filters).toEqual({});
    expect(isFiltered(clearFilters(withText(start, "tea")))).toBe(false);
  });

  it("sort down, up, and as the page does", () => {
    const down = toggleSort(start, "cost", SPEC);
    const up = toggleSort(down, "cost", SPEC);
    expect([down.sort, up.sort, toggleSort(up, "cost", SPEC).sort]).toEqual([
      { key: "cost", isDescending: true },
      { key: "cost", isDescending: false },
      SPEC.defaultSort,
    ]);
  });

  it("tick single rows and ranges", () => {
    const ids = ["a", "b", "c", "d"];
    const one = toggleSelected(emptyQuery(SPEC), "b");
    expect(selectRange(one, ids, "d").selected).toEqual(["b", "c", "d"]);
    expect(selectRange(emptyQuery(SPEC), ids, "c").selected).toEqual(["c"]);
    expect(toggleSelected(one, "b").selected).toEqual([]);
  });
});

describe("rows that the browser has", () => {
  const rows = [
    { id: "1", status: "running", agent: "a", cost: 3, tags: ["x"], isHot: true },
    { id: "2", status: "failed", agent: "b", cost: null, tags: [], isHot: false },
    { id: "3", status: "failed", agent: "a", cost: 12, tags: ["x", "y"], isHot: false },
  ];
  const reader = {
    values: {
      status: (row: (typeof rows)[number]) => row.status,
      cost: (row: (typeof rows)[number]) => row.cost,
      tags: (row: (typeof rows)[number]) => row.tags,
      pending: (row: (typeof rows)[number]) => row.isHot,
    },
    text: (row: (typeof rows)[number]) => `${row.agent} ${row.status}`,
  };
  const ids = (one: Partial<ListQuery>): string[] =>
    queryRows(rows, { ...emptyQuery({ filters: {} }), ...one }, reader).map((row) => row.id);

  it("are filtered, searched and sorted, unknown values last", () => {
    expect(ids({ filters: { status: ["failed"] } })).toEqual(["2", "3"]);
    expect(ids({ filters: { tags: ["y", "z"] } })).toEqual(["3"]);
    expect(ids({ filters: { pending: ["1"] } })).toEqual(["1"]);
    expect(ids({ text: "B FAIL" })).toEqual(["2"]);
    expect(ids({ sort: { key: "cost", isDescending: true } })).toEqual(["3", "1", "2"]);
    expect(ids({ sort: { key: "cost", isDescending: false } })).toEqual(["1", "3", "2"]);
  });
});
