-- Events by session.

-- name: append
insert into harborage_logged (tenant_id, user_id, session_id, sequence, data)
select * from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bytea[]);

-- name: append_missing
insert into harborage_logged (tenant_id, user_id, session_id, sequence, data)
select * from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bytea[])
on conflict do nothing;

-- name: other
-- The first of these events whose number stands for another one.
select session_id, sequence
from
  unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bytea[])
    as given (tenant_id, user_id, session_id, sequence, data)
  join harborage_logged as kept using (tenant_id, user_id, session_id, sequence)
where kept.data <> given.data
order by sequence
limit 1;

-- name: last
select coalesce(max(sequence), 0) from harborage_logged where tenant_id = $1 and user_id = $2 and session_id = $3;

-- name: read
select sequence, data from harborage_logged
where tenant_id = $1 and user_id = $2 and session_id = $3 and sequence > $4
order by sequence
limit $5;

-- name: forget
delete from harborage_logged where tenant_id = $1 and user_id = $2 and session_id = $3;
