import "./agents.css";

import type { ComponentChildren } from "preact";

import { formatCount, formatDuration, formatMoney, plural } from "../../model/formats.ts";
import { Button, ButtonLink, Tabs } from "../../parts/button.tsx";
import { Facts, ShareBars, Tag } from "../../parts/figures.tsx";
import { SearchField, Select } from "../../parts/field.tsx";
import { Moment } from "../../parts/moments.tsx";
import { Split, Toolbar } from "../../parts/pane.tsx";
import { CopyButton, Disconnected, Empty, Failure, NoMatch, PartFailure, SkeletonRows } from "../../parts/states.tsx";
import { Pager, Table, type Column } from "../../parts/table.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { navigate, setQuery, useQuery } from "../../shell/router.ts";
import { call, type Answer } from "../../wire/client.ts";
import { useAsked, useCall, type Resource } from "../../wire/resource.ts";
import type { AgentRow } from "../../wire/types.ts";

const COLUMNS: readonly Column<AgentRow>[] = [
  { name: "Name", width: "minmax(140px,1fr)", phone: "first", cell: (row) => <b>{row.name}</b> },
  { name: "Status", width: "72px", phone: "first", cell: (row) => <Status name={row.status} /> },
  { name: "Health", width: "72px", from: "medium", phone: "hide", cell: (row) => <Status name={row.health} /> },
  { name: "Planner", width: "72px", phone: "second", cell: (row) => row.planner_type },
  { name: "Model", width: "minmax(80px,1fr)", from: "medium", phone: "second", cell: (row) => <code>{row.model}</code> },
  { name: "Hosting", width: "72px", from: "wide", phone: "hide", cell: (row) => row.hosting },
  { name: "Tools", width: "48px", align: "end", phone: "hide", cell: (row) => row.tools_count },
  { name: "MCP", width: "40px", from: "wide", align: "end", phone: "hide", cell: (row) => row.mcp_count },
  { name: "Registered", width: "84px", from: "wide", align: "end", phone: "hide", cell: (row) => <Moment at={row.registered_at} /> },
];

function Status({ name }: { name: string }) {
  const isBad = /fail|unhealthy|unavailable|degraded/.test(name);
  return isBad ? <Tag tone="failed">{name}</Tag> : <span class="soft">{name}</span>;
}

const STATUSES = [["", "Status: any"], ["active", "active"], ["paused", "paused"], ["drained", "drained"]] as const;

/** Who works here: each agent with its planner, its model, its tools and what it may spend. */
export default function AgentsPage({ rest }: PageProps) {
  const [search] = useQuery("q");
  const [status] = useQuery("status");
  const [rowsText] = useQuery("rows");
  const [pageText] = useQuery("page");
  const size = Number(rowsText) || 50;
  const page = Number(pageText) || 1;
  const [agents, reload] = useCall("agents.list", { filter: { search, status: status ? [status] : [] }, page, page_size: size });
  const [totals] = useCall("agents.metrics", {});
  if (agents.state === "disconnected") return <Disconnected />;
  if (agents.state === "failed") return <Failure noun="agents" error={agents.error} onRetry={reload} />;
  const query = globalThis.location.search;
  return (
    <>
      <Toolbar label="Filters">
        <SearchField label="Filter by name" value={search} onChange={(value) => setQuery({ q: value, page: "" })} />
        <span class="facet">
          <Select label="Status" value={status} choices={STATUSES} onChange={(value) => setQuery({ status: value, page: "" })} />
        </span>
        <span class="grow" />
        <Totals of={totals} />
        <Button small kind="quiet" icon="replay" onClick={reload}>
          Refresh
        </Button>
      </Toolbar>
      {agents.state === "loading" ? (
        <SkeletonRows noun="agents" />
      ) : agents.data.agents.length === 0 ? (
        search || status ? (
          <NoMatch noun="agent" onClear={() => setQuery({ q: "", status: "", page: "" })} />
        ) : (
          <Empty title="No agent is served">
            Serve one: <code>harborage dev agents.py</code>
          </Empty>
        )
      ) : (
        <Split label="Agent" rail={rest && <AgentRail key={rest} id={rest} />}>
          <Table label="Agents" rows={agents.data.agents} columns={COLUMNS} keyOf={(row) => row.id} current={rest || undefined} onCurrent={(row) => navigate(`/agents/${encodeURIComponent(row.id)}${query}`, { replace: true })} describe={(row) => row.name} total={agents.data.total_rows} />
          <Pager
            from={(page - 1) * size + 1}
            to={(page - 1) * size + agents.data.agents.length}
            total={agents.data.total_rows}
            rows={size}
            onRows={(rows) => setQuery({ rows: String(rows), page: "" })}
            onPrevious={page > 1 ? () => setQuery({ page: String(page - 1) }) : undefined}
            onNext={page < agents.data.page_count ? () => setQuery({ page: String(page + 1) }) : undefined}
          />
        </Split>
      )}
    </>
  );
}

function Totals({ of }: { of: Resource<Answer<"agents.metrics">> }) {
  if (of.state !== "ready") return null;
  const { metrics } = of.data;
  const parts = [`${metrics.active_agents} active`, plural(metrics.running_tasks, "running task"), metrics.total_cost_usd > 0 && formatMoney(metrics.total_cost_usd), metrics.total_tokens > 0 && `${formatCount(metrics.total_tokens)} tokens`];
  return <span class="faint small hide-small">{parts.filter(Boolean).join(" · ")}</span>;
}

type Part = "identity" | "autonomy" | "tools" | "cost" | "more";

function AgentRail({ id }: { id: string }) {
  const [tabText, pick] = useQuery("tab");
  const tab = (["identity", "autonomy", "tools", "cost", "more"].includes(tabText) ? tabText : "identity") as Part;
  const [told, reload] = useAsked(
    async (signal) => {
      const [detail, tools, memory, governance, skills, permissions] = await Promise.all([
        call("agents.get", { id }, { signal }),
        call("agents.tools", { id }, { signal }),
        call("agents.memory", { id }, { signal }),
        call("agents.governance", { id }, { signal }),
        call("agents.skills", { id }, { signal }),
        call("agents.permissions", { id }, { signal }),
      ]);
      return { detail, tools, memory, governance, skills, permissions };
    },
    `agent ${id}`,
  );
  const name = told.state === "ready" ? told.data.detail.agent.name : id;
  return (
    <>
      <div class="rail-head">
        <h2>{name}</h2>
        <span class="grow" />
        <CopyButton text={id} label="Copy the id" />
        <Button small kind="quiet" icon="close" label="Close" onClick={() => navigate(`/agents${globalThis.location.search}`, { replace: true })} />
      </div>
      <div class="agent-actions">
        <ButtonLink small icon="playground" href={`/playground?agent=${encodeURIComponent(name)}`}>
          Open in Playground
        </ButtonLink>
        <Button small kind="quiet" why="No method pauses, drains or restarts an agent; its runs can be paused one by one">
          Pause
        </Button>
      </div>
      <Tabs<Part>
        label="Parts of the agent"
        value={tab}
        onChange={pick}
        choices={[
          { value: "identity", text: "Identity" },
          { value: "autonomy", text: "Autonomy" },
          { value: "tools", text: "Tools", count: told.state === "ready" ? told.data.tools.bindings.length : undefined },
          { value: "cost", text: "Cost" },
          { value: "more", text: "Memory and skills" },
        ]}
      />
      {told.state === "loading" && <SkeletonRows noun="the agent" rows={4} />}
      {told.state === "failed" && <PartFailure noun="The agent" error={told.error} onRetry={reload} />}
      {told.state === "ready" && (
        <div role="tabpanel" aria-label={tab}>
          {tab === "identity" && <Identity detail={told.data.detail} permissions={told.data.permissions} />}
          {tab === "autonomy" && <Autonomy detail={told.data.detail} />}
          {tab === "tools" && <Bindings tools={told.data.tools} />}
          {tab === "cost" && <Cost of={told.data.governance} />}
          {tab === "more" && <More memory={told.data.memory} skills={told.data.skills} />}
        </div>
      )}
    </>
  );
}

function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="section small">
      <h3>{title}</h3>
      {children}
    </section>
  );
}

function Identity({ detail, permissions }: { detail: Answer<"agents.get">; permissions: Answer<"agents.permissions"> }) {
  const { agent } = detail;
  return (
    <>
      {agent.description && <p class="section plain-text">{agent.description}</p>}
      <section class="section small">
        <Facts
          rows={[
            ["Id", <code key="id">{agent.id}</code>],
            ["Status", agent.status],
            ["Health", agent.health],
            ["Hosting", agent.hosting],
            ["Owner", agent.owner],
            ["Incarnation", agent.incarnation],
            ["Version", agent.version_hash && <code>{agent.version_hash.slice(0, 12)}</code>],
            ["Registered", <Moment key="r" at={agent.registered_at} />],
            ["Updated", <Moment key="u" at={agent.updated_at} />],
          ]}
        />
      </section>
      <Section title="Permissions">
        <p class="soft">{permissions.permissions.description}</p>
        <p>{permissions.permissions.allowed_principals?.join(", ")}</p>
      </Section>
    </>
  );
}

function Autonomy({ detail: { config } }: { detail: Answer<"agents.get"> }) {
  const pairs = (of: Record<string, string> | undefined) => Object.entries(of ?? {}).map(([name, value]) => [name.replaceAll("_", " "), value] as const);
  return (
    <section class="section small">
      <Facts rows={[["Planner", config.planner_type], ["Model", config.model && <code>{config.model}</code>], ["Most steps", config.max_steps || undefined], ...pairs(config.planner_config), ...pairs(config.model_policy)]} />
    </section>
  );
}

function Bindings({ tools }: { tools: Answer<"agents.tools"> }) {
  if (tools.bindings.length === 0) return <p class="section faint">It has no tool.</p>;
  return (
    <ul>
      {tools.bindings.map((one) => (
        <li key={one.tool_id} class="binding">
          <a class="link cut grow" href={`/tools?tool=${encodeURIComponent(one.tool_id)}`}>
            <code>{one.tool_name}</code>
          </a>
          <span class="faint small whole">{[one.transport, /^oauth/.test(one.auth_status) && one.auth_status.replaceAll("_", " ")].filter(Boolean).join(" · ")}</span>
        </li>
      ))}
    </ul>
  );
}

function Cost({ of }: { of: Answer<"agents.governance"> }) {
  const { ceilings, rate_limits: rates } = of.governance;
  if (ceilings.length + rates.length === 0) return <p class="section faint">No ceiling and no rate limit is set for it.</p>;
  return (
    <>
      {ceilings.length > 0 && (
        <Section title="Spent, against its ceiling">
          <ShareBars label="Spend" rows={ceilings.map((one) => ({ name: one.tier, value: one.spend_usd, limit: one.limit_usd, text: `${formatMoney(one.spend_usd)} of ${formatMoney(one.limit_usd)}`, hot: one.spend_usd > one.limit_usd * 0.8 }))} />
        </Section>
      )}
      {rates.length > 0 && (
        <Section title="Rate limits">
          <Facts rows={rates.map((one) => [one.tier, [`${one.requests_per_minute} a minute`, one.max_tokens > 0 && `${formatCount(one.max_tokens)} tokens`].filter(Boolean).join(", ")] as const)} />
        </Section>
      )}
    </>
  );
}

function More({ memory, skills }: { memory: Answer<"agents.memory">; skills: Answer<"agents.skills"> }) {
  const { binding } = memory;
  return (
    <>
      <Section title="Memory">
        <Facts rows={[["Strategy", <a key="s" class="link" href="/memory">{binding.strategy_id.replaceAll("_", " ")}</a>], ["Kept", binding.ttl_seconds > 0 ? formatDuration(binding.ttl_seconds * 1000) : undefined], ["Scope", binding.scope]]} />
      </Section>
      <Section title="Skills">
        {skills.skills.length === 0 ? <p class="faint">It has no skill.</p> : <Facts rows={skills.skills.map((one) => [one.name, one.generated ? "written by the agent" : "given"] as const)} />}
      </Section>
    </>
  );
}
