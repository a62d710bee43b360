/** How the state of a list or page stands in its address, so that every view is a link. */

export type FilterKind = "many" | "one" | "flag" | "text";

export interface FilterSpec {
  readonly kind: FilterKind;
  /** Values that are not among these are dropped; without it every value is taken. */
  readonly choices?: readonly string[];
}

/** What a page keeps in its address. */
export interface QuerySpec {
  readonly filters: Readonly<Record<string, FilterSpec>>;
  readonly sorts?: readonly string[];
  readonly defaultSort?: Sort | null;
  readonly defaultSize?: number;
}

export interface Sort {
  readonly key: string;
  readonly isDescending: boolean;
}

export interface ListQuery {
  /** Only those that are set; a flag is "1". */
  readonly filters: Readonly<Record<string, readonly string[]>>;
  readonly text: string;
  readonly sort: Sort | null;
  readonly page: number;
  readonly size: number;
  /** The rows that are ticked. */
  readonly selected: readonly string[];
  /** The row whose details are shown, "" for none. */
  readonly current: string;
}

export const PAGE_SIZES = [25, 50, 100] as const;
const MOST_VALUES = 200;
const MOST_LENGTH = 512;
const MOST_PAGE = 1_000_000;
/** Keys of the address that are no filters; a filter of such a name gets "f." before it. */
const OWN_KEYS: readonly string[] = ["q", "sort", "page", "size", "x", "at"];

export function emptyQuery(spec: QuerySpec): ListQuery {
  return {
    filters: {},
    text: "",
    sort: spec.defaultSort ?? null,
    page: 1,
    size: defaultSize(spec),
    selected: [],
    current: "",
  };
}

function defaultSize(spec: QuerySpec): number {
  return spec.defaultSize ?? 50;
}

/** Read the part of an address behind "?". What does not fit the page is dropped. */
export function readQuery(search: string, spec: QuerySpec): ListQuery {
  const params = new URLSearchParams(search);
  const filters = Object.entries(spec.filters).flatMap(([name, filter]): [string, string[]][] => {
    const values = readValues(params.getAll(keyOf(name)), filter);
    return values.length ? [[name, values]] : [];
  });
  return {
    filters: Object.fromEntries(filters),
    text: (params.get("q") ?? "").slice(0, MOST_LENGTH),
    sort: readSort(params.get("sort"), spec),
    page: wholeNumber(params.get("page"), 1, MOST_PAGE) ?? 1,
    size: PAGE_SIZES.find((size) => String(size) === params.get("size")) ?? defaultSize(spec),
    selected: unique(params.getAll("x")),
    current: (params.get("at") ?? "").slice(0, MOST_LENGTH),
  };
}

/** The address of a query, without "?"; "" for the page as it opens. Equal queries have equal addresses. */
export function writeQuery(query: ListQuery, spec: QuerySpec): string {
  const params = new URLSearchParams();
  for (const [name, filter] of Object.entries(spec.filters)) {
    for (const value of readValues(query.filters[name] ?? [], filter)) params.append(keyOf(name), value);
  }
  if (query.text) params.set("q", query.text);
  if (!isSameSort(query.sort, spec.defaultSort ?? null)) params.set("sort", sortText(query.sort));
  if (query.page > 1) params.set("page", String(query.page));
  if (query.size !== defaultSize(spec)) params.set("size", String(query.size));
  for (const id of unique(query.selected)) params.append("x", id);
  if (query.current) params.set("at", query.current);
  return params.toString();
}

function keyOf(name: string): string {
  return OWN_KEYS.includes(name) || name.startsWith("f.") ? `f.${name}` : name;
}

function readValues(values: readonly string[], filter: FilterSpec): string[] {
  const known = unique(values).filter((value) => value !== "" && (filter.choices?.includes(value) ?? true));
  if (filter.kind === "flag") return known.includes("1") ? ["1"] : [];
  if (filter.kind === "many") return filter.choices ? filter.choices.filter((choice) => known.includes(choice)) : known;
  return known.slice(0, 1);
}

function unique(values: readonly string[]): string[] {
  return [...new Set(values)].filter((value) => value !== "" && value.length <= MOST_LENGTH).slice(0, MOST_VALUES);
}

function wholeNumber(text: string | null, least: number, most: number): number | null {
  if (text === null || !/^\d{1,9}$/.test(text)) return null;
  const number = Number(text);
  return number >= least && number <= most ? number : null;
}

function readSort(text: string | null, spec: QuerySpec): Sort | null {
  if (text === "none") return null;
  const key = text?.replace(/^-/, "") ?? "";
  if (text === null || !spec.sorts?.includes(key)) return spec.defaultSort ?? null;
  return { key, isDescending: text.startsWith("-") };
}

function sortText(sort: Sort | null): string {
  return sort ? `${sort.isDescending ? "-" : ""}${sort.key}` : "none";
}

function isSameSort(left: Sort | null, right: Sort | null): boolean {
  return sortText(left) === sortText(right);
}

// ── Changes: each goes back to the first page, and what was ticked or open there does not stay behind ────────────────

export function withFilter(query: ListQuery, name: string, values: readonly string[]): ListQuery {
  const { [name]: _, ...others } = query.filters;
  const filters = values.length ? { ...others, [name]: [...values] } : others;
  return { ...query, filters, page: 1, selected: [] };
}

export function toggleFilter(query: ListQuery, name: string, value: string): ListQuery {
  const known = query.filters[name] ?? [];
  return withFilter(query, name, known.includes(value) ? known.filter((other) => other !== value) : [...known, value]);
}

export function withText(query: ListQuery, text: string): ListQuery {
  return { ...query, text, page: 1, selected: [] };
}

export function clearFilters(query: ListQuery): ListQuery {
  return { ...query, filters: {}, text: "", page: 1, selected: [] };
}

/** Whether an empty list is empty by its filters, and not for good. */
export function isFiltered(query: ListQuery): boolean {
  return query.text !== "" || Object.keys(query.filters).length > 0;
}

/** Sort by a column: first downwards, then upwards, then as the page does by itself. */
export function toggleSort(query: ListQuery, key: string, spec: QuerySpec): ListQuery {
  const isCurrent = query.sort?.key === key;
  const next = !isCurrent ? { key, isDescending: true } : query.sort?.isDescending ? { key, isDescending: false } : (spec.defaultSort ?? null);
  return { ...query, sort: next, page: 1 };
}

export function toggleSelected(query: ListQuery, id: string): ListQuery {
  const isSelected = query.selected.includes(id);
  return { ...query, selected: isSelected ? query.selected.filter((other) => other !== id) : [...query.selected, id] };
}

/** Tick every row from the last ticked one to this one, as the page lists them. */
export function selectRange(query: ListQuery, ids: readonly string[], id: string): ListQuery {
  const from = ids.indexOf(query.selected[query.selected.length - 1] ?? id);
  const to = ids.indexOf(id);
  if (to < 0) return query;
  const range = ids.slice(Math.min(Math.max(from, 0), to), Math.max(from, to) + 1);
  return { ...query, selected: unique([...query.selected.filter((other) => !range.includes(other)), ...range]) };
}

// ── Rows that the browser has ─────────────────────────────────────────────────────────────────────────────────────────

export type RowValue = string | number | boolean | null;

/** What filters, search and sort read of a row. */
export interface RowReader<T> {
  readonly values: Readonly<Record<string, (row: T) => RowValue | readonly string[]>>;
  readonly text: (row: T) => string;
}

/** The rows that match, sorted; rows without the value of a sort stand last either way. */
export function queryRows<T>(rows: readonly T[], query: ListQuery, reader: RowReader<T>): T[] {
  const words = query.text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => hasWords(reader.text(row), words) && passes(row, query, reader));
  const read = query.sort && reader.values[query.sort.key];
  if (!read) return found;
  const sign = query.sort?.isDescending ? -1 : 1;
  return found
    .map((row, at) => ({ row, at, value: read(row) }))
    .sort((a, b) => compareValues(a.value, b.value, sign) || a.at - b.at)
    .map(({ row }) => row);
}

function hasWords(text: string, words: readonly string[]): boolean {
  const lower = words.length ? text.toLowerCase() : "";
  return words.every((word) => lower.includes(word));
}

function passes<T>(row: T, query: ListQuery, reader: RowReader<T>): boolean {
  return Object.entries(query.filters).every(([name, wanted]) => {
    const read = reader.values[name];
    if (!read) return true;
    const value = read(row);
    if (Array.isArray(value)) return value.some((one) => wanted.includes(String(one)));
    return typeof value === "boolean" ? value === wanted.includes("1") : wanted.includes(String(value ?? ""));
  });
}

function compareValues(left: RowValue | readonly string[], right: RowValue | readonly string[], sign: number): number {
  const [isLeft, isRight] = [left !== null && left !== "", right !== null && right !== ""];
  if (!isLeft || !isRight) return Number(isRight) - Number(isLeft);
  if (typeof left === "number" && typeof right === "number") return sign * (left - right);
  return sign * String(left).localeCompare(String(right), "en", { numeric: true });
}
