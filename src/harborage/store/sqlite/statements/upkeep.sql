-- What is wrong, and what is deleted.

-- name: paused_for_nothing
SELECT run.run_id FROM harborage_runs AS run INDEXED BY harborage_runs_live
WHERE run.status < 3 AND run.status = 2
  AND run.owner IS NULL AND NOT run.woken AND run.blocked IS NULL AND run.wake_at IS NULL AND run.awaits IS NULL
  AND run.position > 0
  AND run.run_id NOT IN (
    SELECT pause.run FROM harborage_pauses AS pause INDEXED BY harborage_pauses_open WHERE pause.status = 'open'
  )
LIMIT :limit;

-- name: parent_ended
SELECT run.run_id FROM harborage_runs AS run INDEXED BY harborage_runs_live
CROSS JOIN harborage_runs AS parent ON parent.run_id = run.parent
WHERE run.status < 3 AND run.parent IS NOT NULL AND run.cascades AND parent.status >= 3
LIMIT :limit;

-- name: pause_of_ended
-- The index has the run of a pause, so only what is found is read.
SELECT found.token, found.run FROM (
  SELECT pause.num FROM harborage_pauses AS pause INDEXED BY harborage_pauses_open
  CROSS JOIN harborage_runs AS run ON run.run_id = pause.run
  WHERE pause.status = 'open' AND run.status >= 3
  LIMIT :limit
) AS ended CROSS JOIN harborage_pauses AS found ON found.num = ended.num;

-- name: group_not_ended
SELECT one.group_id, one.owner FROM harborage_groups AS one
WHERE one.status IN ('open', 'sealed', 'ending') AND one.status <> 'open' AND one.members > 0 AND one.open_members = 0
LIMIT :limit;

-- name: delete_run
DELETE FROM harborage_runs WHERE run_id = :run_id AND status >= 3 RETURNING num, session, grp;

-- name: delete_group
-- With the last of its members, if it has ended.
DELETE FROM harborage_groups
WHERE session = :session AND group_id = :group_id AND status IN ('completed', 'cancelled') AND NOT EXISTS (
  SELECT 1 FROM harborage_runs AS run WHERE run.grp = :group_id AND run.grp IS NOT NULL AND run.session = :session
);

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
