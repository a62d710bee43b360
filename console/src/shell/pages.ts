import type { ComponentType } from "preact";

import type { IconName } from "../parts/icon-paths.ts";

/** What a page gets: the part of the path behind its own, "" without one. */
export interface PageProps {
  rest: string;
}

export interface Page {
  path: string;
  title: string;
  icon: IconName;
  cluster: "" | "Runtime" | "Execution" | "Resources" | "Settings";
  /** The key behind `g`. */
  key?: string;
  load: () => Promise<{ default: ComponentType<PageProps> }>;
}

/** Every page, in the order of the sidebar. A page is a chunk of its own that loads when it is first opened. */
export const PAGES: readonly Page[] = [
  { path: "/inbox", title: "Inbox", icon: "inbox", cluster: "", key: "i", load: () => import("../pages/inbox/index.tsx") },
  { path: "/overview", title: "Overview", icon: "overview", cluster: "Runtime", key: "o", load: () => import("../pages/overview/index.tsx") },
  { path: "/live-runtime", title: "Live Runtime", icon: "live", cluster: "Runtime", key: "l", load: () => import("../pages/live/index.tsx") },
  { path: "/sessions", title: "Sessions", icon: "sessions", cluster: "Execution", key: "s", load: () => import("../pages/sessions/index.tsx") },
  { path: "/tasks", title: "Tasks", icon: "tasks", cluster: "Execution", key: "t", load: () => import("../pages/tasks/index.tsx") },
  { path: "/agents", title: "Agents", icon: "agents", cluster: "Execution", key: "a", load: () => import("../pages/agents/index.tsx") },
  { path: "/tools", title: "Tools", icon: "tools", cluster: "Execution", load: () => import("../pages/tools/index.tsx") },
  { path: "/events", title: "Events", icon: "events", cluster: "Execution", key: "e", load: () => import("../pages/events/index.tsx") },
  { path: "/background-jobs", title: "Background Jobs", icon: "background", cluster: "Execution", load: () => import("../pages/background-jobs/index.tsx") },
  { path: "/playground", title: "Playground", icon: "playground", cluster: "Execution", key: "p", load: () => import("../pages/playground/index.tsx") },
  { path: "/flows", title: "Flows", icon: "flows", cluster: "Resources", load: () => import("../pages/flows/index.tsx") },
  { path: "/memory", title: "Memory", icon: "memory", cluster: "Resources", key: "m", load: () => import("../pages/memory/index.tsx") },
  { path: "/mcp-connections", title: "MCP Connections", icon: "mcp", cluster: "Resources", load: () => import("../pages/mcp-connections/index.tsx") },
  { path: "/artifacts", title: "Artifacts", icon: "artifacts", cluster: "Resources", load: () => import("../pages/artifacts/index.tsx") },
  { path: "/settings", title: "Settings", icon: "settings", cluster: "Settings", load: () => import("../pages/settings/index.tsx") },
];

/** Pages that no sidebar lists: those of one run come before the list of runs. */
const HIDDEN_PAGES: readonly Page[] = [
  { path: "/gallery", title: "Gallery", icon: "eye", cluster: "", load: () => import("../pages/gallery/index.tsx") },
];

const MOVED: readonly [RegExp, string][] = [
  [/^\/(index\.html)?$/, "/overview"],
  [/^\/console\/interventions\/(.+)$/, "/inbox/$1"],
  [/^\/console\/pauses\/(.+)$/, "/inbox/$1"],
  [/^\/console\/(.+)$/, "/$1"],
];

/** Where an address of old, or one of a notification, leads now; "" if it is no such address. */
export function movedTo(path: string): string {
  for (const [from, to] of MOVED) if (from.test(path)) return path.replace(from, to);
  return "";
}

const RUN: Page = { path: "/tasks", title: "Run", icon: "tasks", cluster: "", load: () => import("../pages/run/index.tsx") };
const COMPARE: Page = { ...RUN, title: "Compare", load: () => import("../pages/compare/index.tsx") };

/** The page of a path. */
export function pageOf(path: string): Page | undefined {
  if (/^\/tasks\/[^/]+\/compare\/[^/]+$/.test(path)) return COMPARE;
  if (isRunPath(path)) return RUN;
  return [...PAGES, ...HIDDEN_PAGES].find((page) => path === page.path || path.startsWith(`${page.path}/`));
}

/** Whether a path is one run's: its sidebar is a rail, to leave room for the timeline. */
export function isRunPath(path: string): boolean {
  return /^\/tasks\/[^/]+/.test(path);
}
