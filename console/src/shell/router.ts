import { computed, signal } from "@preact/signals";

export interface Place {
  path: string;
  query: URLSearchParams;
}

const place = signal<Place>(here());

/** The path and the query of the address bar. Everything that can be linked to is in it. */
export const location$ = computed(() => place.value);

function here(): Place {
  const at = globalThis.location;
  return { path: at?.pathname ?? "/", query: new URLSearchParams(at?.search ?? "") };
}

/** Go to an address of the console. `replace` leaves no step back. */
export function navigate(address: string, { replace = false }: { replace?: boolean } = {}): void {
  const url = new URL(address, globalThis.location.href);
  if (url.href === globalThis.location.href) return;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  place.value = here();
}

/** One key of the query: its value, "" without one, and what sets it. It leaves no step back. */
export function useQuery(key: string): [string, (value: string) => void] {
  return [place.value.query.get(key) ?? "", (value) => setQuery({ [key]: value })];
}

/** Set several keys of the query at once; "" takes one away. */
export function setQuery(values: Record<string, string>, { replace = true }: { replace?: boolean } = {}): void {
  const query = new URLSearchParams(place.value.query);
  for (const [key, value] of Object.entries(values)) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  const text = query.toString();
  navigate(place.value.path + (text ? `?${text}` : ""), { replace });
}

/** The part of a path behind `prefix`, decoded: `/agents/a%2Fb` is "a/b" behind "/agents". "" without one. */
export function restOf(path: string, prefix: string): string {
  if (!path.startsWith(`${prefix}/`)) return "";
  const rest = path.slice(prefix.length + 1);
  try {
    return decodeURIComponent(rest);
  } catch {
    return rest;
  }
}

/** Whether a click on a link is one that the console follows itself. */
function isOurs(event: MouseEvent, link: HTMLAnchorElement): boolean {
  const isPlain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
  const isElsewhere = link.target || link.hasAttribute("download") || link.origin !== globalThis.location.origin;
  return isPlain && !isElsewhere && !/^\/(v1|artifacts)\//.test(link.pathname) && !event.defaultPrevented;
}

/** Follow links without loading the page again, and the browser's own steps back and forth. */
export function startRouter(): void {
  addEventListener("popstate", () => {
    place.value = here();
  });
  document.addEventListener("click", (event) => {
    const link = (event.target as Element | null)?.closest?.("a");
    if (!link?.href || !isOurs(event, link)) return;
    if (link.hash && link.pathname === globalThis.location.pathname) return;
    event.preventDefault();
    navigate(link.href);
  });
}
