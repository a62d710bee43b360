import { useState } from "preact/hooks";

import { rowOffer } from "../../model/approval/exact.ts";
import { approvePayload, rejectPayload } from "../../model/approval/answers.ts";
import { isMaskedValue } from "../../model/approval/patch.ts";
import { isObject, type Json } from "../../model/json.ts";
import { stateOf, waitingOnSnapshot } from "../../model/status.ts";
import { Button, ButtonLink } from "../../parts/button.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { Deadline, Moment } from "../../parts/moments.tsx";
import { PaneHead } from "../../parts/pane.tsx";
import { PartFailure } from "../../parts/states.tsx";
import { announce } from "../../parts/toast.tsx";
import { control } from "../../wire/client.ts";
import { asWireError } from "../../wire/error.ts";
import { counts, useEvents } from "../../wire/feed.ts";
import { useCall } from "../../wire/resource.ts";
import type { PauseSnapshot } from "../../wire/types.ts";

const SHOWN = 5;
const TELLING = new Set(["pause.requested", "pause.resumed", "tool.approval_requested", "tool.auth_required", "task.cancelled"]);

/** What waits for a person: those whose time runs out first. */
export function Needs() {
  const [listed, reload] = useCall("pause.list", { filter: { status: ["paused"] }, page_size: 50 }, { everyMs: 5_000 });
  useEvents((events) => {
    if (events.some((event) => TELLING.has(event.type))) reload();
  });
  const rows = listed.state === "ready" ? [...listed.data.snapshots].sort(byDeadline) : [];
  const total = listed.state === "ready" ? listed.data.total_rows : counts.value.waiting;
  return (
    <section class="overview-section first" aria-label="Needs a person">
      <PaneHead title="Needs a person" count={total || undefined}>
        <a class="link" href="/inbox">
          Open inbox
        </a>
      </PaneHead>
      {listed.state === "failed" && <PartFailure noun="What waits" error={listed.error} onRetry={reload} />}
      {listed.state === "ready" && rows.length === 0 && <p class="quiet-line">Nothing waits for a person.</p>}
      <ul>
        {rows.slice(0, SHOWN).map((row) => (
          <Need key={row.token} row={row} onAnswered={reload} />
        ))}
      </ul>
      {rows.length > SHOWN && (
        <p class="quiet-line">
          <a class="link" href="/inbox">
            {rows.length - SHOWN} more
          </a>
        </p>
      )}
    </section>
  );
}

function byDeadline(a: PauseSnapshot, b: PauseSnapshot): number {
  return (a.deadline ?? "9").localeCompare(b.deadline ?? "9") || a.paused_at.localeCompare(b.paused_at);
}

/** What a pause shows of a call: its tool, and its arguments as they are. */
function callOf(row: PauseSnapshot): { tool: string; args: Json | undefined; question: string } {
  const payload = row.payload ?? {};
  const summary = isObject(payload["args_summary"]) ? payload["args_summary"] : {};
  const text = (key: string) => (typeof payload[key] === "string" ? payload[key] : "");
  return { tool: text("tool"), args: summary["args"], question: text("question") || text("prompt") || text("message") };
}

function Need({ row, onAnswered }: { row: PauseSnapshot; onAnswered: () => void }) {
  const [sent, say] = useState("");
  const { tool, args, question } = callOf(row);
  const on = waitingOnSnapshot(row.reason, row.payload);
  const state = stateOf({ status: "paused", waitingOn: on });
  const isApproval = row.reason === "approval_required";
  const offer = rowOffer({ args, isCut: !row.payload, isMasked: row.masked === true || isMaskedValue(args) });
  const link = `/inbox/${encodeURIComponent(row.token)}`;
  const answer = async (verb: "approve" | "reject") => {
    say("Sent");
    try {
      const payload = verb === "approve" ? approvePayload(row.token) : rejectPayload(row.token);
      await control(row.identity.run ?? "", verb, payload, { session: row.identity.session });
      announce(`${verb === "approve" ? "Approved" : "Rejected"} ${tool}: sent`);
    } catch (error) {
      say(`Not sent: ${asWireError(error).code}`);
    }
    onAnswered();
  };
  return (
    <li class="need">
      <Glyph name={state.glyph} label={`${state.word}: ${state.on}`} />
      <div class="need-what">
        <a class="need-line" href={link}>
          <b class="whole">{isApproval ? <code>{tool}</code> : titleOf(row, on.isUnknownOutcome, tool, on.signIn)}</b>
          {isApproval && offer.kind === "approve" ? (
            <code class="soft need-args">{offer.text}</code>
          ) : (
            <span class="soft cut">{isApproval ? preview(args) : question === "unknown_outcome" ? "may have acted" : question}</span>
          )}
        </a>
        <div class="faint small cut">
          {[row.agent_name, row.identity.user && `for ${row.identity.user}`].filter(Boolean).join(" · ")} · asked <Moment at={row.paused_at} />
        </div>
      </div>
      <div class="need-due">
        <Deadline deadline={row.deadline} opened={row.paused_at} />
      </div>
      <div class="need-actions">
        {sent ? (
          <span class="soft small">{sent}</span>
        ) : isApproval && offer.kind === "approve" ? (
          <>
            <Button small icon="check" label={`Approve ${tool}`} onClick={() => void answer("approve")}>
              Approve
            </Button>
            <Button small kind="quiet" label={`Reject ${tool}`} onClick={() => void answer("reject")}>
              Reject
            </Button>
          </>
        ) : (
          <ButtonLink small href={link}>
            {isApproval ? "Review" : on.isUnknownOutcome ? "Resolve" : on.signIn ? "Sign in" : row.reason === "await_input" ? "Answer" : "View"}
          </ButtonLink>
        )}
      </div>
    </li>
  );
}

function titleOf(row: PauseSnapshot, isUnknown: boolean, tool: string, signIn: string) {
  if (isUnknown) return <code>{tool}</code>;
  if (signIn) return `Sign in to ${signIn}`;
  if (row.reason === "await_input") return "Answer a question";
  return row.reason === "external_event" ? "Paused" : row.reason.replaceAll("_", " ");
}

/** The first words of arguments, when they are too long for a row to be approved in. */
function preview(args: Json | undefined): string {
  if (!isObject(args)) return args === undefined ? "" : JSON.stringify(args);
  return Object.entries(args)
    .map(([name, value]) => `${name}=${typeof value === "string" ? value.slice(0, 60) : JSON.stringify(value)}`)
    .join(", ");
}
