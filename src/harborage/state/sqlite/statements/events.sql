-- Events by session.

-- name: session
SELECT number FROM harborage_lines
WHERE tenant_id = :tenant_id AND user_id = :user_id AND session_id = :session_id;

-- name: add_session
INSERT INTO harborage_lines (tenant_id, user_id, session_id) VALUES (:tenant_id, :user_id, :session_id)
RETURNING number;

-- name: add
-- Adds nothing where the number is taken.
INSERT INTO harborage_logged (session, sequence, data) VALUES (:session, :sequence, :data) ON CONFLICT DO NOTHING;

-- name: under
SELECT data FROM harborage_logged WHERE session = :session AND sequence = :sequence;

-- name: last
SELECT max(sequence) FROM harborage_logged WHERE session = :session;

-- name: read
SELECT sequence, data FROM harborage_logged
WHERE session = :session AND sequence > :after
ORDER BY sequence LIMIT :limit;

-- name: drop_events
DELETE FROM harborage_logged WHERE session = :session;

-- name: drop_session
DELETE FROM harborage_lines WHERE number = :session;
