-- What a commit looks at and writes.

-- name: held
SELECT num, session, owner, fence, position, status, unread, grp FROM harborage_runs WHERE run_id = :run_id;

-- name: step
-- The owner's step: nothing that an index holds.
UPDATE harborage_runs SET position = position + :entries, updated_at = :now
WHERE run_id = :run_id AND fence = :fence AND owner = :worker AND position = :position
RETURNING num, session;

-- name: consume
UPDATE harborage_controls SET consumed = :position, data = x'' WHERE num = :num AND run = :run AND consumed IS NULL;

-- name: keep_unread
UPDATE harborage_runs
SET unread = (SELECT count(*) FROM harborage_controls WHERE run = :num AND consumed IS NULL)
WHERE num = :num
RETURNING unread;

-- name: entry_at
SELECT data FROM harborage_journal WHERE run = :run AND position = :position;

-- name: add_entry
INSERT INTO harborage_journal (run, position, crc, data) VALUES (:run, :position, :crc, :data);

-- name: add_body
INSERT INTO harborage_bodies (digest, data) VALUES (:digest, :data) ON CONFLICT (digest) DO NOTHING;

-- name: name_body
INSERT INTO harborage_run_bodies (run, body) SELECT :run, num FROM harborage_bodies WHERE digest = :digest
ON CONFLICT (run, body) DO NOTHING;

-- name: session
SELECT num, events FROM harborage_sessions WHERE tenant = :tenant AND user = :user AND session = :session;

-- name: add_session
INSERT INTO harborage_sessions (tenant, user, session, opened_at, seen_at) VALUES (:tenant, :user, :session, :now, :now)
RETURNING num;

-- name: count_events
-- With the last number that an event has got: a look of its own would cost as much again.
UPDATE harborage_sessions SET
  events = events + :count, seen_at = CASE WHEN closed_at IS NULL THEN max(seen_at, :now) ELSE seen_at END
WHERE tenant = :tenant AND user = :user AND session = :session
RETURNING num, events, (SELECT seq FROM sqlite_sequence WHERE name = 'harborage_events');

-- name: see_session
UPDATE harborage_sessions SET seen_at = :now WHERE num = :num AND closed_at IS NULL AND seen_at < :now;

-- name: is_closed
SELECT 1 FROM harborage_sessions WHERE num = :num AND closed_at IS NOT NULL;

-- name: open_session
INSERT INTO harborage_sessions (tenant, user, session, opened_at, seen_at, context)
VALUES (:tenant, :user, :session, :now, :now, :context)
ON CONFLICT (tenant, user, session) DO UPDATE SET
  opened_at = excluded.opened_at, seen_at = max(seen_at, excluded.seen_at), context = excluded.context
WHERE harborage_sessions.context IS NULL
RETURNING num;

-- name: touch_session
UPDATE harborage_sessions SET seen_at = max(seen_at, :now)
WHERE num = :num AND closed_at IS NULL AND (:before IS NULL OR seen_at < :before)
RETURNING num;

-- name: close_session
UPDATE harborage_sessions SET closed_at = :now, close_reason = :reason
WHERE num = :num AND closed_at IS NULL AND (:seen_at IS NULL OR seen_at = :seen_at)
RETURNING num;

-- name: opened_session
SELECT num FROM harborage_sessions
WHERE tenant = :tenant AND user = :user AND session = :session AND context IS NOT NULL;

-- name: add_event
INSERT INTO harborage_events (sequence, session, place, run, type, at, crc, data)
VALUES (:sequence, :session, :place, :run, :type, :at, :crc, :data);

-- name: by_key
SELECT run_id FROM harborage_runs WHERE session = :session AND idem = :idem;

-- name: sizes
SELECT children, tree FROM harborage_runs WHERE run_id = :run_id AND session = :session;

-- name: add_run
INSERT INTO harborage_runs (
  run_id, session, tenant, user, agent, parent, root, grp, kind, priority, status, description, about,
  created_at, updated_at, deadline, position, owner, fence, woken, idem, fingerprint, cascades, notifies, retains_turn,
  asked, tags
)
VALUES (
  :run_id, :session, :tenant, :user, :agent, :parent, :root, :grp, :kind, :priority, :status, :description, :about,
  :now, :now, :deadline, :position, :owner, :fence, :woken, :idem, :fingerprint, :cascades, :notifies, :retains_turn,
  :asked, :tags
)
RETURNING num;

-- name: add_child
UPDATE harborage_runs SET children = children + 1 WHERE run_id = :run_id AND session = :session;

-- name: grow_tree
UPDATE harborage_runs SET tree = tree + 1 WHERE run_id = :run_id AND session = :session;

-- name: move
UPDATE harborage_runs SET
  status = coalesce(:status, status), reason = coalesce(:reason, reason), outcome = coalesce(:outcome, outcome),
  awaits = CASE WHEN :awaits IS NULL THEN awaits ELSE nullif(:awaits, '') END, priority = coalesce(:priority, priority),
  acknowledged = coalesce(:acknowledged, acknowledged), tool_count = tool_count + :tool_calls,
  position = position + :entries, updated_at = :now
WHERE run_id = :run_id
RETURNING num, position;

-- name: change
UPDATE harborage_runs SET
  status = coalesce(:status, status), reason = coalesce(:reason, reason), outcome = coalesce(:outcome, outcome),
  blocked = :blocked, priority = coalesce(:priority, priority), attempts = CASE WHEN :progress THEN 0 ELSE attempts END,
  tool_count = tool_count + :tool_calls, tokens = tokens + :tokens, cost = cost + :cost
WHERE num = :num;

-- name: release
UPDATE harborage_runs SET
  owner = NULL, wake_at = :wake_at, awaits = CASE WHEN :awaits IS NULL THEN awaits ELSE nullif(:awaits, '') END,
  seen_control = :seen_control, woken = (woken OR :ready OR (unread > 0 AND EXISTS (
    SELECT 1 FROM harborage_controls AS control
    WHERE control.run = :num AND control.consumed IS NULL AND control.num > :seen_control
  )))
WHERE num = :num;

-- name: await_nothing
UPDATE harborage_runs SET awaits = NULL WHERE num = :num;

-- name: wake_if_ended
-- Also where nothing of that name is there: it would never end any more.
UPDATE harborage_runs SET woken = 1 WHERE num = :num AND NOT woken
  AND NOT EXISTS (SELECT 1 FROM harborage_runs AS other WHERE other.run_id = :awaits AND other.status < 3)
  AND NOT EXISTS (
    SELECT 1 FROM harborage_groups AS one
    WHERE one.session = :session AND one.group_id = :awaits AND one.status IN ('open', 'sealed', 'ending')
  );

-- name: end
UPDATE harborage_runs SET owner = NULL, woken = 0, wake_at = NULL, awaits = NULL WHERE num = :num;

-- name: cancel_pauses
UPDATE harborage_pauses SET status = 'cancelled', settled_at = :now WHERE run = :run_id AND status = 'open';

-- name: wake
UPDATE harborage_runs SET woken = 1 WHERE run_id = :run_id AND status < 3 AND position > 0 AND NOT woken;

-- name: wake_waiting
UPDATE harborage_runs SET woken = 1 WHERE awaits = :target AND awaits IS NOT NULL AND position > 0 AND NOT woken;

-- name: wake_waiting_for_group
-- A group is one of the session of who awaits it.
UPDATE harborage_runs SET woken = 1
WHERE awaits = :target AND awaits IS NOT NULL AND session = :session AND position > 0 AND NOT woken;

-- name: group
SELECT num, status, open_members, members, owner FROM harborage_groups WHERE session = :session AND group_id = :group_id;

-- name: add_group
INSERT INTO harborage_groups (
  session, group_id, owner, retains_turn, fails_fast, description, status, created_at, sealed_at, deadline
)
VALUES (
  :session, :group_id, :owner, :retains_turn, :fails_fast, :description, :status, :now, :sealed_at, :deadline
)
ON CONFLICT (session, group_id) DO NOTHING;

-- name: join_group
UPDATE harborage_groups SET members = members + 1, open_members = open_members + 1
WHERE session = :session AND group_id = :group_id;

-- name: leave_group
UPDATE harborage_groups SET open_members = open_members - 1 WHERE session = :session AND group_id = :group_id
RETURNING status, members, open_members, fails_fast, retains_turn;

-- name: change_group
UPDATE harborage_groups SET
  status = :status, reason = coalesce(nullif(:reason, ''), reason),
  sealed_at = CASE WHEN :status = 'sealed' THEN :now ELSE sealed_at END,
  ended_at = CASE WHEN :status IN ('completed', 'cancelled') THEN :now ELSE ended_at END,
  outcome = coalesce(nullif(:outcome, ''), outcome)
WHERE num = :num;

-- name: patch
SELECT decision, created_at, decided_at FROM harborage_patches WHERE session = :session AND patch_id = :patch_id;

-- name: add_patch
INSERT INTO harborage_patches (session, patch_id, decision, created_at) VALUES (:session, :patch_id, '', :now)
ON CONFLICT (session, patch_id) DO NOTHING;

-- name: decide_patch
UPDATE harborage_patches SET decision = :decision, decided_at = :now WHERE session = :session AND patch_id = :patch_id;

-- name: open_pause
INSERT INTO harborage_pauses (token, run, session, tenant, user, reason, status, opened_at, deadline, data)
VALUES (:token, :run, :session, :tenant, :user, :reason, 'open', :at, :deadline, :data)
ON CONFLICT (token) DO NOTHING
RETURNING num;

-- name: settle
UPDATE harborage_pauses SET status = :status, settled_at = :at, settled_by = :by, answer = :answer
WHERE token = :token AND status = 'open';

-- name: answering
SELECT status, answering FROM harborage_pauses WHERE token = :token;

-- name: begin_answer
UPDATE harborage_pauses SET answering = :event_id WHERE token = :token AND status = 'open';

-- name: drop_answer
UPDATE harborage_pauses SET answering = '' WHERE token = :token AND answering = :event_id AND status = 'open';

-- name: is_sent
SELECT 1 FROM harborage_controls WHERE run = :run AND event_id = :event_id;

-- name: was_sent
SELECT 1 FROM harborage_runs AS run JOIN harborage_controls AS control ON control.run = run.num
WHERE run.run_id = :run_id AND control.event_id = :event_id;

-- name: send
INSERT INTO harborage_controls (run, event_id, type, sent_at, data) VALUES (:run, :event_id, :type, :now, :data)
ON CONFLICT (run, event_id) DO NOTHING
RETURNING num;

-- name: count_unread
-- It wakes the run, unless a worker holds it: that one looks for itself.
UPDATE harborage_runs SET unread = unread + 1, woken = (woken OR (owner IS NULL AND position > 0)) WHERE num = :num;

-- name: unread
SELECT control.num, run.run_id, control.event_id, control.type, control.sent_at, control.data
FROM harborage_runs AS run JOIN harborage_controls AS control ON control.run = run.num
WHERE run.run_id = :run_id AND control.consumed IS NULL AND control.num > :after
ORDER BY control.num LIMIT :limit;

-- name: unread_raw
-- Where a text of one is none.
SELECT
  control.num, run.run_id, CAST(control.event_id AS BLOB), CAST(control.type AS BLOB), control.sent_at, control.data
FROM harborage_runs AS run JOIN harborage_controls AS control ON control.run = run.num
WHERE run.run_id = :run_id AND control.consumed IS NULL AND control.num > :after
ORDER BY control.num LIMIT :limit;

-- name: leads_back
-- From a run to what it awaits, from a group to its live members; what has ended leads nowhere. A group is one of the
-- session of who awaits it.
WITH RECURSIVE leads_to (name, session) AS (
  SELECT :target, :session
  UNION
  SELECT run.awaits, run.session
  FROM leads_to CROSS JOIN harborage_runs AS run ON run.run_id = leads_to.name
  WHERE run.awaits IS NOT NULL
  UNION
  SELECT run.run_id, run.session
  FROM leads_to CROSS JOIN harborage_groups AS one ON one.group_id = leads_to.name AND one.session = leads_to.session
  CROSS JOIN harborage_runs AS run ON run.grp = one.group_id AND run.grp IS NOT NULL AND run.session = one.session
  WHERE one.status IN ('open', 'sealed', 'ending') AND run.status < 3
)
SELECT 1 FROM leads_to WHERE name = :run_id LIMIT 1;
