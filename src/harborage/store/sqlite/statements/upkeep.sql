-- What is wrong, and what is deleted.

-- name: paused_for_nothing
SELECT run.run_id FROM harborage_runs AS run INDEXED BY harborage_runs_live
WHERE run.status < 3 AND run.status = 2
  AND run.owner IS NULL AND NOT run.woken AND run.blocked IS NULL AND run.wake_at IS NULL AND run.awaits IS NULL
  AND NOT EXISTS (SELECT 1 FROM harborage_pauses AS pause WHERE pause.run = run.run_id AND pause.status = 'open')
LIMIT :limit;

-- name: parent_ended
SELECT run.run_id FROM harborage_runs AS run INDEXED BY harborage_runs_live
CROSS JOIN harborage_runs AS parent ON parent.run_id = run.parent
WHERE run.status < 3 AND run.parent IS NOT NULL AND run.cascades AND parent.status >= 3
LIMIT :limit;

-- name: pause_of_ended
SELECT pause.token, pause.run FROM harborage_pauses AS pause
CROSS JOIN harborage_runs AS run ON run.run_id = pause.run
WHERE pause.status = 'open' AND run.status >= 3
LIMIT :limit;

-- name: delete_run
DELETE FROM harborage_runs WHERE run_id = :run_id AND status >= 3 RETURNING num;

-- name: delete_journal
DELETE FROM harborage_journal WHERE run = :run;

-- name: delete_controls
DELETE FROM harborage_controls WHERE run = :run;

-- name: delete_pauses
DELETE FROM harborage_pauses WHERE run = :run_id;

-- name: drop_pauses
DELETE FROM harborage_pauses
WHERE num IN (SELECT num FROM harborage_pauses WHERE run = '' AND settled_at < :before LIMIT 1000)
RETURNING num;

-- name: delete_names
DELETE FROM harborage_run_bodies WHERE run = :run RETURNING body;

-- name: delete_body
DELETE FROM harborage_bodies WHERE num = :num AND NOT EXISTS (SELECT 1 FROM harborage_run_bodies WHERE body = :num);
