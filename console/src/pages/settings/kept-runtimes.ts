import { signal } from "@preact/signals";

/** A runtime that this browser was attached to. Its token is not kept: attaching again asks for one. */
export interface KeptRuntime {
  name: string;
  baseUrl: string;
  tenant: string;
  user: string;
}

const KEY = "harborage.runtimes";

function stored(): KeptRuntime[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? (kept as KeptRuntime[]).filter((one) => typeof one.baseUrl === "string") : [];
  } catch {
    return [];
  }
}

export const keptRuntimes = signal<readonly KeptRuntime[]>(stored());

const isSame = (a: KeptRuntime, b: KeptRuntime) => a.baseUrl === b.baseUrl && a.tenant === b.tenant && a.user === b.user;

function keep(all: readonly KeptRuntime[]): void {
  keptRuntimes.value = all;
  localStorage.setItem(KEY, JSON.stringify(all));
}

export function keepRuntime(made: KeptRuntime): void {
  keep([made, ...keptRuntimes.value.filter((one) => !isSame(one, made))]);
}

export function dropRuntime(gone: KeptRuntime): void {
  keep(keptRuntimes.value.filter((one) => !isSame(one, gone)));
}
