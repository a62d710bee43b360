import { useState } from "preact/hooks";

import { Button } from "../../parts/button.tsx";
import { call } from "../../wire/client.ts";
import { asWireError } from "../../wire/error.ts";
import { useEvents } from "../../wire/feed.ts";
import { useCall } from "../../wire/resource.ts";
import { navigate } from "../../shell/router.ts";
import type { BarFill } from "../../parts/figures.tsx";

const READS: readonly [BarFill, left: number, width: number, words: string][] = [
  ["model", 0, 9, "thinks"],
  ["tool", 9, 6, "acts"],
  ["model", 16, 7, ""],
  ["child", 24, 26, "hands work to a child run"],
  ["model", 51, 7, ""],
  ["wait", 58.5, 17, "waits for you"],
  ["effect", 75.5, 6, "acts, once"],
  ["model", 82, 7, ""],
  ["live", 90, 10, "now"],
];

/** A runtime in which nothing has run yet: something to do for an agent, and how what then comes is read. */
export function FirstRun({ onStarted }: { onStarted: () => void }) {
  const [agents] = useCall("agents.list", {});
  const names = agents.state === "ready" ? agents.data.agents.map((agent) => agent.name) : [];
  const [chosen, choose] = useState("");
  const [goal, write] = useState("");
  const [problem, tell] = useState("");
  const agent = chosen || names[0] || "";
  useEvents((events) => {
    if (events.some((event) => event.type === "task.spawned")) onStarted();
  });
  const start = async () => {
    if (!goal.trim()) return tell("Say what is to be done");
    tell("");
    try {
      const { task_id } = await call("start", { query: goal.trim(), description: "", ...(agent ? { agent } : {}) });
      onStarted();
      navigate(`/tasks/${encodeURIComponent(task_id)}`);
    } catch (error) {
      const why = asWireError(error);
      tell(`${why.code}: ${why.message}`);
    }
  };
  const many = names.length === 1 ? "your agent" : `one of your ${names.length} agents`;
  return (
    <div class="first-run">
      <div>
        <h2>Connected. Nothing has run yet.</h2>
        <p class="soft">{names.length ? `Give ${many} something to do, and watch it here.` : "This runtime serves no agent."}</p>
      </div>
      <form
        class="composer"
        onSubmit={(event) => {
          event.preventDefault();
          void start();
        }}
      >
        <textarea
          rows={3}
          aria-label="Goal"
          placeholder={agent ? `What should ${agent} do?` : "What should be done?"}
          value={goal}
          onInput={(event) => write(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) void start();
          }}
        />
        <div class="composer-actions">
          {names.slice(0, 5).map((name) => (
            <button key={name} type="button" class={name === agent ? "chip is-chosen" : "chip"} aria-pressed={name === agent} onClick={() => choose(name)}>
              {name}
            </button>
          ))}
          <span class="grow" />
          <Button kind="primary" small icon="send" type="submit" why={names.length ? undefined : "This runtime serves no agent"}>
            Start
          </Button>
        </div>
      </form>
      {problem && (
        <p class="is-failed small" role="alert">
          {problem}
        </p>
      )}
      <p class="faint small">
        Or from a terminal: <code>harborage run --server {location.origin} "Order 7 arrived broken"</code>
      </p>
      <figure class="reads" role="img" aria-label="A run reads from left to right: it thinks, acts, hands work to a child run, waits for you, acts once, and goes on now">
        <h3>How a run reads</h3>
        <div class="track reads-track">
          {READS.map(([fill, left, width], at) => (
            <i key={at} class={`bar bar-${fill}`} style={{ left: `${left}%`, width: `${width}%` }} />
          ))}
        </div>
        <div class="reads-words">
          {READS.filter(([, , , words]) => words).map(([, left, , words]) => (
            <span key={words} style={{ left: `${left}%` }}>
              {words}
            </span>
          ))}
        </div>
      </figure>
    </div>
  );
}
