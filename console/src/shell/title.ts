import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { counts } from "../wire/feed.ts";

export interface Crumb {
  text: string;
  href: string;
}

/** What the top bar says instead of the page's own name: the name of what is looked at, and what it is part of. */
export const heading = signal<{ title: string; crumbs: readonly Crumb[] } | null>(null);

/** Name what the page shows while it shows it. A child run's parents are crumbs, so that its family can be climbed. */
export function useHeading(title: string, crumbs: readonly Crumb[] = []): void {
  const key = JSON.stringify([title, crumbs]);
  useEffect(() => {
    heading.value = { title, crumbs };
    return () => {
      heading.value = null;
    };
  }, [key]);
}

/** The title of the tab: how many wait for a person stands first. */
export function tabTitle(page: string): string {
  const waiting = counts.value.waiting ?? 0;
  return `${waiting ? `(${waiting}) ` : ""}${heading.value?.title ?? page} · Harborage`;
}
