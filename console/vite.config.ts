import { defineConfig } from "vitest/config";

export default defineConfig({
  base: "/",
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
