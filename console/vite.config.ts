import { readFileSync } from "node:fs";

import { defineConfig } from "vitest/config";

const { version } = JSON.parse(readFileSync(new URL("package.json", import.meta.url), "utf-8")) as { version: string };

export default defineConfig({
  base: "/",
  define: { __VERSION__: JSON.stringify(version) },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/harborage/server/console",
    emptyOutDir: true,
    target: "es2022",
    // Every file is a file: a strict content policy forbids data: addresses and inline scripts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  test: { include: ["src/**/*.test.{ts,tsx}"], environment: "node" },
});
