import "./tools.css";

import { useState } from "preact/hooks";

import { formatBytes, formatDuration, formatExact, formatPercent, plural } from "../../model/formats.ts";
import { Button, Segments, Tabs } from "../../parts/button.tsx";
import { Facts, ShareBars, Tag } from "../../parts/figures.tsx";
import { SearchField, Select } from "../../parts/field.tsx";
import { Moment } from "../../parts/moments.tsx";
import { Split, Toolbar } from "../../parts/pane.tsx";
import { FoldedText } from "../../parts/rich.tsx";
import { Disconnected, Empty, Failure, NoMatch, PartFailure, SkeletonRows } from "../../parts/states.tsx";
import { Pager, Table, type Column } from "../../parts/table.tsx";
import { setQuery, useQuery } from "../../shell/router.ts";
import { call, type Answer } from "../../wire/client.ts";
import { hasScope } from "../../wire/connection.ts";
import { asWireError } from "../../wire/error.ts";
import { useAsked, useCall } from "../../wire/resource.ts";
import type { ToolRow } from "../../wire/types.ts";

const FACETS = [
  ["transport", "Transport", ["in-proc", "HTTP", "MCP", "A2A", "flow"]],
  ["oauth", "OAuth", ["n/a", "Required", "Bound", "Expired"]],
  ["approval", "Approval", ["auto", "gated", "denied"]],
  ["reliability", "Reliability", ["standard", "guarded", "external"]],
  ["scope", "Scope", ["agent", "tenant"]],
] as const;

const COLUMNS: readonly Column<ToolRow>[] = [
  { name: "Name", width: "minmax(140px,1fr)", phone: "first", cell: (row) => <code>{row.name}</code> },
  { name: "Version", width: "64px", from: "wide", phone: "hide", cell: (row) => <span class="faint">{row.version}</span> },
  { name: "Scope", width: "64px", from: "wide", phone: "hide", cell: (row) => row.scope },
  { name: "Transport", width: "84px", phone: "second", cell: (row) => row.transport },
  { name: "OAuth", width: "72px", from: "medium", phone: "hide", cell: (row) => (/required|expired/i.test(row.oauth_status) ? <Tag tone="waiting">{row.oauth_status}</Tag> : <span class="faint">{row.oauth_status}</span>) },
  { name: "Approval", width: "64px", phone: "first", cell: (row) => <Policy name={row.approval_policy} /> },
  { name: "Reliability", width: "80px", from: "wide", phone: "hide", cell: (row) => row.reliability_tier },
  { name: "Last used", width: "80px", align: "end", phone: "second", cell: (row) => <LastUsed at={row.last_used_at} /> },
];

function Policy({ name }: { name: string }) {
  if (name === "gated") return <Tag tone="waiting">gated</Tag>;
  return name === "denied" ? <Tag tone="failed">denied</Tag> : <span class="soft">{name}</span>;
}

function LastUsed({ at }: { at: string }) {
  return at && !at.startsWith("0001") ? <Moment at={at} /> : <span class="faint">never</span>;
}

/** What agents can do: each tool with how it is reached, who has to approve it, and how well it works. */
export default function ToolsPage() {
  const [search] = useQuery("q");
  const [current, open] = useQuery("tool");
  const [rowsText] = useQuery("rows");
  const [pageText] = useQuery("page");
  const chosen = FACETS.map(([key]) => useQuery(key));
  const [transport, oauth, approval, reliability, scope] = chosen.map(([value]) => (value ? [value] : []));
  const size = Number(rowsText) || 50;
  const page = Number(pageText) || 1;
  const filter = { search, transports: transport ?? [], oauth_statuses: oauth ?? [], approval_policies: approval ?? [], reliability_tiers: reliability ?? [], scopes: scope ?? [] };
  const [tools, reload] = useCall("tools.list", { filter, page, page_size: size });
  const isFiltered = Boolean(search || chosen.some(([value]) => value));
  const clear = () => setQuery({ q: "", transport: "", oauth: "", approval: "", reliability: "", scope: "", page: "" });
  if (tools.state === "disconnected") return <Disconnected />;
  if (tools.state === "failed") return <Failure noun="tools" error={tools.error} onRetry={reload} />;
  return (
    <>
      <Toolbar label="Filters">
        <SearchField label="Filter by name" value={search} onChange={(value) => setQuery({ q: value, page: "" })} />
        {FACETS.map(([key, name, values], at) => (
          <span key={key} class="facet">
            <Select label={name} value={chosen[at]?.[0] ?? ""} choices={[["", `${name}: any`], ...values.map((one) => [one, one] as const)]} onChange={(value) => setQuery({ [key]: value, page: "" })} />
          </span>
        ))}
        <span class="grow" />
        {tools.state === "ready" && <Counts of={tools.data.aggregates} />}
        <Button small kind="quiet" icon="replay" onClick={reload}>
          Refresh
        </Button>
      </Toolbar>
      {tools.state === "loading" ? (
        <SkeletonRows noun="tools" />
      ) : tools.data.tools.length === 0 ? (
        isFiltered ? (
          <NoMatch noun="tool" onClear={clear} />
        ) : (
          <Empty title="No tool is registered">Give an agent one: a function with <code>@tool</code>, or a server of MCP.</Empty>
        )
      ) : (
        <Split label="Tool" rail={current && <ToolRail key={current} id={current} onChanged={reload} />}>
          <Table label="Tools" rows={tools.data.tools} columns={COLUMNS} keyOf={(row) => row.id} current={current || undefined} onCurrent={(row) => open(row.id)} describe={(row) => row.name} total={tools.data.total_rows} />
          <Pager
            from={(page - 1) * size + 1}
            to={(page - 1) * size + tools.data.tools.length}
            total={tools.data.total_rows}
            rows={size}
            onRows={(rows) => setQuery({ rows: String(rows), page: "" })}
            onPrevious={page > 1 ? () => setQuery({ page: String(page - 1) }) : undefined}
            onNext={page < tools.data.page_count ? () => setQuery({ page: String(page + 1) }) : undefined}
          />
        </Split>
      )}
    </>
  );
}

function Counts({ of }: { of: Answer<"tools.list">["aggregates"] }) {
  const parts = [plural(of.total, "tool"), of.pending_approval > 0 && `${of.pending_approval} gated`, of.awaiting_oauth > 0 && `${of.awaiting_oauth} await sign-in`];
  return <span class="faint small hide-small">{parts.filter(Boolean).join(" · ")}</span>;
}

type Part = "overview" | "inputs" | "outputs" | "approval";

function ToolRail({ id, onChanged }: { id: string; onChanged: () => void }) {
  const [tabText, pick] = useQuery("tab");
  const tab = (["overview", "inputs", "outputs", "approval"].includes(tabText) ? tabText : "overview") as Part;
  const [told, reload] = useAsked(
    async (signal) => {
      const [described, measured, content] = await Promise.all([
        call("tools.describe", { id }, { signal }),
        call("tools.metrics", { id, window: "24h" }, { signal }),
        call("tools.content_stats", { id }, { signal }),
      ]);
      return { described, measured, content };
    },
    `tool ${id}`,
  );
  const status = told.state === "ready" ? told.data.measured.status : "";
  return (
    <>
      <div class="rail-head">
        <h2>
          <code>{id}</code>
        </h2>
        {status && <Tag {...(/degraded|offline/i.test(status) ? { tone: "failed" as const } : {})}>{status}</Tag>}
        <span class="grow" />
        <Button small icon="play" why="No method runs a tool by itself">
          Try
        </Button>
        <Button small kind="quiet" icon="close" label="Close" onClick={() => setQuery({ tool: "", tab: "" })} />
      </div>
      <Tabs<Part>
        label="Parts of the tool"
        value={tab}
        onChange={pick}
        choices={[
          { value: "overview", text: "Overview" },
          { value: "inputs", text: "Inputs" },
          { value: "outputs", text: "Outputs" },
          { value: "approval", text: "Approval" },
        ]}
      />
      {told.state === "loading" && <SkeletonRows noun="the tool" rows={4} />}
      {told.state === "failed" && <PartFailure noun="The tool" error={told.error} onRetry={reload} />}
      {told.state === "ready" && (
        <div role="tabpanel" aria-label={tab}>
          {tab === "overview" && <Overview {...told.data} />}
          {tab === "inputs" && <Schema text={told.data.described.args_schema} none="It takes no arguments." />}
          {tab === "outputs" && <Schema text={told.data.described.out_schema} none="It declares no shape of what it returns." />}
          {tab === "approval" && (
            <Approval
              row={told.data.described.tool}
              onChanged={() => {
                reload();
                onChanged();
              }}
            />
          )}
        </div>
      )}
    </>
  );
}

function Overview({ described, measured, content }: { described: Answer<"tools.describe">; measured: Answer<"tools.metrics">; content: Answer<"tools.content_stats"> }) {
  const { tool } = described;
  const rates = [["1 h", measured.error_rate_1h], ["24 h", measured.error_rate_24h], ["7 d", measured.error_rate_7d]] as const;
  const shown = Object.entries({ ...described.display_modes, ...content.negotiated_display }).map(([mime, mode]) => `${mime}: ${mode}`);
  return (
    <>
      {tool.description && <p class="section plain-text">{tool.description}</p>}
      <section class="section">
        <h3>
          Error rate <span class="faint">{plural(measured.invocations, "call")} in 24 h</span>
        </h3>
        {measured.invocations + measured.error_rate_7d > 0 ? (
          <ShareBars label="Error rate" rows={rates.map(([name, value]) => ({ name, value, text: formatPercent(value), limit: 1, hot: value > 0.05 }))} />
        ) : (
          <p class="faint small">Nobody called it in 24 hours.</p>
        )}
      </section>
      <Sizes content={content} />
      <section class="section small">
        <Facts
          rows={[
            ["Side effect", described.side_effect],
            ["Retries", [plural(described.retry_attempts, "attempt"), described.timeout_ms > 0 && `${formatDuration(described.timeout_ms)} each`].filter(Boolean).join(", ")],
            ["Loading", described.loading_mode],
            ["Transport", tool.transport],
            ["Version", tool.version],
            ["Owner", tool.owner],
            ["Sign-in", [tool.oauth_status !== "n/a" && tool.oauth_status, described.oauth_binding_scope, ...described.auth_scopes].filter(Boolean).join(", ")],
            ["Shown as", shown.join(", ")],
            ["Examples", described.examples.join(" · ")],
            ["Last used", <LastUsed key="l" at={tool.last_used_at} />],
          ]}
        />
      </section>
    </>
  );
}

function Sizes({ content }: { content: Answer<"tools.content_stats"> }) {
  const most = Math.max(0, ...content.histogram.map((one) => one.count));
  if (most === 0) return null;
  const note = content.heavy_count > 0 ? `${formatExact(content.heavy_count)} over ${formatBytes(content.heavy_threshold_bytes)}, kept as artifacts` : `artifacts from ${formatBytes(content.heavy_threshold_bytes)} on`;
  const says = content.histogram.map((one) => `up to ${formatBytes(one.max_bytes)}: ${one.count}`).join(", ");
  return (
    <section class="section">
      <h3>
        Size of what it returns <span class="faint">{note}</span>
      </h3>
      <div class="sizes" role="img" aria-label={says}>
        {content.histogram.map((one) => (
          <span key={one.max_bytes} class={one.max_bytes > content.heavy_threshold_bytes ? "is-heavy" : undefined} title={`${one.count} up to ${formatBytes(one.max_bytes)}`}>
            <i style={{ height: `${(one.count / most) * 100}%` }} />
            <small>{formatBytes(one.max_bytes)}</small>
          </span>
        ))}
      </div>
    </section>
  );
}

function Schema({ text, none }: { text: string; none: string }) {
  if (!text) return <p class="section faint">{none}</p>;
  return (
    <div class="section">
      <FoldedText text={pretty(text)} />
    </div>
  );
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

type PolicyName = "auto" | "gated" | "denied";

function Approval({ row, onChanged }: { row: ToolRow; onChanged: () => void }) {
  const [problem, tell] = useState("");
  const why = hasScope("admin") ? "" : "Only a token with the scope admin changes this";
  const set = (policy: PolicyName) => {
    tell("");
    call("tools.set_approval_policy", { id: row.id, policy }).then(onChanged, (error: unknown) => {
      const said = asWireError(error);
      tell(`${said.code}: ${said.message}`);
    });
  };
  const choice = (value: PolicyName) => ({ value, text: value, ...(why ? { why } : {}) });
  return (
    <section class="section">
      <h3>
        Approval <span class="faint">applies to new calls</span>
      </h3>
      <Segments<PolicyName> label="Approval" value={row.approval_policy as PolicyName} choices={[choice("auto"), choice("gated"), choice("denied")]} onChange={set} />
      <p class="faint small">{why || "auto: runs by itself · gated: a person approves each call · denied: is never run"}</p>
      {problem && (
        <p class="is-failed small" role="alert">
          {problem}
        </p>
      )}
    </section>
  );
}
