-- Artifacts by scope and id.

-- name: known
select id, sha256, entry from harborage_artifacts
where tenant_id = $1 and user_id = $2 and session_id = $3 and task_id = $4 and id = any($5::bytea[]);

-- name: put
-- No row: another process took the id at this moment.
insert into harborage_artifacts (tenant_id, user_id, session_id, task_id, id, sha256, entry, data)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict do nothing
returning true;

-- name: entry
select entry from harborage_artifacts
where tenant_id = $1 and user_id = $2 and session_id = $3 and task_id = $4 and id = $5;

-- name: data
select sha256, data from harborage_artifacts
where tenant_id = $1 and user_id = $2 and session_id = $3 and task_id = $4 and id = $5;

-- name: delete
delete from harborage_artifacts
where tenant_id = $1 and user_id = $2 and session_id = $3 and task_id = $4 and id = $5
returning true;

-- name: list
select entry from harborage_artifacts
where
  ($1::bytea = '' or tenant_id = $1)
  and ($2::bytea = '' or user_id = $2)
  and ($3::bytea = '' or session_id = $3)
  and ($4::bytea = '' or task_id = $4);
