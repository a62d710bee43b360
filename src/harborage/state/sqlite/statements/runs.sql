-- Runs: their records. Each list walks one index in the order of making, from behind `:after` on.

-- name: add_run
INSERT INTO harborage_runs (
  run_id, tenant_id, user_id, session_id, who_run_id, agent, created_at, goal
)
VALUES (:run_id, :tenant_id, :user_id, :session_id, :who_run_id, :agent, :created_at, :goal)
ON CONFLICT DO NOTHING
RETURNING number;

-- name: add_standing
INSERT INTO harborage_standings (run_id, number, agent, stand, entries, updated_at)
VALUES (:run_id, :number, :agent, 'ready', :entries, :updated_at);

-- name: extend
-- No row: the worker does not hold the run.
UPDATE harborage_standings SET entries = entries + :count, updated_at = :now
WHERE run_id = :run_id AND owner = :worker AND fence = :fence
RETURNING number, entries;

-- name: extend_known
-- Nothing is changed: the worker does not hold the run, or the run is not as it was known.
UPDATE harborage_standings SET entries = entries + :count, updated_at = :now
WHERE run_id = :run_id AND owner = :worker AND fence = :fence AND number = :number AND entries = :before;

-- name: add_entry
INSERT INTO harborage_entries (run, position, crc, data) VALUES (:run, :position, :crc, :data);

-- name: add_body
INSERT INTO harborage_bodies (digest, data) VALUES (:digest, :data) ON CONFLICT DO NOTHING;

-- name: name_body
INSERT INTO harborage_run_bodies (run, digest) VALUES (:run, :digest) ON CONFLICT DO NOTHING;

-- name: take_controls
UPDATE harborage_standings SET taken = max(taken, :number) WHERE run_id = :run_id;

-- name: stand
-- Who is parked to wait for a run that has ended already is woken at once.
UPDATE harborage_standings SET
  stand = :stand,
  reason = :reason,
  wake_at = :wake_at,
  waits_for = :waits_for,
  owner = CASE WHEN :is_given_back THEN '' ELSE owner END,
  updated_at = :now,
  is_woken = is_woken OR (
    :stand = 'parked' AND EXISTS (
      SELECT 1 FROM harborage_standings AS target
      WHERE target.run_id = :waits_for AND target.stand IN ('finished', 'failed')
    )
  )
WHERE run_id = :run_id;

-- name: wake_waiting
UPDATE harborage_standings INDEXED BY harborage_standings_waiting SET is_woken = 1
WHERE waits_for <> '' AND waits_for = :run_id AND stand = 'parked' AND NOT is_woken;

-- name: extent
SELECT number, entries FROM harborage_standings WHERE run_id = :run_id;

-- name: read
SELECT position, crc, data FROM harborage_entries WHERE run = :run AND position > :after ORDER BY position;

-- name: body
SELECT body.data
FROM harborage_standings AS run
JOIN harborage_run_bodies AS named ON named.run = run.number AND named.digest = :digest
JOIN harborage_bodies AS body ON body.digest = named.digest
WHERE run.run_id = :run_id;

-- name: number
SELECT number FROM harborage_runs WHERE run_id = :run_id;

-- name: find
SELECT
  run.run_id, tenant_id, user_id, session_id, who_run_id, goal, run.agent, created_at,
  stand, reason, wake_at, waits_for, owner, fence, entries, updated_at, run.number
FROM harborage_runs AS run JOIN harborage_standings AS standing USING (run_id)
WHERE run.run_id = :run_id;

-- name: salvage
-- A run of which something cannot be read, its texts as bytes.
SELECT
  CAST(run.run_id AS BLOB), CAST(tenant_id AS BLOB), CAST(user_id AS BLOB), CAST(session_id AS BLOB),
  CAST(who_run_id AS BLOB), CAST(goal AS BLOB), CAST(run.agent AS BLOB), fence, entries
FROM harborage_runs AS run JOIN harborage_standings AS standing USING (number)
WHERE run.number = :number;

-- name: list
SELECT
  run.run_id, tenant_id, user_id, session_id, who_run_id, goal, run.agent, created_at,
  stand, reason, wake_at, waits_for, owner, fence, entries, updated_at, run.number
FROM harborage_runs AS run CROSS JOIN harborage_standings AS standing USING (run_id)
WHERE
  run.number > :after
  AND (:user_id = '' OR user_id = :user_id)
  AND (:session_id = '' OR session_id = :session_id)
ORDER BY run.number LIMIT :limit;

-- name: list_tenant
SELECT
  run.run_id, tenant_id, user_id, session_id, who_run_id, goal, run.agent, created_at,
  stand, reason, wake_at, waits_for, owner, fence, entries, updated_at, run.number
FROM harborage_runs AS run CROSS JOIN harborage_standings AS standing USING (run_id)
WHERE
  tenant_id = :tenant_id AND run.number > :after
  AND (:user_id = '' OR user_id = :user_id)
  AND (:session_id = '' OR session_id = :session_id)
  AND (:agent = '' OR run.agent = :agent)
  AND (:stands = '' OR instr(:stands, '|' || stand || '|'))
ORDER BY run.number LIMIT :limit;

-- name: list_session
SELECT
  run.run_id, tenant_id, user_id, session_id, who_run_id, goal, run.agent, created_at,
  stand, reason, wake_at, waits_for, owner, fence, entries, updated_at, run.number
FROM harborage_runs AS run CROSS JOIN harborage_standings AS standing USING (run_id)
WHERE
  tenant_id = :tenant_id AND user_id = :user_id AND session_id = :session_id AND run.number > :after
  AND (:agent = '' OR run.agent = :agent)
  AND (:stands = '' OR instr(:stands, '|' || stand || '|'))
ORDER BY run.number LIMIT :limit;

-- name: list_agent
SELECT
  run.run_id, tenant_id, user_id, session_id, who_run_id, goal, run.agent, created_at,
  stand, reason, wake_at, waits_for, owner, fence, entries, updated_at, run.number
FROM harborage_runs AS run CROSS JOIN harborage_standings AS standing USING (run_id)
WHERE
  run.agent = :agent AND run.number > :after
  AND (:user_id = '' OR user_id = :user_id)
  AND (:session_id = '' OR session_id = :session_id)
  AND (:stands = '' OR instr(:stands, '|' || stand || '|'))
ORDER BY run.number LIMIT :limit;

-- name: list_stand
SELECT
  run.run_id, tenant_id, user_id, session_id, who_run_id, goal, run.agent, created_at,
  stand, reason, wake_at, waits_for, owner, fence, entries, updated_at, run.number
FROM harborage_standings AS standing CROSS JOIN harborage_runs AS run USING (run_id)
WHERE
  stand = :stand AND standing.number > :after
  AND (:user_id = '' OR user_id = :user_id)
  AND (:session_id = '' OR session_id = :session_id)
ORDER BY standing.number LIMIT :limit;

-- name: drop_run
DELETE FROM harborage_runs WHERE run_id = :run_id RETURNING number;

-- name: drop_standing
DELETE FROM harborage_standings WHERE run_id = :run_id;

-- name: drop_entries
DELETE FROM harborage_entries WHERE run = :run;

-- name: drop_controls
DELETE FROM harborage_controls WHERE run = :run;

-- name: drop_names
DELETE FROM harborage_run_bodies WHERE run = :run RETURNING digest;

-- name: drop_body
DELETE FROM harborage_bodies
WHERE
  digest = :digest AND NOT EXISTS (SELECT 1 FROM harborage_run_bodies AS named WHERE named.digest = :digest);
