import "./inbox.css";

import { useEffect, useRef } from "preact/hooks";

import type { InboxItem } from "../../model/inbox.ts";
import { Segments, Button } from "../../parts/button.tsx";
import { Toolbar } from "../../parts/pane.tsx";
import { MenuButton } from "../../parts/popover.tsx";
import { Disconnected, Empty, Failure, NoMatch, SkeletonRows } from "../../parts/states.tsx";
import { now } from "../../shell/clock.ts";
import { useKeys } from "../../shell/keys.ts";
import type { PageProps } from "../../shell/pages.ts";
import { location$, navigate, useQuery } from "../../shell/router.ts";
import { AnsweredList, WaitingList } from "./list.tsx";
import { Item } from "./item.tsx";
import { useInbox, type Inbox } from "./source.ts";

/** Everything that waits for a person, by deadline, with one of it open beside the list. */
export default function InboxPage({ rest }: PageProps) {
  const inbox = useInbox();
  switch (inbox.listed.state) {
    case "disconnected":
      return <Disconnected />;
    case "loading":
      return <SkeletonRows noun="what waits" />;
    case "failed":
      return <Failure noun="approvals" error={inbox.listed.error} onRetry={inbox.reload} />;
    case "ready":
      return <Ready inbox={inbox} token={rest} />;
  }
}

function Ready({ inbox, token }: { inbox: Inbox; token: string }) {
  const [show, setShow] = useQuery("show");
  const [agent, setAgent] = useQuery("agent");
  const isAnswered = show === "answered";
  const agents = [...new Set(inbox.items.map((one) => one.agent).filter(Boolean))].sort();
  const items = inbox.items.filter((one) => !agent || one.agent === agent);
  const shown = isAnswered ? inbox.answered.map((one) => one.item) : items;
  const item = useChosen(inbox, token, shown);
  const go = (to: InboxItem | undefined): void => {
    if (to) navigate(`/inbox/${encodeURIComponent(to.token)}${queryText()}`, { replace: token !== "" });
  };
  const step = (by: number): void => go(shown[Math.max(0, Math.min(shown.length - 1, shown.findIndex((one) => one.token === item?.token) + by))]);
  useKeys("Inbox", [
    { keys: "j", does: "Next", run: () => step(1), isMovement: true },
    { keys: "k", does: "Previous", run: () => step(-1), isMovement: true },
  ]);
  const onAnswered = (): void => {
    const at = items.findIndex((one) => one.token === item?.token);
    const waits = [...items.slice(at + 1), ...items.slice(0, Math.max(0, at))];
    go(waits.find((one) => inbox.isOpen(one) && !inbox.fateOf(one.token, now.peek())));
  };
  if (!isAnswered && inbox.items.length === 0 && inbox.answered.length === 0 && !token) {
    return (
      <Empty title="Nothing waits for a person">
        A call that needs approval, a question of an agent or a sign-in comes here by itself.
      </Empty>
    );
  }
  return (
    <div class={token ? "inbox has-chosen" : "inbox"}>
      <div class="inbox-side">
        <Toolbar label="What is listed">
          <Segments
            label="Show"
            value={isAnswered ? "answered" : "waiting"}
            onChange={(value) => setShow(value === "answered" ? value : "")}
            choices={[
              { value: "waiting", text: "Waiting", count: inbox.total },
              { value: "answered", text: "Answered" },
            ]}
          />
          <span class="grow" />
          {(agents.length > 1 || agent) && (
            <MenuButton
              small
              kind="quiet"
              icon="filter"
              text={agent || "Agent"}
              says="Only what this agent asks"
              items={[
                { text: "All agents", checked: !agent, onPick: () => setAgent("") },
                ...agents.map((name) => ({ text: name, checked: name === agent, onPick: () => setAgent(name) })),
              ]}
            />
          )}
        </Toolbar>
        {!isAnswered && agent && items.length === 0 ? (
          <NoMatch noun="approval" onClear={() => setAgent("")} />
        ) : isAnswered ? (
          <AnsweredList inbox={inbox} current={item?.token ?? ""} />
        ) : (
          <WaitingList inbox={inbox} items={items} current={item?.token ?? ""} />
        )}
      </div>
      <div class="inbox-main">
        {item ? (
          <Item inbox={inbox} item={item} onAnswered={onAnswered} />
        ) : token ? (
          <Empty title="This does not wait any more" actions={<Button kind="primary" onClick={() => navigate("/inbox")}>Show what waits</Button>}>
            It was answered, or its run has ended.
          </Empty>
        ) : (
          <Empty title="Nothing waits for a person">What was answered just now stands in the list.</Empty>
        )}
      </div>
    </div>
  );
}

/** The item of the address, also when it has left the list since; without one the first that waits. */
function useChosen(inbox: Inbox, token: string, shown: readonly InboxItem[]): InboxItem | undefined {
  const kept = useRef<InboxItem | undefined>(undefined);
  const first = shown.find((one) => inbox.isOpen(one)) ?? shown[0];
  const named = token ? (inbox.items.find((one) => one.token === token) ?? inbox.answered.find((one) => one.item.token === token)?.item) : undefined;
  const found = token ? (named ?? (kept.current?.token === token ? kept.current : undefined)) : first;
  useEffect(() => {
    kept.current = found;
  });
  return found;
}

function queryText(): string {
  const text = location$.peek().query.toString();
  return text ? `?${text}` : "";
}
