import { render } from "preact";

import "./styles/index.css";
import { App } from "./shell/app.tsx";
import { startClock } from "./shell/clock.ts";
import { startKeys } from "./shell/keys.ts";
import { startNotices, tellsWhenHidden } from "./shell/notices.ts";
import { movedTo } from "./shell/pages.ts";
import { navigate, startRouter } from "./shell/router.ts";
import { attachToDevelopment, connection, isDetached, isDevelopment } from "./wire/connection.ts";
import { startCounts, startFeed } from "./wire/feed.ts";
import { startRuns } from "./wire/runs.ts";
import { startRuntime } from "./wire/runtime.ts";

async function start(): Promise<void> {
  const moved = movedTo(location.pathname);
  if (moved) navigate(moved + location.search, { replace: true });
  startRouter();
  if (!connection.value && isDevelopment && !isDetached()) {
    // A refusal is told by the settings page, which is where a console without a runtime ends.
    await attachToDevelopment().catch(() => undefined);
  }
  startKeys();
  startClock();
  startFeed(tellsWhenHidden);
  startNotices();
  startRuns();
  startRuntime();
  startCounts();
  const root = document.getElementById("app");
  if (root) render(<App />, root);
}

void start();
