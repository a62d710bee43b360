import { readFileSync } from "node:fs";

import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

import { overBudget } from "./build/budget.ts";

const read = (name: string): string => readFileSync(new URL(name, import.meta.url), "utf-8");
const { version } = JSON.parse(read("package.json")) as { version: string };

/** Fails the build when the first paint of a page became too heavy. */
function budget(): Plugin {
  return {
    name: "budget",
    apply: "build",
    enforce: "post",
    writeBundle(_, bundle) {
      const over = overBudget(bundle, [read("public/theme.js")]);
      if (over.length) throw new Error(`the first paint is too heavy:\n${over.join("\n")}`);
    },
  };
}

export default defineConfig({
  base: "/",
  define: { __VERSION__: JSON.stringify(version) },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  plugins: [budget()],
  build: {
    outDir: "../src/harborage/server/console",
    emptyOutDir: true,
    target: "es2022",
    // Every file is a file: a strict content policy forbids data: addresses and inline scripts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { checks: { pluginTimings: false } },
  },
  test: { include: ["src/**/*.test.{ts,tsx}", "build/**/*.test.ts"], environment: "node" },
});
