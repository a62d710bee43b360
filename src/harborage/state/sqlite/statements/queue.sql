-- Runs: which of them are ready, who carries them, and what is sent to them. Where an index is named, SQLite would
-- otherwise walk all parked runs.

-- name: fall_due
UPDATE harborage_standings INDEXED BY harborage_standings_due SET is_woken = 1
WHERE owner = '' AND stand = 'parked' AND wake_at IS NOT NULL AND NOT is_woken AND wake_at <= :now;

-- name: ready
SELECT number, run_id FROM harborage_standings INDEXED BY harborage_standings_ready
WHERE owner = '' AND (stand = 'ready' OR (stand = 'parked' AND (is_woken OR sent > taken)))
ORDER BY number LIMIT :limit;

-- name: ready_of_agent
SELECT number, run_id FROM harborage_standings INDEXED BY harborage_standings_ready_agent
WHERE
  owner = '' AND (stand = 'ready' OR (stand = 'parked' AND (is_woken OR sent > taken)))
  AND agent = :agent
ORDER BY number LIMIT :limit;

-- name: blocked
SELECT number, run_id FROM harborage_standings
WHERE
  stand = 'blocked' AND owner = ''
  AND number > coalesce((SELECT first.number FROM harborage_standings AS first WHERE first.run_id = :behind), 0)
  AND (:agent = '' OR agent IN ('', :agent))
ORDER BY number LIMIT :limit;

-- name: take
UPDATE harborage_standings SET owner = :worker, fence = fence + 1, is_woken = 0
WHERE run_id = :run_id
RETURNING fence;

-- name: is_held
SELECT 1 FROM harborage_standings WHERE run_id = :run_id AND owner = :worker AND fence = :fence;

-- name: open_run
SELECT number FROM harborage_standings WHERE run_id = :run_id AND stand NOT IN ('finished', 'failed');

-- name: add_control
-- No row: the run has taken this event id before.
INSERT INTO harborage_controls (run, event_id, data) VALUES (:run, :event_id, :data)
ON CONFLICT DO NOTHING
RETURNING number;

-- name: is_full
-- A row: more than so many controls wait for the run, that one included which was just added.
SELECT 1 FROM harborage_standings AS run
JOIN harborage_controls AS control ON control.run = run.number AND control.number > run.taken
WHERE run.run_id = :run_id
ORDER BY control.number LIMIT 1 OFFSET :limit;

-- name: keep_sent
UPDATE harborage_standings SET sent = :number WHERE run_id = :run_id;

-- name: arrived
SELECT control.number, run.run_id, control.event_id, control.data
FROM harborage_standings AS run INDEXED BY harborage_standings_inbox
JOIN harborage_controls AS control ON control.run = run.number AND control.number > max(run.taken, :after)
WHERE run.owner = :worker AND run.sent > run.taken
ORDER BY control.number;

-- name: wake
UPDATE harborage_standings SET is_woken = 1
WHERE run_id = :run_id AND (stand = 'parked' OR owner <> '') AND NOT is_woken
RETURNING 1;

-- name: next_wake
SELECT wake_at FROM harborage_standings INDEXED BY harborage_standings_due
WHERE
  owner = '' AND stand = 'parked' AND wake_at IS NOT NULL AND NOT is_woken
  AND (:agent = '' OR agent IN ('', :agent))
ORDER BY wake_at LIMIT 1;

-- name: sign
-- The first sign of life of a worker; one that gives it already is not written again.
INSERT INTO harborage_workers (worker, seen_at) VALUES (:worker, :now) ON CONFLICT DO NOTHING;

-- name: beat
INSERT INTO harborage_workers (worker, seen_at) VALUES (:worker, :now)
ON CONFLICT (worker) DO UPDATE SET seen_at = excluded.seen_at;

-- name: sent
-- A control that `arrived` could not read.
SELECT control.number, run.run_id, CAST(control.event_id AS BLOB), control.data
FROM harborage_controls AS control JOIN harborage_standings AS run ON run.number = control.run
WHERE control.number = :number;

-- name: block
-- A run whose row cannot be read, by its number, which can.
UPDATE harborage_standings SET stand = 'blocked', reason = :reason, wake_at = NULL, updated_at = :now
WHERE number = :number;

-- name: other_workers
SELECT CAST(worker AS BLOB), seen_at FROM harborage_workers WHERE worker <> :worker;

-- name: drop_worker
DELETE FROM harborage_workers WHERE worker = :worker;

-- name: free_strays
-- What is carried by a worker that no row knows: a row was lost, and nobody else would ever free it.
UPDATE harborage_standings SET owner = '', is_woken = 1
WHERE owner <> '' AND NOT EXISTS (SELECT 1 FROM harborage_workers AS known WHERE known.worker = owner)
RETURNING number;

-- name: free
-- What a worker carried is looked at again by the next, parked or not: nobody knows what it had been told.
UPDATE harborage_standings SET owner = '', is_woken = 1 WHERE owner <> '' AND owner = :worker RETURNING run_id;
