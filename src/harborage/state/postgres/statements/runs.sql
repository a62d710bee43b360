-- Runs: their records, and who carries them.

-- name: create
-- A row means that the run is new.
with made as (
  insert into harborage_runs (
    run_id, tenant_id, user_id, session_id, who_run_id, goal, agent, created_at, updated_at,
    stand, reason, wake_at, waits_for, is_woken, change, entries
  )
  values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, cardinality($17::bytea[]))
  on conflict (run_id) do nothing
  returning number
),
kept as (
  insert into harborage_entries (run, position, crc, data)
  select made.number, one.place, one.crc, one.data
  from made cross join unnest($16::bigint[], $17::bytea[]) with ordinality as one (crc, data, place)
),
bodies as (
  insert into harborage_bodies (digest, data)
  select one.digest, one.data from made cross join unnest($18::text[], $19::bytea[]) as one (digest, data)
  on conflict do nothing
),
named as (
  insert into harborage_run_bodies (run, digest)
  select made.number, one.digest from made cross join unnest($18::text[]) as one (digest)
)
select pg_notify('harborage', $20) from made;

-- name: change
-- A row means that the worker holds the run and everything was written. A null standing leaves the run's as it is.
with held as (
  update harborage_runs set
    entries = entries + cardinality($7::bytea[]),
    updated_at = $4,
    change = $5,
    taken = greatest(taken, $8),
    stand = coalesce($11, stand),
    reason = coalesce($12, reason),
    wake_at = case when $11::text is null then wake_at else $13 end,
    waits_for = coalesce($14, waits_for),
    is_woken = is_woken or $15,
    owner = case when $16 or $11 in ('finished', 'failed') then '' else owner end
  where run_id = $1 and owner = $2 and owner <> '' and fence = $3 and change <> $5 -- not made already, unheard
  returning number, entries - cardinality($7::bytea[]) as before
),
kept as (
  insert into harborage_entries (run, position, crc, data)
  select held.number, held.before + one.place, one.crc, one.data
  from held cross join unnest($6::bigint[], $7::bytea[]) with ordinality as one (crc, data, place)
),
bodies as (
  insert into harborage_bodies (digest, data)
  select one.digest, one.data from held cross join unnest($9::text[], $10::bytea[]) as one (digest, data)
  on conflict do nothing
),
named as (
  insert into harborage_run_bodies (run, digest)
  select held.number, one.digest from held cross join unnest($9::text[]) as one (digest)
  on conflict do nothing
)
select case when $17::text is not null then pg_notify('harborage', $17) end from held;

-- name: is_changed
-- Whether this was the last change of the run: asked when the answer to it was lost.
select from harborage_runs where run_id = $1 and change = $2;

-- name: is_over
-- Locks the row: the run cannot end between this answer and the end of the transaction that parks another one on it.
select stand in ('finished', 'failed') from harborage_runs where run_id = $1 for share;

-- name: wake_waiting
update harborage_runs set is_woken = true
where waits_for = $1 and waits_for <> '' and stand = 'parked' and not is_woken;

-- name: read
select run.entries, entry.position, entry.crc, entry.data
from harborage_runs as run left join harborage_entries as entry on entry.run = run.number and entry.position > $2
where run.run_id = $1
order by entry.position;

-- name: body
select body.data
from
  harborage_runs as run
  join harborage_run_bodies as named on named.run = run.number and named.digest = $2
  join harborage_bodies as body on body.digest = named.digest
where run.run_id = $1;

-- name: number
select number from harborage_runs where run_id = $1;

-- name: find
select
  run_id, tenant_id, user_id, session_id, who_run_id, goal, agent, created_at, updated_at,
  stand, reason, wake_at, waits_for, owner, fence, entries
from harborage_runs
where
  run_id = $1
  and number > $2
  and ($3 = '' or tenant_id = $3)
  and ($4 = '' or user_id = $4)
  and ($5 = '' or session_id = $5)
  and ($6 = '' or agent = $6)
  and (cardinality($7::text[]) = 0 or stand = any($7));

-- name: list
select
  run_id, tenant_id, user_id, session_id, who_run_id, goal, agent, created_at, updated_at,
  stand, reason, wake_at, waits_for, owner, fence, entries
from harborage_runs
where
  number > $1
  and ($2 = '' or tenant_id = $2)
  and ($3 = '' or user_id = $3)
  and ($4 = '' or session_id = $4)
  and ($5 = '' or agent = $5)
  and (cardinality($6::text[]) = 0 or stand = any($6))
order by number
limit $7;

-- name: forget
with gone as (
  delete from harborage_runs where run_id = $1 returning number
),
entries as (
  delete from harborage_entries using gone where run = gone.number
),
controls as (
  delete from harborage_controls using gone where run = gone.number
),
named as (
  delete from harborage_run_bodies using gone where run = gone.number returning digest
)
select coalesce(array_agg(named.digest), '{}') as digests from gone left join named on true group by gone.number;

-- name: forget_bodies
delete from harborage_bodies as body
where
  body.digest = any($1::text[])
  and not exists (select from harborage_run_bodies as named where named.digest = body.digest);
