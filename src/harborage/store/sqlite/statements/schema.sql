-- How a database is brought to the tables that this package works with, and what its processes tell one another.

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

-- name: tell
UPDATE harborage_counters SET last = last + 1 WHERE name = 'changes' RETURNING last;

-- name: told
SELECT last FROM harborage_counters WHERE name = 'changes';
