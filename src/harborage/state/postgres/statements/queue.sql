-- Runs: which of them are ready, and what is sent to them.

-- name: claim
-- First those that nobody carries, then those of workers that are dead, then what an earlier claim took although its
-- answer was lost.
with signed as (
  insert into harborage_workers as known (worker, expires_at) values ($1, clock_timestamp() + $2::interval)
  on conflict (worker) do update set expires_at = excluded.expires_at
  where known.expires_at < excluded.expires_at - $2::interval / 2
),
ready as (
  -- Along the index, so that the runs that only wait cost nothing.
  select number from harborage_runs
  where owner = '' and ready_at <= $3 and ($5 = '' or agent in ('', $5))
  order by ready_at, number limit $6
  for no key update skip locked
),
blocked as (
  select number from harborage_runs
  where
    $4::boolean and owner = '' and ready_at = 'infinity' and stand = 'blocked' and ($5 = '' or agent in ('', $5))
    and number > coalesce((select first.number from harborage_runs as first where first.run_id = $9), 0)
  order by ready_at, number limit $6 - (select count(*) from ready)
  for no key update skip locked
),
orphaned as (
  select run.number from harborage_runs as run
  where
    run.owner <> '' and run.owner <> $1 and (run.stand <> 'blocked' or $4::boolean)
    and ($5 = '' or run.agent in ('', $5))
    and not exists (
      select from harborage_workers as known
      where
        known.worker = run.owner
        and (known.expires_at > clock_timestamp() or exists (
          select from pg_locks as held
          where
            held.locktype = 'advisory' and held.objsubid = 1 and held.granted
            and held.database = (select oid from pg_database where datname = current_database())
            and held.classid = (known.lock_key >> 32)::oid and held.objid = (known.lock_key & 4294967295)::oid
        ))
    )
  order by run.number + 0 limit $6 - (select count(*) from ready) - (select count(*) from blocked)
  for no key update of run skip locked
),
taken as (
  update harborage_runs as run set owner = $1, fence = run.fence + 1, is_woken = false, change = $7
  where run.number = any(array(
    select number from ready union all select number from blocked union all select number from orphaned
  ))
  returning run.*
)
select
  number, run_id, tenant_id, user_id, session_id, who_run_id, goal, agent, created_at, updated_at,
  stand, reason, wake_at, waits_for, owner, fence, entries
from taken
union all
select
  number, run_id, tenant_id, user_id, session_id, who_run_id, goal, agent, created_at, updated_at,
  stand, reason, wake_at, waits_for, owner, fence, entries
from harborage_runs
where owner = $1 and owner <> '' and change = any($8::bigint[])
order by number;

-- name: send
-- The row of the run is locked first: it cannot end meanwhile. Then that of the counter, until this is kept, so that
-- whoever has seen a number has seen every smaller one. Without `is_there` no such run goes on; `number` is null for an
-- event id that is there already, and where `is_full`: as many controls wait as may.
with target as materialized (
  select number, taken from harborage_runs where run_id = $1 and stand not in ('finished', 'failed') for no key update
),
unknown as materialized (
  select target.number, target.taken from target
  where not exists (
    select from harborage_controls as control where control.run = target.number and control.event_id = $2
  )
),
fresh as materialized (
  select unknown.number from unknown
  where $5::integer = 0 or $5::integer > (
    select count(*) from (
      select from harborage_controls as control
      where control.run = unknown.number and control.number > unknown.taken limit $5::integer
    ) as waiting
  )
),
counted as (
  update harborage_counters set last = last + 1 where name = 'controls' and exists (select from fresh) returning last
),
kept as (
  insert into harborage_controls (run, number, event_id, data)
  select fresh.number, counted.last, $2, $3 from fresh cross join counted
  on conflict on constraint harborage_controls_event do nothing
  returning run, number
),
waiting as (
  update harborage_runs as run set sent = kept.number from kept where run.number = kept.run
  returning pg_notify('harborage', $4)
)
select
  exists (select from target) as is_there, (select number from kept) as number,
  exists (select from unknown) and not exists (select from fresh) as is_full, (select count(*) from waiting);

-- name: arrived
select control.number, run.run_id, control.event_id, control.data
from
  harborage_runs as run
  join harborage_controls as control on control.run = run.number and control.number > greatest(run.taken, $2)
where run.owner = $1 and run.owner <> '' and run.sent > greatest(run.taken, $2)
order by control.number;

-- name: wake
with woken as (
  update harborage_runs set is_woken = true
  where run_id = $1 and (stand = 'parked' or owner <> '') and not is_woken
  returning 1
)
select pg_notify('harborage', $2) from woken;

-- name: next_wake
select ready_at from harborage_runs
where owner = '' and ready_at > '-infinity' and ready_at < 'infinity' and ($1::text = '' or agent in ('', $1))
order by ready_at, number limit 1;

-- name: keep_alive
-- The worker's sign of life. The runs of those become free that no row knows, or whose last sign is old and that hold
-- no lock. Returns how many did.
with signed as (
  insert into harborage_workers (worker, expires_at, lock_key) values ($1, clock_timestamp() + $2::interval, $3)
  on conflict (worker) do update set expires_at = excluded.expires_at, lock_key = excluded.lock_key
),
orphaned as (
  select run.number from harborage_runs as run
  where
    run.owner <> '' and run.owner <> $1
    and not exists (
      select from harborage_workers as known
      where
        known.worker = run.owner
        and (known.expires_at > clock_timestamp() or exists (
          select from pg_locks as held
          where
            held.locktype = 'advisory' and held.objsubid = 1 and held.granted
            and held.database = (select oid from pg_database where datname = current_database())
            and held.classid = (known.lock_key >> 32)::oid and held.objid = (known.lock_key & 4294967295)::oid
        ))
    )
  for no key update of run skip locked
),
freed as (
  update harborage_runs as run set owner = '', is_woken = true
  where run.number = any(array(select number from orphaned))
  returning 1
)
select count(*) from freed;

-- name: lock
select pg_advisory_lock($1);

-- name: is_locked_here
-- Whether this session holds the lock; false behind a pooler that has more than one for us.
select exists (
  select from pg_locks as held
  where
    held.locktype = 'advisory' and held.objsubid = 1 and held.granted and held.pid = pg_backend_pid()
    and held.classid = ($1::bigint >> 32)::oid and held.objid = ($1::bigint & 4294967295)::oid
);

-- name: others
-- The other workers, and whether each holds the lock that its row names.
with held as materialized (
  select classid, objid from pg_locks
  where
    locktype = 'advisory' and objsubid = 1 and granted
    and database = (select oid from pg_database where datname = current_database())
)
select
  known.worker, known.expires_at, known.lock_key, known.expires_at <= clock_timestamp() as is_expired,
  exists (
    select from held
    where held.classid = (known.lock_key >> 32)::oid and held.objid = (known.lock_key & 4294967295)::oid
  ) as is_locked
from harborage_workers as known
where known.worker <> $1;

-- name: bury
-- Free what a dead worker carried, unless it has given a sign since it was looked at. Returns how many runs are free.
with gone as (
  delete from harborage_workers where worker = $1 and expires_at = $2 and lock_key is not distinct from $3
  returning worker
),
freed as (
  update harborage_runs set owner = '', is_woken = true
  where owner = $1 and owner <> '' and exists (select from gone)
  returning 1
)
select count(*) from freed;

-- name: free
-- The worker carries nothing any more.
with gone as (
  delete from harborage_workers where worker = $1
),
freed as (
  update harborage_runs set owner = '', is_woken = true where owner = $1 and owner <> '' returning 1
)
select count(*) from freed;
