import { formatCount, formatDuration } from "../../model/formats.ts";
import { Button } from "../../parts/button.tsx";
import { SearchField } from "../../parts/field.tsx";
import { Facts, Sparkline } from "../../parts/figures.tsx";
import { State, type GlyphName } from "../../parts/glyph.tsx";
import { Moment } from "../../parts/moments.tsx";
import { PaneHead, Split, Toolbar } from "../../parts/pane.tsx";
import { Disconnected, Empty, Failure, NoMatch, PartFailure, SkeletonRows } from "../../parts/states.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { navigate, useQuery } from "../../shell/router.ts";
import { useCall } from "../../wire/resource.ts";
import type { ServerView } from "../../wire/types.ts";

const MOST = 200;
const STATES: Record<string, [GlyphName, string]> = {
  online: ["complete", "Online"],
  reconnecting: ["running", "Reconnecting"],
  auth_pending: ["sign-in", "Needs sign-in"],
  offline: ["cancelled", "Offline"],
  error: ["failed", "Failed"],
};

function ServerState({ server }: { server: ServerView }) {
  const [glyph, word] = STATES[server.state] ?? ["pending", server.state.replaceAll("_", " ")];
  return <State name={glyph} word={word} />;
}

const COLUMNS: readonly Column<ServerView>[] = [
  { name: "Server", width: "minmax(96px,1fr)", phone: "first", cell: (one) => <b>{one.name}</b> },
  { name: "Status", width: "128px", phone: "first", cell: (one) => <ServerState server={one} /> },
  { name: "Endpoint", width: "minmax(0,2fr)", phone: "second", cell: (one) => <code class="soft" title={one.url_or_command}>{one.url_or_command}</code> },
  { name: "Tools", width: "48px", align: "end", phone: "hide", cell: (one) => formatCount(one.tool_count) },
  { name: "Latency", width: "64px", align: "end", phone: "hide", cell: (one) => (one.recent_latency_ms ? formatDuration(one.recent_latency_ms) : "") },
  { name: "Errors", width: "72px", align: "end", from: "medium", phone: "hide", cell: (one) => <span class={one.error_rate_per_min ? "is-failed" : "faint"}>{one.error_rate_per_min.toFixed(1)}/min</span> },
];
const keyOf = (one: ServerView): string => one.name;

/** The MCP servers whose tools agents may call; `rest` is the one whose detail is open. */
export default function McpPage({ rest }: PageProps) {
  const [words, search] = useQuery("q");
  const [listed, reload] = useCall("mcp.servers.list", { page_size: MOST }, { everyMs: 10_000 });
  if (listed.state === "disconnected") return <Disconnected />;
  if (listed.state === "loading") return <SkeletonRows noun="MCP servers" />;
  if (listed.state === "failed") return <Failure noun="MCP servers" error={listed.error} onRetry={reload} />;
  const { servers } = listed.data;
  if (!servers.length) return <Empty title="No MCP servers">An agent gets one by its tools, or by the configuration's list of MCP servers.</Empty>;
  const shown = servers.filter((one) => `${one.name} ${one.url_or_command} ${one.state}`.toLowerCase().includes(words.toLowerCase()));
  const current = servers.find((one) => one.name === rest);
  return (
    <>
      <Toolbar label="Filters">
        <SearchField label="Filter by name or state" value={words} onChange={search} />
      </Toolbar>
      <Split label="Server" rail={current && <Server key={current.name} server={current} />}>
        {shown.length ? (
          <Table label="MCP servers" rows={shown} columns={COLUMNS} keyOf={keyOf} current={rest} onCurrent={(one) => navigate(`/mcp-connections/${encodeURIComponent(one.name)}`, { replace: true })} describe={keyOf} />
        ) : (
          <NoMatch noun="server" onClear={() => search("")} />
        )}
      </Split>
    </>
  );
}

function Server({ server }: { server: ServerView }) {
  const [health, reload] = useCall("mcp.servers.health", { name: server.name }, { everyMs: 15_000 });
  const told = health.state === "ready" ? health.data : null;
  return (
    <>
      <div class="pane-head">
        <ServerState server={server} />
        <h2 class="cut">{server.name}</h2>
        <span class="grow" />
        <Button kind="quiet" icon="close" label="Close" onClick={() => navigate("/mcp-connections", { replace: true })} />
      </div>
      {health.state === "failed" && <PartFailure noun="Its health" error={health.error} onRetry={reload} />}
      {told && told.handshake_latency_buckets.length > 1 && (
        <div class="section">
          <b>Handshake</b> <Sparkline values={told.handshake_latency_buckets.map((bucket) => bucket.latency_ms)} label="Handshake in milliseconds" />
        </div>
      )}
      <div class="section">
        <Facts
          label="Server"
          rows={[
            ["Endpoint", <code>{server.url_or_command}</code>],
            ["Transport", server.transport],
            ["Tools", formatCount(server.tool_count)],
            ["Resources", formatCount(server.resource_count)],
            ["Prompts", formatCount(server.prompt_count)],
            ["Discovered", <Moment at={server.last_discovery_at} />],
            ["Sign-ins", server.oauth_binding_count ? formatCount(server.oauth_binding_count) : ""],
            ["Raw HTML", server.raw_html_trusted ? "trusted" : "not trusted"],
          ]}
        />
      </div>
      {told && told.reconnect_history.length > 0 && (
        <>
          <PaneHead title="Reconnects" count={told.reconnect_history.length} level={3} />
          <ul class="section">
            {told.reconnect_history.map((one) => (
              <li key={one.occurred_at}>
                <Moment at={one.occurred_at} /> <span class="soft">{one.reason}</span>
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}
