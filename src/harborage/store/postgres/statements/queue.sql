-- Which worker executes which run, and which workers are alive.

-- name: inboxes
select run.run_id, (
  select max(control.num) from harborage_controls as control where control.run = run.num and control.consumed is null
)
from harborage_runs as run where run.owner = :worker and run.unread > 0;

-- name: next_due
select case when exists (
  select from harborage_runs
  where owner is null and woken and blocked is null and (:agents::text[] is null or agent = '' or agent = any(:agents::text[]))
) then 0 else (
  select min(wake_at) from harborage_runs
  where wake_at is not null and owner is null and not woken and (:agents::text[] is null or agent = '' or agent = any(:agents::text[]))
) end;

-- name: block
-- Only by the worker that claimed it; after this no worker holds it.
update harborage_runs set blocked = :reason, owner = null, wake_at = null, awaits = null
where num = :num and owner = :worker and fence = :fence;

-- name: unblock
with stuck as materialized (
  select num from harborage_runs where run_id = any(:run_ids::text[]) and blocked is not null
  order by num
  for no key update
)
update harborage_runs as run set blocked = null, attempts = 0, woken = run.status < 3 and run.position > 0
from stuck where run.num = stuck.num
returning run.num;

-- name: free
with held as materialized (
  select num from harborage_runs where owner = :worker and owner is not null
  order by num
  for no key update
)
update harborage_runs as run set owner = null, woken = true
from held where run.num = held.num
returning run.num;

-- name: free_strays
-- The runs that no worker known to this store holds.
with strays as materialized (
  select num from harborage_runs
  where owner is not null and owner <> all(array(select name from harborage_workers))
  order by num
  for no key update
)
update harborage_runs as run set owner = null, woken = true
from strays where run.num = strays.num
returning run.num;

-- name: beat
insert into harborage_workers (name, beat, is_locking) values (:worker, 1, :is_locking)
on conflict (name) do update set beat = harborage_workers.beat + 1, is_locking = excluded.is_locking;

-- name: others
-- The other workers, and whether the lock that is named after each is held.
with held as materialized (
  select classid, objid from pg_locks
  where
    locktype = 'advisory' and objsubid = 1 and granted
    and database = (select oid from pg_database where datname = current_database())
),
known as (
  select name, num, beat, is_locking, hashtextextended('harborage worker ' || name || ' in ' || current_schema(), 0) as key
  from harborage_workers where name <> :worker
)
select
  known.name, known.num, known.beat,
  not known.is_locking or exists (
    select from held
    where held.classid = ((known.key >> 32) & 4294967295)::oid and held.objid = (known.key & 4294967295)::oid
  )
from known;

-- name: bury
delete from harborage_workers where num = :num and beat = :beat returning num;

-- name: leave
delete from harborage_workers where name = :worker;

-- name: lock
select pg_try_advisory_lock(hashtextextended('harborage worker ' || :worker::text || ' in ' || current_schema(), 0));

-- name: unlock
select pg_advisory_unlock(hashtextextended('harborage worker ' || :worker::text || ' in ' || current_schema(), 0));

-- name: is_locked_here
-- Whether this session holds the lock; false behind a pooler that has more than one for us.
with wanted as (
  select hashtextextended('harborage worker ' || :worker::text || ' in ' || current_schema(), 0) as key
)
select exists (
  select from pg_locks as held, wanted
  where
    held.locktype = 'advisory' and held.objsubid = 1 and held.granted and held.pid = pg_backend_pid()
    and held.classid = ((wanted.key >> 32) & 4294967295)::oid and held.objid = (wanted.key & 4294967295)::oid
);

-- name: notify
select pg_notify('harborage', :stamp);
