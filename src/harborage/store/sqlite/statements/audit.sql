-- The statements of a check of everything that only SQLite needs. Texts are read as bytes, for they may be damaged.

-- name: suspect_run_columns
SELECT run.num

-- name: run_texts
-- All of a run's texts as one, which cannot be read where one of them is none.
SELECT
  num, run_id || tenant || user || agent || coalesce(parent, '') || coalesce(root, '') || coalesce(grp, '') || kind
  || reason || coalesce(blocked, '') || description || about || coalesce(awaits, '') || coalesce(owner, '')
  || coalesce(idem, '') || fingerprint
FROM harborage_runs WHERE num > :after AND num <= :until;

-- name: run_numbers
SELECT num FROM harborage_runs WHERE num > :after AND num <= :until ORDER BY num;

-- name: run_name
SELECT CAST(run_id AS BLOB) FROM harborage_runs WHERE num = :number;

-- name: entries
SELECT entry.num, 0, entry.run, entry.position, entry.crc, entry.data, run.num IS NULL
FROM harborage_journal AS entry LEFT JOIN harborage_runs AS run ON run.num = entry.run
WHERE entry.num > :after ORDER BY entry.num LIMIT :size;

-- name: entries_last
SELECT num FROM harborage_journal WHERE num > 0 ORDER BY num DESC LIMIT 1;

-- name: bodies
SELECT body.num, CAST(body.digest AS BLOB), body.data, (
  SELECT CAST(run.run_id AS BLOB) FROM harborage_run_bodies AS named
  CROSS JOIN harborage_runs AS run ON run.num = named.run
  WHERE named.body = body.num LIMIT 1
)
FROM harborage_bodies AS body WHERE body.num > :after ORDER BY body.num LIMIT :size;

-- name: controls
SELECT
  control.num, control.run, CAST(coalesce(run.run_id, '') AS BLOB), CAST(control.event_id AS BLOB), control.sent_at,
  control.data, control.consumed IS NULL, run.num IS NULL
FROM harborage_controls AS control LEFT JOIN harborage_runs AS run ON run.num = control.run
WHERE control.num > :after ORDER BY control.num LIMIT :size;

-- name: pauses
SELECT
  pause.num, pause.status = 'open' AND pause.run <> '' AND NOT EXISTS (
    SELECT 1 FROM harborage_runs AS run WHERE run.run_id = pause.run
  )
FROM harborage_pauses AS pause WHERE pause.num > :after ORDER BY pause.num LIMIT :size;

-- name: sessions
SELECT num FROM harborage_sessions WHERE num > :after ORDER BY num LIMIT :size;

-- name: events
SELECT
  event.sequence, event.session, event.place, event.at, event.crc, event.data, session.num IS NULL,
  CAST(session.session AS BLOB), CAST(event.run AS BLOB), CAST(event.type AS BLOB)
FROM harborage_events AS event LEFT JOIN harborage_sessions AS session ON session.num = event.session
WHERE event.sequence > :after ORDER BY event.sequence LIMIT :size;

-- name: tables
-- The large ones last.
SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name IN ('harborage_events', 'harborage_journal'), name;
