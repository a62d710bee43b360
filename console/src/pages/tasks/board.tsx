import { useState } from "preact/hooks";

import { formatDuration, plural } from "../../model/formats.ts";
import { stateOf } from "../../model/status.ts";
import { ButtonLink } from "../../parts/button.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { MenuButton } from "../../parts/popover.tsx";
import { say } from "../../parts/toast.tsx";
import type { Control } from "../../wire/client.ts";
import type { TaskPage, TaskRow } from "../../wire/types.ts";
import { sendToAll, type Listed } from "./source.ts";
import { goalOf, runLink, stateOfRow, waitWords } from "./table.tsx";

const COLUMNS = ["pending", "running", "paused", "complete", "failed"] as const;
type ColumnName = (typeof COLUMNS)[number];

interface Move {
  readonly verb: Control;
  readonly says: string;
}

/** What a card's way from one column to another asks of its run; null where no control does it. */
export function moveOf(from: string, to: string): Move | null {
  if (from === "running" && to === "paused") return { verb: "pause", says: "Pause it" };
  if (from === "paused" && to === "running") return { verb: "resume", says: "Resume it" };
  if (from === "running" && to === "failed") return { verb: "cancel", says: "Cancel it" };
  return null;
}

/** Tasks by status. A card is dragged, or told by its menu, to where a control leads. */
export function Board({ listed, rows, counts }: { listed: Listed; rows: readonly TaskRow[]; counts: TaskPage["aggregates"] | null }) {
  const [dragged, drag] = useState<TaskRow | null>(null);
  const move = (row: TaskRow, to: ColumnName): void => {
    if (row.status === to) return;
    const found = moveOf(row.status, to);
    if (found?.verb === "resume" && isAsked(listed, row)) say({ text: "It waits for an answer, which is given in the inbox.", href: inboxLink(listed, row) });
    else if (found) void sendToAll([row], found.verb).then(listed.reload);
    else if (row.status === "pending" && to === "running") say({ text: "Tasks start by themselves." });
    else say({ text: `No control verb maps ${wordOf(row.status)} → ${wordOf(to)}.` });
  };
  return (
    <div class="board" role="group" aria-label="Tasks by status" tabIndex={0}>
      {COLUMNS.map((status) => {
        const cards = rows.filter((row) => row.status === status);
        const accepts = dragged && !(isAsked(listed, dragged) && status === "running") && moveOf(dragged.status, status);
        return (
          <section
            key={status}
            class="board-column"
            aria-label={wordOf(status)}
            onDragOver={(event) => event.preventDefault()}
            onDrop={(event) => {
              event.preventDefault();
              if (dragged) move(dragged, status);
              drag(null);
            }}
          >
            <h2 class="board-head">
              <Glyph name={stateOf({ status }).glyph} />
              {wordOf(status)}
              <span class="faint">{counts ? counts[status].toLocaleString("en-US") : cards.length}</span>
            </h2>
            <div class="board-cards">
              {accepts && <div class="board-slot">{accepts.says}</div>}
              {cards.map((row) => (
                <Card key={row.id} row={row} listed={listed} onDrag={drag} onMove={(to) => move(row, to)} />
              ))}
            </div>
          </section>
        );
      })}
    </div>
  );
}

/** Whether a run waits for an answer of a person: a control does not stand in for it. */
function isAsked(listed: Listed, row: TaskRow): boolean {
  return (listed.waits.get(row.id)?.kind ?? "event") !== "event";
}

function inboxLink(listed: Listed, row: TaskRow): string {
  return `/inbox/${encodeURIComponent(listed.waits.get(row.id)?.token ?? "")}`;
}

function wordOf(status: string): string {
  return stateOf({ status }).word;
}

function Card({ row, listed, onDrag, onMove }: { row: TaskRow; listed: Listed; onDrag: (row: TaskRow | null) => void; onMove: (to: ColumnName) => void }) {
  const wait = listed.waits.get(row.id);
  const state = stateOfRow(row, wait);
  const note = state.code || waitWords(state, wait) || `${formatDuration(row.duration_ms)} · ${plural(row.tool_count, "tool")}`;
  const asked = isAsked(listed, row);
  const moves = COLUMNS.flatMap((to) => {
    const found = moveOf(row.status, to);
    return found && !(asked && found.verb === "resume") ? [{ text: found.says, onPick: () => onMove(to) }] : [];
  });
  return (
    <article
      class="card"
      draggable
      onDragStart={(event) => {
        event.dataTransfer?.setData("text/plain", row.id);
        onDrag(row);
      }}
      onDragEnd={() => onDrag(null)}
    >
      <a href={runLink(row)} draggable={false}>
        {goalOf(row)}
      </a>
      <p class="small soft">
        <code>{row.parent_session_id}</code> · {note}
        {row.is_background && " · background"}
      </p>
      {asked && (
        <ButtonLink small kind="quiet" href={inboxLink(listed, row)}>
          Review
        </ButtonLink>
      )}
      {moves.length > 0 && <MenuButton small kind="quiet" icon="more" label={`Move ${goalOf(row)}`} says="What a control can do" items={moves} />}
    </article>
  );
}
