-- What only a check of everything asks: rows that others speak of and that are gone, and what was sent.

-- name: rows_gone
-- Runs of which one of the two rows is gone, or both while something else of the run is kept.
SELECT
  spoken.number, CAST(coalesce(run.run_id, stood.run_id) AS BLOB),
  run.number IS NULL, stood.number IS NULL
FROM (
  SELECT number FROM harborage_runs
  UNION SELECT number FROM harborage_standings
  UNION SELECT DISTINCT run FROM harborage_entries
  UNION SELECT DISTINCT run FROM harborage_controls
  UNION SELECT DISTINCT run FROM harborage_run_bodies
) AS spoken
LEFT JOIN harborage_runs AS run ON run.number = spoken.number
LEFT JOIN (SELECT number, run_id FROM harborage_standings) AS stood ON stood.number = spoken.number
WHERE run.number IS NULL OR stood.number IS NULL
ORDER BY spoken.number;

-- name: first_entry
SELECT data FROM harborage_entries WHERE run = :number AND position = 1;

-- name: controls_gone
-- Runs that go on, and whose last control is not kept: controls stay as long as their run.
SELECT CAST(run.run_id AS BLOB), run.sent FROM harborage_standings AS run
WHERE
  run.sent > 0 AND run.stand NOT IN ('finished', 'failed') AND NOT EXISTS (
    SELECT 1 FROM harborage_controls AS control WHERE control.number = run.sent AND control.run = run.number
  )
ORDER BY run.number;

-- name: controls
SELECT control.number, CAST(coalesce(run.run_id, '') AS BLOB), CAST(control.event_id AS BLOB), control.data
FROM harborage_controls AS control LEFT JOIN harborage_runs AS run ON run.number = control.run
WHERE control.number > :after
ORDER BY control.number LIMIT :limit;

-- name: sessions_gone
-- Lines of events whose session is not known.
SELECT DISTINCT event.session FROM harborage_events AS event
WHERE NOT EXISTS (SELECT 1 FROM harborage_sessions AS known WHERE known.number = event.session);
