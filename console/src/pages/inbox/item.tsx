import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

import { answeredWords, actedPayload, answerPayload, approvePayload, rejectPayload, type AnswerFate, type AnswerVerb } from "../../model/approval/answers.ts";
import { editability } from "../../model/approval/editing.ts";
import { formatTime, shortId } from "../../model/formats.ts";
import { approverWords, defaultWords, mayAnswer, type InboxItem } from "../../model/inbox.ts";
import { isObject } from "../../model/json.ts";
import { EditCall } from "../../parts/answer/edit-call.tsx";
import { ReasonForm, ResultForm, useGuard } from "../../parts/answer/forms.tsx";
import { Button, ButtonLink } from "../../parts/button.tsx";
import { Facts } from "../../parts/figures.tsx";
import { Glyph } from "../../parts/glyph.tsx";
import { Deadline, Moment } from "../../parts/moments.tsx";
import { MenuButton, PopoverButton } from "../../parts/popover.tsx";
import { now } from "../../shell/clock.ts";
import { useKeys } from "../../shell/keys.ts";
import { navigate } from "../../shell/router.ts";
import { connection } from "../../wire/connection.ts";
import { useCall } from "../../wire/resource.ts";
import { Arguments, type ArgsView } from "./arguments.tsx";
import type { Inbox } from "./source.ts";
import { wordsOf } from "./words.ts";

interface ItemProps {
  inbox: Inbox;
  item: InboxItem;
  onAnswered: () => void;
}

/** One thing that waits: who asks for what, until when, the exact arguments, and the answers. */
export function Item({ inbox, item, onAnswered }: ItemProps) {
  const [task] = useCall("tasks.get", { id: item.run }, { session: item.identity.session, when: item.run !== "" });
  const goal = task.state === "ready" ? task.data.task.query || task.data.task.description : "";
  const words = wordsOf(item);
  const runLink = item.run ? `/tasks/${encodeURIComponent(item.run)}` : "";
  return (
    <article class="inbox-item" aria-label="The call">
      <header class="inbox-head">
        <a class="button small quiet inbox-back" href="/inbox">
          ‹ Inbox
        </a>
        <Glyph name={words.glyph} label="Waiting" />
        <h2>{titleOf(item)}</h2>
        <Deadline deadline={item.deadline} opened={item.openedAt} />
        {runLink && (
          <ButtonLink small href={runLink}>
            Open run
          </ButtonLink>
        )}
        <p class="inbox-facts">
          <span>
            {item.step !== null && item.step > 0 && (
              <>
                step <b>{item.step}</b> of{" "}
              </>
            )}
            {item.agent} · {shortId(item.run)}
          </span>
          {goal && (
            <span class="cut">
              goal <b title={goal}>{goal}</b>
            </span>
          )}
          <span>
            asked <Moment at={item.openedAt} />
          </span>
        </p>
      </header>
      <ItemBody key={item.token} inbox={inbox} item={item} runLink={runLink} onAnswered={onAnswered} />
    </article>
  );
}

function titleOf(item: InboxItem): ComponentChildren {
  const agent = item.agent || "An agent";
  const tool = <code>{item.tool || "a tool"}</code>;
  switch (item.kind) {
    case "approval":
      return <>{agent} asks to run {tool}</>;
    case "outcome":
      return <>{tool} may have acted</>;
    case "question":
      return item.question || `${agent} asks for an answer`;
    case "sign_in":
      return `${agent} needs you to sign in to ${item.tool || "a service"}`;
    case "event":
      return `${agent} is paused`;
  }
}

function ItemBody({ inbox, item, runLink, onAnswered }: ItemProps & { runLink: string }) {
  const [view, see] = useState<ArgsView>("values");
  const [isEditing, edit] = useState(false);
  const [isRejecting, askReason] = useState(false);
  const fate = inbox.fateOf(item.token, now.value);
  const isOpen = inbox.isOpen(item);
  const isAnswering = isOpen && (!fate || fate.phase === "failed" || fate.phase === "rejected" || fate.phase === "not_sent");
  const { user, session } = item.identity;
  const who = connection.value;
  const send = (verb: AnswerVerb, payload: Record<string, unknown>): void => {
    void inbox.send(item, verb, payload);
    onAnswered();
  };
  useEffect(() => {
    if (!isAnswering) {
      edit(false);
      askReason(false);
    }
  }, [isAnswering]);
  useKeys("Inbox item", [{ keys: "o", does: "Open the run", why: runLink ? "" : "The server does not name it", run: () => navigate(runLink) }]);
  return (
    <>
      <div class="inbox-scroll" tabIndex={0} role="region" aria-label="What is asked">
        <div class="section">
          <Facts
            rows={[
              ["Asks", <>{[item.agent, user && `for ${user}`].filter(Boolean).join(", ")}{session && <> in <a class="link" href={`/sessions/${encodeURIComponent(session)}`}>{session}</a></>}</>],
              ["Why it asks", item.kind === "question" ? undefined : item.question],
              ["May answer", approverWords(item.approvers)],
              ["Until", item.deadline === null ? undefined : <>{formatTime(item.deadline, { now: now.peek() })}{defaultWords(item) && <>, {defaultWords(item)}</>}</>],
            ]}
          />
        </div>
        {item.kind === "outcome" && <p class="section">The worker was lost in this call; nothing was run again. Look where it acts, then say what came of it.</p>}
        {isEditing && isObject(item.args) ? (
          <div class="section">
            <EditCall tool={item.tool} args={item.args} schema={item.schema} isMasked={item.isMasked} onCancel={() => edit(false)} onSend={(change) => send("approve", approvePayload(item.token, { change }))} />
          </div>
        ) : (
          item.args !== undefined && <Arguments args={item.args} view={view} onView={see} isMasked={item.isMasked} />
        )}
        {item.isCut && <p class="section soft">The arguments are too large for the list. They stand whole on the page of the run.</p>}
      </div>
      <footer class="inbox-act">
        <FateLine inbox={inbox} item={item} fate={fate} isOpen={isOpen} />
        {isRejecting && isAnswering && (
          <ReasonForm onCancel={() => askReason(false)} onSend={(reason) => send("reject", rejectPayload(item.token, reason))} />
        )}
        {isAnswering && !mayAnswer(item, who?.user ?? "", who?.scopes ?? []) && <p class="small soft">{item.run ? `Only ${approverWords(item.approvers)} may answer.` : "The server does not name the run, so this cannot be answered here."}</p>}
        {isAnswering && !isRejecting && !isEditing && mayAnswer(item, who?.user ?? "", who?.scopes ?? []) && (
          <Answers item={item} view={view} onView={see} send={send} onEdit={() => edit(true)} onReject={() => askReason(true)} />
        )}
      </footer>
    </>
  );
}

/** What became of the answer given here, or who answered first. */
function FateLine({ inbox, item, fate, isOpen }: { inbox: Inbox; item: InboxItem; fate: AnswerFate | null; isOpen: boolean }) {
  const pause = inbox.pauseOf(item);
  const ended = inbox.answered.find((one) => one.item.token === item.token);
  if (fate) {
    return (
      <p class={`state is-${fate.words.tone}`} role="status" data-fate={fate.phase}>
        <Glyph name={fate.words.glyph} />
        <span>{fate.words.text}</span>
      </p>
    );
  }
  if (isOpen) return null;
  const text = pause && pause.settledAt !== null ? answeredWords(pause, now.value) : ended ? `${ended.by || "Somebody"} ${ended.decision === "reject" ? "rejected" : ended.decision === "approve" ? "approved" : "answered"} this.` : "This does not wait any more.";
  return (
    <p class="state" role="status" data-fate="elsewhere">
      <Glyph name="applied" />
      <span>{text}</span>
    </p>
  );
}

interface AnswersProps {
  item: InboxItem;
  view: ArgsView;
  onView: (view: ArgsView) => void;
  send: (verb: AnswerVerb, payload: Record<string, unknown>) => void;
  onEdit: () => void;
  onReject: () => void;
}

function Answers(props: AnswersProps) {
  switch (props.item.kind) {
    case "approval":
      return <ApprovalAnswers {...props} />;
    case "outcome":
      return <OutcomeAnswers {...props} />;
    case "question":
      return <QuestionAnswer {...props} />;
    case "sign_in":
      return <p class="small soft">Open the run to sign in; the call goes on by itself afterwards.</p>;
    case "event":
      return <HeldAnswer {...props} />;
  }
}

function HeldAnswer({ item, send }: AnswersProps) {
  const guard = useGuard(item.token);
  return (
    <div class="inbox-buttons">
      <Button kind="primary" icon="play" onClick={() => guard(() => send("resume", { token: item.token }))}>
        Resume
      </Button>
    </div>
  );
}

function ApprovalAnswers({ item, view, onView, send, onEdit, onReject }: AnswersProps) {
  const guard = useGuard(`${item.token} ${view}`);
  const isSeen = item.args !== undefined && !item.isCut && view !== "rendered";
  const whyNot = item.args === undefined || item.isCut ? "The arguments are not known here in full" : "";
  const allowed = editability(item.isMasked, item.takesPatches, item.isCut);
  const whyNoEdit = isObject(item.args) ? (allowed.canEdit ? "" : allowed.why) : "The arguments are not known here";
  const approve = (remember?: "run") => guard(() => send("approve", approvePayload(item.token, remember ? { remember } : {})));
  useKeys("Inbox answers", [
    { keys: "a", does: `Approve ${item.tool}`, why: isSeen ? "" : whyNot || "Look at the exact values first", run: () => isInSight() && approve() },
    { keys: "e", does: `Edit ${item.tool}`, why: whyNoEdit, run: onEdit },
    { keys: "r", does: `Reject ${item.tool}`, run: onReject },
  ]);
  return (
    <div class="inbox-buttons">
      {isSeen || whyNot ? (
        <Button kind="primary" icon="check" hint="A" why={whyNot || undefined} onClick={() => approve()}>
          Approve
        </Button>
      ) : (
        <Button kind="primary" icon="eye" onClick={() => onView("values")}>
          Review
        </Button>
      )}
      <Button icon="edit" hint="E" why={whyNoEdit || undefined} onClick={onEdit}>
        Edit and approve
      </Button>
      <Button icon="close" hint="R" onClick={onReject}>
        Reject
      </Button>
      <span class="grow" />
      <MenuButton kind="quiet" icon="down" text="Allow…" says="More ways to approve" {...(isSeen ? {} : { why: whyNot || "Look at the exact values first" })} items={[{ text: `Allow ${item.tool} for this run`, onPick: () => approve("run") }]} />
    </div>
  );
}

/** On a narrow screen the list may stand before the call: then no key approves what nobody sees. */
function isInSight(): boolean {
  return document.querySelector(".inbox-buttons")?.checkVisibility() ?? false;
}

function OutcomeAnswers({ item, send }: AnswersProps) {
  const guard = useGuard(item.token);
  return (
    <div class="inbox-buttons">
      <PopoverButton text="It acted…" says="What came of the call">
        {(close) => (
          <ResultForm
            onSend={(result) => {
              close();
              send("resume", actedPayload(item.token, true, result));
            }}
          />
        )}
      </PopoverButton>
      <Button onClick={() => guard(() => send("resume", actedPayload(item.token, false)))}>It did not: run again</Button>
      <Button onClick={() => guard(() => send("reject", rejectPayload(item.token)))}>Nobody knows</Button>
    </div>
  );
}

function QuestionAnswer({ item, send, onReject }: AnswersProps) {
  const [text, write] = useState("");
  useKeys("Inbox answers", [{ keys: "r", does: "Decline to answer", run: onReject }]);
  const answer = (): void => {
    if (text.trim()) send("resume", answerPayload(item.token, text.trim()));
  };
  return (
    <form
      class="inbox-buttons"
      onSubmit={(event) => {
        event.preventDefault();
        answer();
      }}
    >
      <input class="input inbox-answer" aria-label="Answer" placeholder="Your answer" value={text} onInput={(event) => write(event.currentTarget.value)} />
      <Button kind="primary" icon="send" type="submit" why={text.trim() ? undefined : "Write an answer first"}>
        Answer
      </Button>
      <Button icon="close" hint="R" onClick={onReject}>
        Decline
      </Button>
    </form>
  );
}
