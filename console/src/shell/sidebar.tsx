import { Icon, Mark } from "../parts/icon.tsx";
import { counts } from "../wire/feed.ts";
import { PAGES, pageOf, type Page } from "./pages.ts";
import { location$ } from "./router.ts";

const CLUSTERS = ["", "Runtime", "Execution", "Resources"] as const;

function countOf(page: Page): number {
  const { waiting, running, background } = counts.value;
  if (page.path === "/inbox") return waiting ?? 0;
  if (page.path === "/tasks") return running ?? 0;
  return page.path === "/background-jobs" ? (background ?? 0) : 0;
}

const COUNTED: Record<string, string> = { "/inbox": "waiting", "/tasks": "running", "/background-jobs": "working" };

function Entry({ page, current }: { page: Page; current: string | undefined }) {
  const count = countOf(page);
  return (
    <a href={page.path} title={page.title} aria-current={page.path === current ? "page" : undefined}>
      <Icon name={page.icon} />
      <span class="entry-name">{page.title}</span>
      {count > 0 && (
        <em class={page.path === "/inbox" ? "count is-hot" : "count"}>
          {count}
          <span class="hidden-text"> {COUNTED[page.path]}</span>
        </em>
      )}
    </a>
  );
}

export function Sidebar() {
  const current = pageOf(location$.value.path)?.path;
  return (
    <nav class="sidebar" aria-label="Pages">
      <a class="brand" href="/overview" title="Harborage">
        <Mark />
        <span class="entry-name">Harborage</span>
      </a>
      {CLUSTERS.map((cluster) => (
        <div key={cluster} class="cluster">
          {cluster && <div class="cluster-name">{cluster}</div>}
          {PAGES.filter((page) => page.cluster === cluster).map((page) => (
            <Entry key={page.path} page={page} current={current} />
          ))}
        </div>
      ))}
      <span class="grow" />
      <div class="cluster">
        {PAGES.filter((page) => page.cluster === "Settings").map((page) => (
          <Entry key={page.path} page={page} current={current} />
        ))}
      </div>
    </nav>
  );
}

const ON_PHONE = ["/overview", "/inbox", "/tasks", "/playground"];

/** The sidebar of a phone. */
export function BottomTabs() {
  const current = pageOf(location$.value.path)?.path ?? "";
  const named = ON_PHONE.flatMap((path) => PAGES.find((page) => page.path === path) ?? []);
  const waiting = counts.value.waiting ?? 0;
  return (
    <nav class="bottom-tabs" aria-label="Main">
      {named.map((page) => (
        <a key={page.path} href={page.path} aria-current={page.path === current ? "page" : undefined}>
          <Icon name={page.icon} />
          {page.title}
          {page.path === "/inbox" && waiting > 0 && (
            <em class="count">
              {waiting}
              <span class="hidden-text"> waiting</span>
            </em>
          )}
        </a>
      ))}
      <a href="/more" aria-current={ON_PHONE.includes(current) ? undefined : "page"}>
        <Icon name="more" />
        More
      </a>
    </nav>
  );
}

/** The pages that a phone's tabs have no room for. */
export function MorePage() {
  return (
    <nav class="more" aria-label="More pages">
      {PAGES.filter((page) => !ON_PHONE.includes(page.path)).map((page) => (
        <a key={page.path} href={page.path}>
          <Icon name={page.icon} />
          {page.title}
          <span class="grow" />
          <Icon name="right" />
        </a>
      ))}
    </nav>
  );
}
