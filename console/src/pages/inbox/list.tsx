import type { ComponentChildren } from "preact";

import type { AnswerFate } from "../../model/approval/answers.ts";
import { formatDeadline } from "../../model/formats.ts";
import type { InboxItem } from "../../model/inbox.ts";
import { Button } from "../../parts/button.tsx";
import { Glyph, type GlyphName } from "../../parts/glyph.tsx";
import { useHeldRows } from "../../parts/held.ts";
import { Moment } from "../../parts/moments.tsx";
import { now } from "../../shell/clock.ts";
import { useKeys } from "../../shell/keys.ts";
import type { AnsweredItem, Inbox } from "./source.ts";
import { decisionWords, wordsOf } from "./words.ts";

const tokenOf = (item: InboxItem): string => item.token;
const JUST_NOW = 6;

/** What waits, by deadline, and what was answered a moment ago. It stays still under the pointer. */
export function WaitingList({ inbox, items, current }: { inbox: Inbox; items: readonly InboxItem[]; current: string }) {
  const held = useHeldRows(items, tokenOf);
  useKeys("Inbox list", [{ keys: ".", does: "Show new rows", why: held.fresh ? "" : "There are none", run: held.release }]);
  const today = new Date(now.value).setHours(24, 0, 0, 0);
  const isDue = (item: InboxItem) => item.deadline !== null && item.deadline < today;
  const due = held.shown.filter(isDue);
  const later = held.shown.filter((item) => !isDue(item));
  const row = (item: InboxItem) => (
    <ItemRow key={item.token} item={item} isCurrent={item.token === current} isGone={held.gone(item) || !inbox.isOpen(item)} fate={inbox.fateOf(item.token, now.value)} />
  );
  return (
    <div class="inbox-rows" data-list {...held.props}>
      {held.fresh > 0 && (
        <div class="inbox-fresh">
          <Button small hint="." onClick={held.release}>
            {`${held.fresh} new`}
          </Button>
        </div>
      )}
      <Group title="Due today">{due.map(row)}</Group>
      <Group title={due.length ? "Later" : "Waiting"}>{later.map(row)}</Group>
      <Group title="Answered just now">
        {inbox.answered.slice(0, JUST_NOW).map((one) => (
          <AnsweredRow key={one.item.token} answered={one} isCurrent={one.item.token === current} />
        ))}
      </Group>
    </div>
  );
}

export function AnsweredList({ inbox, current }: { inbox: Inbox; current: string }) {
  return (
    <div class="inbox-rows" data-list>
      <Group title="Newest first">
        {inbox.answered.map((one) => (
          <AnsweredRow key={one.item.token} answered={one} isCurrent={one.item.token === current} />
        ))}
      </Group>
      {inbox.answered.length === 0 && <p class="inbox-none">Nothing was answered yet.</p>}
    </div>
  );
}

function Group({ title, children }: { title: string; children: ComponentChildren[] }) {
  if (children.length === 0) return null;
  return (
    <section aria-label={title}>
      <h2 class="inbox-group">{title}</h2>
      <ul>{children}</ul>
    </section>
  );
}

function ItemRow({ item, isCurrent, isGone, fate }: { item: InboxItem; isCurrent: boolean; isGone: boolean; fate: AnswerFate | null }) {
  const words = wordsOf(item);
  const deadline = item.deadline === null ? null : formatDeadline(item.deadline, item.openedAt, now.value);
  const said = fate ? fate.words.text : isGone ? "Answered" : deadline ? deadline.text.replace(/ left$/, "") : "no deadline";
  return (
    <Row
      item={item}
      isCurrent={isCurrent}
      glyph={words.glyph}
      title={words.isCode ? <code>{words.title}</code> : words.title}
      note={words.isCode && item.kind === "approval" ? <code>{words.note}</code> : words.note}
      end={<span class={!fate && !isGone && deadline?.isUrgent ? "is-failed" : ""}>{said}</span>}
    />
  );
}

function AnsweredRow({ answered, isCurrent }: { answered: AnsweredItem; isCurrent: boolean }) {
  const words = wordsOf(answered.item);
  const [text, glyph] = decisionWords(answered.decision, answered.by);
  return (
    <Row
      item={answered.item}
      isCurrent={isCurrent}
      isPast
      glyph={glyph}
      title={words.isCode ? <code>{words.title}</code> : words.title}
      note={text}
      end={<Moment at={answered.at} />}
    />
  );
}

function Row(props: { item: InboxItem; isCurrent: boolean; isPast?: boolean; glyph: GlyphName; title: ComponentChildren; note: ComponentChildren; end: ComponentChildren }) {
  const { item } = props;
  return (
    <li>
      <a class={props.isPast ? "inbox-row is-past" : "inbox-row"} href={`/inbox/${encodeURIComponent(item.token)}`} aria-current={props.isCurrent ? "true" : undefined} tabIndex={0}>
        <Glyph name={props.glyph} />
        <span class="cut">
          <b>{props.title}</b> <span class="soft">{props.note}</span>
        </span>
        <span class="inbox-end">{props.end}</span>
        <span class="inbox-who cut">{whoOf(item)}</span>
      </a>
    </li>
  );
}

/** "release · for ada · s-22": as much of it as the server says. */
function whoOf(item: InboxItem): string {
  const { user, session } = item.identity;
  return [item.agent, user && `for ${user}`, session].filter(Boolean).join(" · ");
}
