-- Records by slot.

-- name: save
-- One row: `is_new`, or the record that was saved under the same event id before. No row: another transaction saved the
-- slot at this moment, so try again.
with saved as (
  insert into harborage_records as kept
    (tenant_id, user_id, session_id, run_id, kind, event_id, data, version, updated_at)
  values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
  on conflict (tenant_id, user_id, session_id, run_id, kind) do update set
    event_id = excluded.event_id,
    data = excluded.data,
    version = excluded.version,
    updated_at = excluded.updated_at
  where kept.event_id <> excluded.event_id
  returning event_id
)
select true as is_new, null::bytea as data, null::bigint as version from saved
union all
select false, kept.data, kept.version
from harborage_records as kept
where
  kept.tenant_id = $1 and kept.user_id = $2 and kept.session_id = $3 and kept.run_id = $4 and kept.kind = $5
  and kept.event_id = $6 and not exists (select from saved);

-- name: swap
-- A row: the slot held what $10 wrote, or nothing where that is empty, and holds the record now.
with changed as (
  update harborage_records set event_id = $6, data = $7, version = $8, updated_at = $9
  where
    $10::text <> '' and tenant_id = $1 and user_id = $2 and session_id = $3 and run_id = $4 and kind = $5
    and event_id = $10
  returning 1
),
made as (
  insert into harborage_records
    (tenant_id, user_id, session_id, run_id, kind, event_id, data, version, updated_at)
  select $1, $2, $3, $4, $5, $6, $7, $8, $9 where $10 = ''
  on conflict (tenant_id, user_id, session_id, run_id, kind) do nothing
  returning 1
)
select 1 from changed union all select 1 from made;

-- name: load
select run_id, kind, event_id, data, version, updated_at from harborage_records
where tenant_id = $1 and user_id = $2 and session_id = $3 and run_id = $4 and kind = $5;

-- name: load_by_event_id
select run_id, kind, event_id, data, version, updated_at from harborage_records
where tenant_id = $1 and user_id = $2 and session_id = $3 and event_id = $4;

-- name: delete
delete from harborage_records
where tenant_id = $1 and user_id = $2 and session_id = $3 and run_id = $4 and kind = $5;
