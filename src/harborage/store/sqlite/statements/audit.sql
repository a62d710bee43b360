-- What only a check of everything asks: rows that others speak of and that are gone, and what was sent.

-- name: rows_gone
-- Runs whose row is gone while something else of them is kept.
SELECT spoken.number
FROM (
  SELECT DISTINCT run AS number FROM harborage_journal
  UNION SELECT DISTINCT run FROM harborage_controls
  UNION SELECT DISTINCT run FROM harborage_run_bodies
) AS spoken
WHERE NOT EXISTS (SELECT 1 FROM harborage_runs AS run WHERE run.num = spoken.number)
ORDER BY spoken.number;

-- name: first_entry
SELECT data FROM harborage_journal WHERE run = :number AND position = 1;

-- name: controls_gone
-- Runs for which more controls wait than are kept.
SELECT CAST(run.run_id AS BLOB), run.unread FROM harborage_runs AS run
WHERE run.unread > (
  SELECT count(*) FROM harborage_controls AS control WHERE control.run = run.num AND control.consumed IS NULL
)
ORDER BY run.num;

-- name: waiting_controls
SELECT control.num, CAST(coalesce(run.run_id, '') AS BLOB), CAST(control.event_id AS BLOB), control.sent_at, control.data
FROM harborage_controls AS control LEFT JOIN harborage_runs AS run ON run.num = control.run
WHERE control.num > :after AND control.consumed IS NULL
ORDER BY control.num LIMIT :limit;

-- name: sessions_gone
-- Sessions that are known by their runs or events alone.
SELECT spoken.session
FROM (
  SELECT DISTINCT session FROM harborage_runs
  UNION SELECT DISTINCT session FROM harborage_events
) AS spoken
WHERE NOT EXISTS (SELECT 1 FROM harborage_sessions AS known WHERE known.num = spoken.session);
