import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

import { Notice, SkeletonRows } from "../parts/states.tsx";
import { Toasts } from "../parts/toast.tsx";
import { connection } from "../wire/connection.ts";
import { counts } from "../wire/feed.ts";
import { useKeys } from "./keys.ts";
import { KeysPage } from "./keys-page.tsx";
import { look, setLook } from "./look.ts";
import { Palette } from "./palette.tsx";
import { openPalette, showKeys } from "./palette-state.ts";
import { PAGES, isRunPath, pageOf, type Page, type PageProps } from "./pages.ts";
import { location$, navigate, restOf } from "./router.ts";
import { BottomTabs, MorePage, Sidebar } from "./sidebar.tsx";
import { StatusBar } from "./statusbar.tsx";
import { StreamStrip } from "./strip.tsx";
import { tabTitle } from "./title.ts";
import { TopBar } from "./topbar.tsx";

const loaded = new Map<Page["load"], ComponentType<PageProps>>();

/** The page's code: at once when it was opened before. */
function useLoaded(page: Page | undefined): ComponentType<PageProps> | Error | null {
  const [, again] = useState(0);
  const [failed, fail] = useState<{ of: Page; error: Error } | null>(null);
  useEffect(() => {
    if (!page || loaded.has(page.load)) return;
    let isCurrent = true;
    page.load().then(
      (module) => {
        loaded.set(page.load, module.default);
        if (isCurrent) again((count) => count + 1);
      },
      (error: unknown) => isCurrent && fail({ of: page, error: error instanceof Error ? error : new Error(String(error)) }),
    );
    return () => {
      isCurrent = false;
    };
  }, [page]);
  if (!page) return null;
  return loaded.get(page.load) ?? (failed?.of === page ? failed.error : null);
}

function PageBody({ page, path }: { page: Page | undefined; path: string }) {
  const Body = useLoaded(page);
  if (path === "/more") return <MorePage />;
  if (!page) {
    return (
      <Notice icon="search" title="No such page" actions={<a class="button primary" href="/overview">Overview</a>}>
        The console has nothing at <code>{path}</code>.
      </Notice>
    );
  }
  if (Body instanceof Error) {
    return (
      <Notice glyph="failed" title={`${page.title} could not be loaded`} actions={<a class="button primary" href={path} target="_self">Load the page again</a>}>
        {Body.message}. The server may have been replaced by another version.
      </Notice>
    );
  }
  return Body ? <Body rest={restOf(path, page.path)} /> : <SkeletonRows noun={page.title} />;
}

function useGlobalKeys(): void {
  useKeys("Anywhere", [
    { keys: "mod+k", does: "Search or run a command", run: () => openPalette(), isMovement: true },
    { keys: "?", does: "Show the keys", run: showKeys },
    { keys: "[", does: "Fold the sidebar", run: () => setLook("sidebar", look.value.sidebar === "rail" ? "wide" : "rail") },
    { keys: "/", does: "Filter the list", run: () => document.querySelector<HTMLElement>("[data-search]")?.focus(), isMovement: true },
    { keys: "j", does: "Go into the list", run: () => enterList(), isMovement: true },
    { keys: "k", does: "Go into the list ", run: () => enterList(), isMovement: true },
  ]);
  useKeys(
    "Go to",
    PAGES.filter((page) => page.key).map((page) => ({
      keys: `g ${page.key}`,
      does: page.title,
      run: () => navigate(page.path),
      isMovement: true,
    })),
  );
}

function enterList(): void {
  document.querySelector<HTMLElement>("[data-list] [tabindex='0']")?.focus();
}

/** Where a path ends that is shown as another: one of old, or any page while no runtime is attached. */
export function App() {
  useGlobalKeys();
  const { path } = location$.value;
  const page = pageOf(path);
  const isApart = page?.path === "/settings" || page?.path === "/gallery";
  const mustAttach = connection.value === null && !isApart;
  useEffect(() => {
    if (mustAttach) navigate("/settings", { replace: true });
  }, [mustAttach]);
  useEffect(() => {
    document.title = tabTitle(page?.title ?? "Harborage");
  });
  const title = path === "/more" ? "More" : (page?.title ?? "No such page");
  const isRail = look.value.sidebar === "rail" || isRunPath(path);
  void counts.value;
  return (
    <div class={isRail ? "app is-railed" : "app"}>
      <a class="skip" href="#main">
        Skip to content
      </a>
      <Sidebar />
      <main class="main" id="main" tabIndex={-1}>
        <TopBar title={title} />
        <StreamStrip />
        <div class="page" key={page?.load ? page.path + page.title : path}>
          {!mustAttach && <PageBody page={page} path={path} />}
        </div>
      </main>
      <BottomTabs />
      <StatusBar />
      <Palette />
      <KeysPage />
      <Toasts />
    </div>
  );
}
