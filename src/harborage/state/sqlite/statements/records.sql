-- Records by slot.

-- name: under_event_id
SELECT run_id, kind, event_id, data, version, updated_at FROM harborage_records
WHERE tenant_id = :tenant_id AND user_id = :user_id AND session_id = :session_id AND event_id = :event_id;

-- name: in_slot
SELECT run_id, kind, event_id, data, version, updated_at FROM harborage_records
WHERE
  tenant_id = :tenant_id AND user_id = :user_id AND session_id = :session_id AND run_id = :run_id AND kind = :kind;

-- name: put
INSERT INTO harborage_records (
  tenant_id, user_id, session_id, run_id, kind, event_id, data, version, updated_at
)
VALUES (:tenant_id, :user_id, :session_id, :run_id, :kind, :event_id, :data, :version, :updated_at)
ON CONFLICT (tenant_id, user_id, session_id, run_id, kind) DO UPDATE SET
  event_id = excluded.event_id, data = excluded.data, version = excluded.version, updated_at = excluded.updated_at;

-- name: drop
DELETE FROM harborage_records
WHERE
  tenant_id = :tenant_id AND user_id = :user_id AND session_id = :session_id AND run_id = :run_id AND kind = :kind;
