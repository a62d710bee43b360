import { signal } from "@preact/signals";

/** How this browser draws the console. Each is kept here and nowhere else; theme.js reads them before the first paint. */
const DEFAULTS = { theme: "system", density: "standard", motion: "system", times: "local", sidebar: "wide" };

export type Look = typeof DEFAULTS;

function stored(): Look {
  const look = { ...DEFAULTS };
  for (const key of Object.keys(DEFAULTS) as (keyof Look)[]) {
    look[key] = globalThis.localStorage?.getItem(`harborage.look.${key}`) ?? DEFAULTS[key];
  }
  return look;
}

export const look = signal(stored());

export function setLook<K extends keyof Look>(key: K, value: Look[K]): void {
  look.value = { ...look.value, [key]: value };
  localStorage.setItem(`harborage.look.${key}`, value);
  const root = document.documentElement;
  if (key === "theme") value === "system" ? delete root.dataset.theme : (root.dataset.theme = value);
  if (key === "density") value === "standard" ? delete root.dataset.density : (root.dataset.density = value);
  if (key === "motion") value === "none" ? (root.dataset.motion = "none") : delete root.dataset.motion;
}
