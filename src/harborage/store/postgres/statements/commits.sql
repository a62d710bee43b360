-- What is written: each change is one call of a function, which is one transaction (see the migrations).

-- name: commit
select harborage_commit(
  :writer, :batch, :now, :commits::jsonb, :blobs::bytea[], :tenants::text[], :users::text[], :sessions::text[],
  :opening::boolean[], :runs::text[], :ends::text[], :tokens::text[], :groups::text[], :waits
);

-- name: claim
select harborage_claim(:writer, :batch, :now, :worker, :agents, :limit, :attempts);

-- name: forget_writers
delete from harborage_writers
where name = any(:names::text[]) or seen_at < clock_timestamp() - interval '1 day';

-- name: entries
-- The count of the run's entries stands beside each of them, and alone where there are none.
select run.position, entry.position, entry.crc, entry.data
from harborage_runs as run
left join harborage_journal as entry on entry.run = run.num and entry.position > :after
where run.run_id = :run_id
order by entry.position;

-- name: entries_of_runs
select entry.run, entry.position, entry.crc, entry.data
from harborage_journal as entry
where entry.run = any(:nums::bigint[])
order by entry.run, entry.position;

-- name: body
select body.data
from harborage_bodies as body
join harborage_run_bodies as named on named.body = body.num
join harborage_runs as run on run.num = named.run
where body.digest = :digest and run.run_id = :run_id;

-- name: unread
select control.num, run.run_id, control.event_id, control.type, control.sent_at, control.data
from harborage_runs as run
join harborage_controls as control on control.run = run.num
where run.run_id = :run_id and control.consumed is null and control.num > :after
order by control.num limit :limit;

-- name: was_sent
select 1 from harborage_runs as run join harborage_controls as control on control.run = run.num
where run.run_id = :run_id and control.event_id = :event_id;

-- name: unread_of_runs
select control.num, run.run_id, control.event_id, control.type, control.sent_at, control.data
from unnest(:nums::bigint[]) as wanted (num)
join harborage_runs as run on run.num = wanted.num
cross join lateral (
  select * from harborage_controls as one
  where one.run = run.num and one.consumed is null
  order by one.num limit :limit
) as control
order by control.num;

-- name: unread_behind
select control.num, run.run_id, control.event_id, control.type, control.sent_at, control.data
from unnest(:run_ids::text[], :afters::bigint[]) as wanted (run_id, after)
join harborage_runs as run on run.run_id = wanted.run_id
cross join lateral (
  select * from harborage_controls as one
  where one.run = run.num and one.consumed is null and one.num > wanted.after
  order by one.num limit :limit
) as control
order by control.num;

-- name: open_session
select harborage_open_session(:tenant, :user, :session, :now, :context, :events::jsonb, :blobs::bytea[]);

-- name: touch_session
update harborage_sessions set seen_at = greatest(seen_at, :now::bigint)
where tenant = :tenant and "user" = :user and session = :session and context is not null and closed_at is null
  and (:before::bigint is null or seen_at < :before::bigint)
returning num;

-- name: close_session
-- Under the one lock for which the start of a run in it has to wait.
with held as materialized (
  select num from harborage_sessions
  where tenant = :tenant and "user" = :user and session = :session and context is not null for update
)
update harborage_sessions as session set closed_at = :now, close_reason = :reason
from held
where session.num = held.num and session.closed_at is null
  and (:seen_at::bigint is null or session.seen_at = :seen_at::bigint)
returning session.num;
