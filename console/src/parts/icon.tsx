import { ICONS, type IconName } from "./icon-paths.ts";

/** A picture beside a word; never the only label, but for ‹ › × and the collapsed sidebar. */
export function Icon({ name, small = false }: { name: IconName; small?: boolean }) {
  return (
    <svg class={small ? "icon small-icon" : "icon"} viewBox="0 0 16 16" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}

export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 18 18" aria-hidden="true">
      <path d="M14.6 5.2A7 7 0 1014.6 12.8" fill="none" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" />
      <circle cx="10" cy="9" r="2.2" fill="currentColor" />
    </svg>
  );
}
