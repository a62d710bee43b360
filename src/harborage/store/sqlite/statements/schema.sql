-- How a database is brought to the tables that this package works with, and how its processes notify one another.

-- name: has_migrations
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'harborage_migrations';

-- name: create_migrations
CREATE TABLE harborage_migrations (
  number INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  checksum TEXT NOT NULL,
  applied_at TEXT NOT NULL DEFAULT (datetime('now'))
) STRICT;

-- name: applied_migrations
SELECT number, checksum FROM harborage_migrations;

-- name: keep_migration
INSERT INTO harborage_migrations (number, name, checksum) VALUES (:number, :name, :checksum);

-- name: notify
UPDATE harborage_counters SET last = last + 1 WHERE name = 'changes' RETURNING last;

-- name: note_lost_log
INSERT INTO harborage_counters (name, last) VALUES ('log_lost', :at) ON CONFLICT (name) DO NOTHING;

-- name: lost_log
SELECT last FROM harborage_counters WHERE name = 'log_lost';

-- name: accept_lost_log
DELETE FROM harborage_counters WHERE name = 'log_lost';

-- name: count_changes
SELECT last FROM harborage_counters WHERE name = 'changes';
