import { signal } from "@preact/signals";

/** Whether the palette is open, and what stands in it. */
export const paletteText = signal<string | null>(null);
export const keysShown = signal(false);

export function openPalette(text = ""): void {
  keysShown.value = false;
  paletteText.value = text;
}

export function closePalette(): void {
  paletteText.value = null;
}

export function showKeys(): void {
  paletteText.value = null;
  keysShown.value = true;
}

export function hideKeys(): void {
  keysShown.value = false;
}
