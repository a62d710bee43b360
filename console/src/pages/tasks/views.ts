import type { SavedView } from "./query.ts";

const PREFIX = "harborage.views.";

export function isSavedViews(value: unknown): value is SavedView[] {
  return Array.isArray(value) && value.every((one) => typeof one?.name === "string" && typeof one?.search === "string");
}

/** The views that somebody kept in this browser, for one page. */
export function keptViews(place: string): SavedView[] {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(PREFIX + place) ?? "[]");
    return isSavedViews(value) ? value : [];
  } catch {
    return [];
  }
}

export function keepViews(place: string, views: readonly SavedView[]): void {
  localStorage.setItem(PREFIX + place, JSON.stringify(views));
}
