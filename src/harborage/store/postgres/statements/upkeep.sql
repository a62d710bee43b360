-- What is wrong, and what is deleted.

-- name: paused_for_nothing
select run.run_id from harborage_runs as run
where
  run.status < 3 and run.status = 2
  and run.owner is null and not run.woken and run.blocked is null and run.wake_at is null and run.awaits is null
  and run.position > 0
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

-- name: group_not_ended
select one.group_id, one.owner from harborage_groups as one
where one.status in ('open', 'sealed', 'ending') and one.status <> 'open' and one.members > 0 and one.open_members = 0
limit :limit;

-- name: delete
select harborage_delete(:run_ids::text[]);

-- name: drop_pauses
delete from harborage_pauses
where num = any(array(select num from harborage_pauses where run = '' and settled_at < :before limit 1000))
returning num;

-- name: patch
select patch.decision, patch.created_at, patch.decided_at
from harborage_patches as patch join harborage_sessions as session on session.num = patch.session
where
  session.tenant = :tenant and session."user" = :user and session.session = :session and patch.patch_id = :patch_id;
