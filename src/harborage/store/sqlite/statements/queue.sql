-- Which worker executes which run.

-- name: fall_due
-- Those of other agents are left to fall due for their own workers, who ask when that will be.
UPDATE harborage_runs SET woken = 1
WHERE wake_at IS NOT NULL AND wake_at <= :now AND owner IS NULL AND NOT woken
  AND (:agents IS NULL OR agent = '' OR agent IN (SELECT value FROM json_each(:agents)));

-- name: ready
SELECT num, attempts FROM harborage_runs INDEXED BY harborage_runs_ready
WHERE owner IS NULL AND woken > 0 AND blocked IS NULL AND (:agents IS NULL OR agent = '' OR agent IN (SELECT value FROM json_each(:agents)))
ORDER BY priority DESC, num LIMIT :limit;

-- name: take
UPDATE harborage_runs SET
  owner = :worker, fence = fence + 1, attempts = attempts + 1, woken = 0, wake_at = NULL,
  status = CASE WHEN status = 0 AND :starts THEN 1 ELSE status END
WHERE num = :num AND owner IS NULL AND woken AND blocked IS NULL AND status < 3
RETURNING fence;

-- name: block
UPDATE harborage_runs SET blocked = :reason WHERE num = :num;

-- name: unblock
UPDATE harborage_runs SET blocked = NULL, attempts = 0, woken = (status < 3 AND position > 0)
WHERE run_id = :run_id AND blocked IS NOT NULL
RETURNING num;

-- name: inboxes
SELECT run.run_id, (
  SELECT max(control.num) FROM harborage_controls AS control WHERE control.run = run.num AND control.consumed IS NULL
)
FROM harborage_runs AS run INDEXED BY harborage_runs_inbox WHERE run.owner = :worker AND run.unread > 0;

-- name: inboxes_raw
-- Where the id of one is no text.
SELECT CAST(run.run_id AS BLOB), (
  SELECT max(control.num) FROM harborage_controls AS control WHERE control.run = run.num AND control.consumed IS NULL
)
FROM harborage_runs AS run INDEXED BY harborage_runs_inbox WHERE run.owner = :worker AND run.unread > 0;

-- name: next_due
SELECT CASE WHEN EXISTS (
  SELECT 1 FROM harborage_runs INDEXED BY harborage_runs_ready
  WHERE owner IS NULL AND woken > 0 AND blocked IS NULL AND (:agents IS NULL OR agent = '' OR agent IN (SELECT value FROM json_each(:agents)))
) THEN 0 ELSE (
  SELECT min(wake_at) FROM harborage_runs
  WHERE wake_at IS NOT NULL AND owner IS NULL AND NOT woken AND (:agents IS NULL OR agent = '' OR agent IN (SELECT value FROM json_each(:agents)))
) END;

-- name: free
UPDATE harborage_runs SET owner = NULL, woken = 1 WHERE owner = :worker AND owner IS NOT NULL RETURNING num;

-- name: free_strays
UPDATE harborage_runs SET owner = NULL, woken = 1
WHERE owner IS NOT NULL AND owner NOT IN (SELECT name FROM harborage_workers)
RETURNING num;

-- name: join
INSERT INTO harborage_workers (name, beat) VALUES (:worker, 1) ON CONFLICT (name) DO UPDATE SET beat = beat + 1;

-- name: workers
SELECT name, num, beat FROM harborage_workers WHERE name <> :worker;

-- name: bury
DELETE FROM harborage_workers WHERE num = :num AND beat = :beat RETURNING num;

-- name: leave
DELETE FROM harborage_workers WHERE name = :worker;
