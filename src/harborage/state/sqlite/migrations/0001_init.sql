-- The tables of Harborage in SQLite. Times are microseconds since 1970 in UTC.

-- What this process tells others: `changes` grows when runs may have become ready or ended, or controls arrived.
CREATE TABLE harborage_counters (
  name TEXT NOT NULL PRIMARY KEY,
  last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO harborage_counters (name, last) VALUES ('changes', 0);

-- One record for each slot; a blank run is a slot of its own.
CREATE TABLE harborage_records (
  number INTEGER PRIMARY KEY,
  tenant_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  session_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  event_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  data BLOB NOT NULL,
  UNIQUE (tenant_id, user_id, session_id, run_id, kind),
  UNIQUE (tenant_id, user_id, session_id, event_id)
) STRICT;

-- What a run is, and never changes. `number` is the order of their making, and the name that other tables know it by.
CREATE TABLE harborage_runs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id TEXT NOT NULL UNIQUE,
  tenant_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  session_id TEXT NOT NULL,
  who_run_id TEXT NOT NULL,
  agent TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  goal TEXT NOT NULL
) STRICT;

CREATE INDEX harborage_runs_tenant ON harborage_runs (tenant_id, number);
CREATE INDEX harborage_runs_session ON harborage_runs (tenant_id, user_id, session_id, number);
CREATE INDEX harborage_runs_agent ON harborage_runs (agent, number);

-- Where a run stands. A table of its own, so that no write of a run copies its goal. `sent` and `taken` are numbers of
-- controls; `is_woken` is about what happened since the run was last claimed.
CREATE TABLE harborage_standings (
  run_id TEXT NOT NULL PRIMARY KEY,
  number INTEGER NOT NULL,
  agent TEXT NOT NULL,
  stand TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  wake_at INTEGER,
  waits_for TEXT NOT NULL DEFAULT '',
  is_woken INTEGER NOT NULL DEFAULT 0,
  owner TEXT NOT NULL DEFAULT '',
  fence INTEGER NOT NULL DEFAULT 0,
  entries INTEGER NOT NULL DEFAULT 0,
  sent INTEGER NOT NULL DEFAULT 0,
  taken INTEGER NOT NULL DEFAULT 0,
  updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX harborage_standings_stand ON harborage_standings (stand, number);
-- The next four hold few rows, however many runs there are: those that somebody carries, and those that may be claimed.
CREATE INDEX harborage_standings_ready ON harborage_standings (number)
  WHERE owner = '' AND (stand = 'ready' OR (stand = 'parked' AND (is_woken OR sent > taken)));
CREATE INDEX harborage_standings_ready_agent ON harborage_standings (agent, number)
  WHERE owner = '' AND (stand = 'ready' OR (stand = 'parked' AND (is_woken OR sent > taken)));
CREATE INDEX harborage_standings_owner ON harborage_standings (owner) WHERE owner <> '';
CREATE INDEX harborage_standings_inbox ON harborage_standings (owner) WHERE sent > taken;
CREATE INDEX harborage_standings_due ON harborage_standings (wake_at)
  WHERE owner = '' AND stand = 'parked' AND wake_at IS NOT NULL AND NOT is_woken;
CREATE INDEX harborage_standings_waiting ON harborage_standings (waits_for) WHERE waits_for <> '';

-- What runs recorded, from position 1 on without a gap; `crc` is the CRC-32 of the data. New entries of all runs go to
-- one end of the table, which makes a commit of many runs cheap; the index brings a run's entries together.
CREATE TABLE harborage_entries (
  number INTEGER PRIMARY KEY,
  run INTEGER NOT NULL,
  position INTEGER NOT NULL,
  crc INTEGER NOT NULL,
  data BLOB NOT NULL,
  UNIQUE (run, position)
) STRICT;

-- Large values by their SHA-256 in hex, and the runs that name them.
CREATE TABLE harborage_bodies (
  number INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  data BLOB NOT NULL
) STRICT;

CREATE TABLE harborage_run_bodies (
  run INTEGER NOT NULL,
  digest TEXT NOT NULL,
  PRIMARY KEY (run, digest)
) STRICT, WITHOUT ROWID;

CREATE INDEX harborage_run_bodies_digest ON harborage_run_bodies (digest);

-- What was sent to runs; numbers are never used twice.
CREATE TABLE harborage_controls (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  run INTEGER NOT NULL,
  event_id TEXT NOT NULL,
  data BLOB NOT NULL,
  UNIQUE (run, event_id)
) STRICT;

CREATE INDEX harborage_controls_run ON harborage_controls (run, number);

-- Who lives: `seen_at` is the last sign of life. A worker also holds a lock on its file beside the database.
CREATE TABLE harborage_workers (
  worker TEXT NOT NULL PRIMARY KEY,
  seen_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One line of events for each session.
CREATE TABLE harborage_sessions (
  number INTEGER PRIMARY KEY,
  tenant_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  session_id TEXT NOT NULL,
  UNIQUE (tenant_id, user_id, session_id)
) STRICT;

CREATE TABLE harborage_events (
  number INTEGER PRIMARY KEY,
  session INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  data BLOB NOT NULL,
  UNIQUE (session, sequence)
) STRICT;
