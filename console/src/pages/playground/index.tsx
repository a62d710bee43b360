import "./playground.css";

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { isEnd } from "../../model/events/run-state.ts";
import { Button } from "../../parts/button.tsx";
import { Select } from "../../parts/field.tsx";
import { Icon } from "../../parts/icon.tsx";
import { Toolbar } from "../../parts/pane.tsx";
import { Disconnected, Failure, SkeletonRows } from "../../parts/states.tsx";
import type { PageProps } from "../../shell/pages.ts";
import { navigate, useQuery } from "../../shell/router.ts";
import { useHeading } from "../../shell/title.ts";
import { connection } from "../../wire/connection.ts";
import { useCall } from "../../wire/resource.ts";
import { hasCapability } from "../../wire/runtime.ts";
import type { AgentRow } from "../../wire/types.ts";
import { Composer } from "./composer.tsx";
import { Rail } from "./rail.tsx";
import { useConversation, type Conversation } from "./source.ts";
import { Turn } from "./turns.tsx";

/** Talk to an agent: what it thinks, does and says comes as it happens, and it can be steered while it works. */
export default function PlaygroundPage({ rest }: PageProps) {
  const session = rest.split("/")[0] || connection.value?.session || "";
  useEffect(() => {
    if (connection.value && !rest) navigate(addressOf(session || newSession()), { replace: true });
  }, [rest, session]);
  if (!connection.value) return <Disconnected />;
  return rest ? <Talk key={session} session={session} /> : <SkeletonRows noun="the conversation" />;
}

function addressOf(session: string): string {
  return `/playground/${encodeURIComponent(session)}${globalThis.location.search}`;
}

const LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789";

function newSession(): string {
  const drawn = crypto.getRandomValues(new Uint8Array(12));
  return `sess-${[...drawn].map((one) => LETTERS[one % LETTERS.length]).join("")}`;
}

function Talk({ session }: { session: string }) {
  const talk = useConversation(session);
  const [agents, reloadAgents] = useCall("agents.list", {});
  const [wanted, choose] = useQuery("agent");
  const user = connection.value?.user ?? "";
  useHeading(session, [{ text: "Playground", href: "/playground" }]);
  const rows = agents.state === "ready" ? agents.data.agents : [];
  const last = talk.turns.at(-1)?.agent;
  const agent = rows.find((one) => one.name === wanted) ?? rows.find((one) => one.name === last) ?? rows[0];
  const remembers = useMemory(agent);
  const [isRailOpen, openRail] = useState(false);

  if (agents.state === "failed") return <Failure noun="agents" error={agents.error} onRetry={reloadAgents} />;
  if (talk.error) return <Failure noun="conversation" error={talk.error} onRetry={talk.reload} />;
  const isLoading = talk.isLoading || agents.state === "loading";
  const why = isLoading ? "The conversation is loading" : rows.length === 0 ? "This runtime serves no agent" : "";
  return (
    <>
      <Toolbar label="Conversation">
        <label class="picked">
          <Icon name="agents" />
          <Select label="Agent" value={agent?.name ?? ""} choices={rows.map((one) => [one.name, one.name] as const)} onChange={choose} />
        </label>
        <SessionPick session={session} />
        <Button small kind="quiet" icon="plus" onClick={() => navigate(addressOf(newSession()))}>
          New session
        </Button>
        <span class="grow" />
        {agent && (
          <span class="faint small hide-small">
            {[agent.model, agent.planner_type].filter(Boolean).join(" · ")}
          </span>
        )}
        <Restart talk={talk} agent={agent?.name ?? ""} />
        <span class="rail-toggle">
          <Button small kind="quiet" pressed={isRailOpen} onClick={() => openRail(!isRailOpen)}>
            Run and settings
          </Button>
        </span>
      </Toolbar>
      <div class={isRailOpen ? "playground is-rail-open" : "playground"}>
        <div class="chat-pane">
          <Scroller talk={talk} isLoading={isLoading} user={user} agent={agent} />
          <Composer
            talk={talk}
            agent={agent?.name ?? ""}
            why={why}
            onStart={async (message) => {
              const withEarlier = hasCapability("run_history") && remembers === false;
              await talk.start({ ...message, withEarlier });
            }}
          />
        </div>
        <aside class="chat-rail" aria-label="Run and next message" tabIndex={0}>
          <Rail talk={talk} />
        </aside>
      </div>
    </>
  );
}

/** Whether an agent remembers its session by itself; undefined until that is known. */
function useMemory(agent: AgentRow | undefined): boolean | undefined {
  const [memory] = useCall("agents.memory", { id: agent?.id ?? "" }, { when: agent !== undefined });
  if (memory.state !== "ready") return undefined;
  return !["", "none"].includes(memory.data.binding.strategy_id);
}

function SessionPick({ session }: { session: string }) {
  const [sessions] = useCall("sessions.list", { filter: {}, limit: 50 });
  const rows = sessions.state === "ready" ? sessions.data.rows : [];
  const user = connection.value?.user;
  const mine = rows.filter((row) => row.user_id === user).map((row) => row.session_id);
  const all = [...new Set([session, ...mine])];
  return (
    <label class="picked">
      <Icon name="sessions" />
      <Select label="Session" value={session} choices={all.map((one) => [one, one] as const)} onChange={(one) => navigate(addressOf(one))} />
    </label>
  );
}

/** The newest question again, as a new run. */
function Restart({ talk, agent }: { talk: Conversation; agent: string }) {
  const last = talk.turns.at(-1);
  const why = !last ? "Nothing was asked yet" : !isEnd(last.status) ? "The run goes on: cancel it first" : undefined;
  return (
    <Button
      small
      kind="quiet"
      icon="replay"
      why={why}
      title="Ask the newest question again, as a new run"
      onClick={() => {
        if (last) void talk.start({ text: last.goal, agent: last.agent || agent, artifacts: [], withEarlier: false }).catch(() => undefined);
      }}
    >
      Restart
    </Button>
  );
}

const NEAR = 48;

/** The conversation, at its end while the reader is: who scrolls up is left where they read. */
function Scroller({ talk, isLoading, user, agent }: { talk: Conversation; isLoading: boolean; user: string; agent: AgentRow | undefined }) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const [isBehind, behind] = useState(false);
  const toEnd = (): void => {
    const shown = box.current;
    if (shown) shown.scrollTop = shown.scrollHeight;
  };
  useLayoutEffect(() => {
    if (isAtEnd.current) toEnd();
  });
  const looked = (): void => {
    const shown = box.current;
    if (!shown) return;
    isAtEnd.current = shown.scrollHeight - shown.scrollTop - shown.clientHeight < NEAR;
    behind(!isAtEnd.current);
  };
  return (
    <div class="chat-scroll" ref={box} onScroll={looked} tabIndex={0} role="log" aria-label="Conversation" aria-live="off">
      <div class="chat">
        {isLoading ? (
          <SkeletonRows noun="the conversation" rows={5} />
        ) : talk.turns.length === 0 ? (
          <div class="chat-empty">
            <h2>Nothing was said yet</h2>
            <p class="soft">
              {agent ? (
                <>
                  Write to <b>{agent.name}</b>
                  {agent.description && <>: {agent.description}</>}
                </>
              ) : (
                "This runtime serves no agent."
              )}
            </p>
          </div>
        ) : (
          talk.turns.map((run) => <Turn key={run.id} run={run} talk={talk} user={user} />)
        )}
      </div>
      {isBehind && (
        <button
          type="button"
          class="button small chat-newest"
          onClick={() => {
            isAtEnd.current = true;
            toEnd();
          }}
        >
          <Icon name="down" small /> Newest
        </button>
      )}
    </div>
  );
}
