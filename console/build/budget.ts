import { gzipSync } from "node:zlib";

import type { OutputAsset, OutputBundle, OutputChunk } from "rolldown";

/** What the first paint of any page may weigh, in bytes gzipped; fonts are compressed as they are. */
export const BUDGET = { js: 120_000, css: 12_000, fonts: 39_000, all: 200_000 } as const;

type Part = Exclude<keyof typeof BUDGET, "all">;

function weight(content: string | Uint8Array): number {
  return gzipSync(content).length;
}

/** A chunk and what it imports before it runs, each once. */
function closure(bundle: OutputBundle, name: string, found = new Set<string>()): Set<string> {
  const chunk = bundle[name];
  if (chunk?.type !== "chunk" || found.has(name)) return found;
  found.add(name);
  for (const one of chunk.imports) closure(bundle, one, found);
  return found;
}

function cssOf(chunk: OutputChunk): Iterable<string> {
  return (chunk as OutputChunk & { viteMetadata?: { importedCss?: Set<string> } }).viteMetadata?.importedCss ?? [];
}

/** What the pages of a build weigh when each is the first that is opened, and where that is too much. */
export function overBudget(bundle: OutputBundle, otherScripts: readonly string[] = []): string[] {
  const chunks = Object.values(bundle).filter((one): one is OutputChunk => one.type === "chunk");
  const entry = chunks.find((one) => one.isEntry);
  if (!entry) return ["the build has no entry"];
  const assets = Object.values(bundle).filter((one): one is OutputAsset => one.type === "asset");
  const fonts = assets.filter((one) => one.fileName.endsWith(".woff2")).reduce((sum, one) => sum + one.source.length, 0);
  const before = otherScripts.reduce((sum, text) => sum + weight(text), 0);
  return chunks
    .filter((one) => one.isDynamicEntry)
    .flatMap((page) => {
      const names = [...closure(bundle, entry.fileName), ...closure(bundle, page.fileName)];
      const own = [...new Set(names)].map((name) => bundle[name] as OutputChunk);
      const css = [...new Set(own.flatMap((chunk) => [...cssOf(chunk)]))].map((name) => bundle[name] as OutputAsset);
      const parts: Record<Part, number> = {
        js: before + own.reduce((sum, chunk) => sum + weight(chunk.code), 0),
        css: css.reduce((sum, one) => sum + weight(one.source), 0),
        fonts,
      };
      const all = parts.js + parts.css + parts.fonts;
      const over = (Object.keys(parts) as Part[]).filter((part) => parts[part] > BUDGET[part]).map((part) => `${part} ${parts[part]} of ${BUDGET[part]}`);
      if (all > BUDGET.all) over.push(`all ${all} of ${BUDGET.all}`);
      return over.map((text) => `${page.name}: ${text} bytes`);
    });
}
