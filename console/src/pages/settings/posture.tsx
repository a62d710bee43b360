import type { ComponentChildren } from "preact";

import { formatCount, formatDuration, formatMoney } from "../../model/formats.ts";
import { isObject } from "../../model/json.ts";
import { Facts } from "../../parts/figures.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { Disconnected, Empty, Failure, SkeletonRows } from "../../parts/states.tsx";
import { Tag } from "../../parts/figures.tsx";
import { useCall, type Resource } from "../../wire/resource.ts";

/** A part of the runtime's own account of itself, or why it is not there. */
function Shown<T>(props: { noun: string; of: [Resource<T>, () => void]; children: (data: T) => ComponentChildren }) {
  const [resource, reload] = props.of;
  switch (resource.state) {
    case "disconnected":
      return <Disconnected />;
    case "loading":
      return <SkeletonRows noun={props.noun} rows={4} />;
    case "failed":
      return <Failure noun={props.noun} error={resource.error} onRetry={reload} />;
    case "ready":
      return <>{props.children(resource.data)}</>;
  }
}

export function Runtime() {
  const info = useCall("runtime.info", {}, { everyMs: 30_000 });
  const health = useCall("runtime.health", {}, { everyMs: 30_000 });
  return (
    <>
      <Shown noun="the runtime" of={info}>
        {(said) => (
          <div class="settings-facts">
            <Facts
              rows={[
                ["Instance", <code>{said.instance_id}</code>],
                ["Name", said.display_name],
                ["Build", [said.build_version, said.build_commit !== "unknown" && said.build_commit, said.build_date].filter(Boolean).join(", ")],
                ["Runs on", said.build_go_version],
                ["Protocol", said.protocol_version],
                ["Capabilities", said.capabilities.join(", ")],
                ["Up", formatDuration(said.uptime_seconds * 1000)],
              ]}
            />
          </div>
        )}
      </Shown>
      <Shown noun="the health of the runtime" of={health}>
        {(said) => (
          <div class="settings-facts">
            <Facts
              label="Health"
              rows={said.subsystems.map((one) => [
                one.subsystem,
                <span class="state">
                  <Glyph name={one.status === "ready" ? "complete" : one.status === "degraded" ? "waiting" : "failed"} />
                  {one.status}
                  {one.detail && <span class="faint">{one.detail}</span>}
                </span>,
              ])}
            />
          </div>
        )}
      </Shown>
    </>
  );
}

export function Storage() {
  const drivers = useCall("runtime.drivers", {});
  return (
    <Shown noun="the drivers" of={drivers}>
      {(said) => (
        <div class="settings-facts">
          <Facts rows={said.subsystems.map((one) => [one.subsystem, [one.driver, one.mode].filter(Boolean).join(", ")])} />
        </div>
      )}
    </Shown>
  );
}

export function Models() {
  const posture = useCall("llm.posture", {});
  return (
    <Shown noun="the models" of={posture}>
      {(said) => (
        <>
          {said.mock_mode && (
            <div class="strip is-tinted-waiting">
              <Glyph name="waiting" />
              <div>
                <b>Every model call is answered by a mock</b>
                <p>What agents say here is made up. It costs nothing and reaches no provider.</p>
              </div>
            </div>
          )}
          <div class="settings-facts">
            <Facts rows={[["Provider", said.provider], ["Model", said.model && <code>{said.model}</code>], ["Region", said.region]]} />
            {!said.provider && !said.model && <p class="soft">Each agent names its own model.</p>}
          </div>
        </>
      )}
    </Shown>
  );
}

export function Governance() {
  const posture = useCall("governance.posture", {});
  return (
    <Shown noun="the tiers" of={posture}>
      {(said) => {
        const tiers = Object.entries(said.identity_tiers);
        if (tiers.length === 0) return <Empty title="No tier is set">Runs are limited by their agents alone.</Empty>;
        return (
          <table class="plain-table">
            <caption class="hidden-text">Tiers</caption>
            <thead>
              <tr>
                <th>Tier</th>
                <th class="number">Ceiling</th>
                <th class="number">Max tokens</th>
                <th class="number">Calls</th>
              </tr>
            </thead>
            <tbody>
              {tiers.map(([name, tier]) => (
                <tr key={name}>
                  <td>
                    {name} {name === said.resolved_tier && <Tag>yours</Tag>}
                  </td>
                  <td class="number">{tier.budget_ceiling_usd ? formatMoney(tier.budget_ceiling_usd) : "no limit"}</td>
                  <td class="number">{tier.max_tokens ? formatCount(tier.max_tokens) : "no limit"}</td>
                  <td class="number">{rateOf(tier.rate_limit)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        );
      }}
    </Shown>
  );
}

function rateOf(limit: unknown): string {
  if (!isObject(limit as never)) return "no limit";
  const { refill_tokens: tokens, refill_interval_ms: ms } = limit as { refill_tokens?: number; refill_interval_ms?: number };
  return tokens && ms ? `${formatCount(tokens)} / ${formatDuration(ms)}` : "no limit";
}
