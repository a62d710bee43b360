-- What is wrong, and what is deleted.

-- name: paused_for_nothing
select run.run_id from harborage_runs as run
where
  run.status < 3 and run.status = 2
  and run.owner is null and not run.woken and run.blocked is null and run.wake_at is null and run.awaits is null
  and not exists (select from harborage_pauses as pause where pause.run = run.run_id and pause.status = 'open')
limit :limit;

-- name: parent_ended
-- Begun at what is live, which is little, and looked up one by one.
select run.run_id from harborage_runs as run
where run.status < 3 and run.cascades and run.parent is not null
  and (select parent.status >= 3 from harborage_runs as parent where parent.run_id = run.parent)
limit :limit;

-- name: pause_of_ended
select pause.token, pause.run from harborage_pauses as pause
where pause.status = 'open' and (select run.status >= 3 from harborage_runs as run where run.run_id = pause.run)
limit :limit;

-- name: delete
-- Ended runs with all that only they have; the reference from a name to its body keeps a body that others name.
with ended as materialized (
  select num, run_id from harborage_runs where run_id = any(:run_ids::text[]) and status >= 3
  order by num
  for update
),
entries as (
  delete from harborage_journal where run = any(array(select num from ended))
),
controls as (
  delete from harborage_controls where run = any(array(select num from ended))
),
pauses as (
  delete from harborage_pauses where run = any(array(select run_id from ended))
),
names as (
  delete from harborage_run_bodies where run = any(array(select num from ended)) returning body
),
bodies as (
  delete from harborage_bodies where num = any(array(
    select names.body from names
    where not exists (
      select from harborage_run_bodies as other
      where other.body = names.body and other.run <> all(array(select num from ended))
    )
  ))
)
delete from harborage_runs where num = any(array(select num from ended)) returning num;

-- name: drop_pauses
delete from harborage_pauses
where num = any(array(select num from harborage_pauses where run = '' and settled_at < :before limit 1000))
returning num;

-- name: patch
select patch.decision, patch.created_at, patch.decided_at
from harborage_patches as patch join harborage_sessions as session on session.num = patch.session
where
  session.tenant = :tenant and session."user" = :user and session.session = :session and patch.patch_id = :patch_id;
