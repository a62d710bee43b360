-- The tables of the store of record in SQLite. Times are microseconds since 1970 in UTC; `num` is the small number by
-- which other tables know a row, and is never given twice.

-- What the processes of one database tell one another: `changes` grows with every commit that others may wait for.
CREATE TABLE harborage_counters (
  name TEXT NOT NULL PRIMARY KEY,
  last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO harborage_counters (name, last) VALUES ('changes', 0);

-- `events` counts the events of a session, and so gives each its place. `context` is there once somebody opened it.
CREATE TABLE harborage_sessions (
  num INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  session TEXT NOT NULL,
  opened_at INTEGER NOT NULL,
  seen_at INTEGER NOT NULL,
  closed_at INTEGER,
  close_reason TEXT NOT NULL DEFAULT '',
  events INTEGER NOT NULL DEFAULT 0,
  context BLOB,
  UNIQUE (tenant, user, session)
) STRICT;

CREATE INDEX harborage_sessions_all ON harborage_sessions (opened_at);
CREATE INDEX harborage_sessions_opened ON harborage_sessions (tenant, opened_at);
CREATE INDEX harborage_sessions_open ON harborage_sessions (opened_at)
  WHERE closed_at IS NULL AND context IS NOT NULL;

-- A run, which is its task. `status` is a number whose order has a meaning: 0 pending, 1 running, 2 paused, 3 complete,
-- 4 failed, 5 cancelled. The indexes of what is live, ready, due, owned or blocked hold few rows however many there are.
-- No index holds what a step changes: `position` and `updated_at`. One that has no entries is a task that no worker
-- executes: it is never woken. `asked` and `outcome` may be large, so they come last and lists leave them out.
CREATE TABLE harborage_runs (
  num INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id TEXT NOT NULL UNIQUE,
  session INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  agent TEXT NOT NULL,
  parent TEXT,
  root TEXT,
  grp TEXT,
  kind TEXT NOT NULL,
  priority INTEGER NOT NULL,
  status INTEGER NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  blocked TEXT,
  description TEXT NOT NULL,
  about TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  wake_at INTEGER,
  deadline INTEGER,
  awaits TEXT,
  position INTEGER NOT NULL,
  owner TEXT,
  fence INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  woken INTEGER NOT NULL,
  unread INTEGER NOT NULL DEFAULT 0,
  seen_control INTEGER NOT NULL DEFAULT 0,
  children INTEGER NOT NULL DEFAULT 0,
  tree INTEGER NOT NULL DEFAULT 0,
  idem TEXT,
  fingerprint TEXT NOT NULL,
  cascades INTEGER NOT NULL,
  notifies INTEGER NOT NULL,
  retains_turn INTEGER NOT NULL,
  acknowledged INTEGER NOT NULL DEFAULT 0,
  tool_count INTEGER NOT NULL DEFAULT 0,
  tokens INTEGER NOT NULL DEFAULT 0,
  cost INTEGER NOT NULL DEFAULT 0,
  asked BLOB,
  outcome BLOB
) STRICT;

CREATE INDEX harborage_runs_all ON harborage_runs (created_at);
CREATE INDEX harborage_runs_tenant ON harborage_runs (tenant, created_at);
CREATE INDEX harborage_runs_user ON harborage_runs (tenant, user, created_at);
CREATE INDEX harborage_runs_session ON harborage_runs (session, created_at);
CREATE INDEX harborage_runs_agent ON harborage_runs (tenant, agent, created_at);
CREATE INDEX harborage_runs_live ON harborage_runs (tenant, status, created_at) WHERE status < 3;
CREATE INDEX harborage_runs_bad ON harborage_runs (tenant, user, status, created_at) WHERE status > 3;
CREATE INDEX harborage_runs_failed ON harborage_runs (tenant, status, created_at) WHERE status > 3;
CREATE INDEX harborage_runs_ready ON harborage_runs (priority DESC, num)
  WHERE owner IS NULL AND woken > 0 AND blocked IS NULL;
CREATE INDEX harborage_runs_due ON harborage_runs (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX harborage_runs_owner ON harborage_runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX harborage_runs_inbox ON harborage_runs (owner) WHERE unread > 0;
CREATE INDEX harborage_runs_blocked ON harborage_runs (num) WHERE blocked IS NOT NULL;
CREATE INDEX harborage_runs_parent ON harborage_runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX harborage_runs_group ON harborage_runs (grp, session) WHERE grp IS NOT NULL;
CREATE INDEX harborage_runs_awaits ON harborage_runs (awaits) WHERE awaits IS NOT NULL;
CREATE UNIQUE INDEX harborage_runs_idem ON harborage_runs (session, idem) WHERE idem IS NOT NULL;

CREATE TABLE harborage_groups (
  num INTEGER PRIMARY KEY,
  session INTEGER NOT NULL,
  group_id TEXT NOT NULL,
  owner TEXT NOT NULL,
  retains_turn INTEGER NOT NULL,
  fails_fast INTEGER NOT NULL,
  description TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  members INTEGER NOT NULL DEFAULT 0,
  open_members INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  sealed_at INTEGER,
  ended_at INTEGER,
  deadline INTEGER,
  outcome TEXT NOT NULL DEFAULT '',
  UNIQUE (group_id, session)
) STRICT;

CREATE INDEX harborage_groups_all ON harborage_groups (created_at);
CREATE INDEX harborage_groups_session ON harborage_groups (session, created_at);
CREATE INDEX harborage_groups_live ON harborage_groups (created_at) WHERE status IN ('open', 'sealed', 'ending');

-- The entries of all runs, at one end of the table; `crc` is the CRC-32 of the data.
CREATE TABLE harborage_journal (
  num INTEGER PRIMARY KEY,
  run INTEGER NOT NULL,
  position INTEGER NOT NULL,
  crc INTEGER NOT NULL,
  data BLOB NOT NULL,
  UNIQUE (run, position)
) STRICT;

-- Large values by their SHA-256 in hex, and the runs whose entries name them.
CREATE TABLE harborage_bodies (
  num INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  data BLOB NOT NULL
) STRICT;

CREATE TABLE harborage_run_bodies (
  run INTEGER NOT NULL,
  body INTEGER NOT NULL,
  PRIMARY KEY (run, body)
) STRICT, WITHOUT ROWID;

CREATE INDEX harborage_run_bodies_body ON harborage_run_bodies (body);

-- What was sent to runs. A control that its run has consumed keeps its row, without data: its event id stays known.
CREATE TABLE harborage_controls (
  num INTEGER PRIMARY KEY AUTOINCREMENT,
  run INTEGER NOT NULL,
  event_id TEXT NOT NULL,
  type TEXT NOT NULL,
  sent_at INTEGER NOT NULL,
  consumed INTEGER,
  data BLOB NOT NULL,
  UNIQUE (run, event_id)
) STRICT;

CREATE INDEX harborage_controls_unread ON harborage_controls (run, num) WHERE consumed IS NULL;

CREATE TABLE harborage_pauses (
  num INTEGER PRIMARY KEY,
  token TEXT NOT NULL UNIQUE,
  run TEXT NOT NULL,
  session INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  user TEXT NOT NULL,
  reason TEXT NOT NULL,
  status TEXT NOT NULL,
  opened_at INTEGER NOT NULL,
  deadline INTEGER,
  settled_at INTEGER,
  settled_by TEXT NOT NULL DEFAULT '',
  data BLOB NOT NULL,
  answer BLOB NOT NULL DEFAULT x'',
  answering TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX harborage_pauses_all ON harborage_pauses (opened_at);
CREATE INDEX harborage_pauses_run ON harborage_pauses (run);
CREATE INDEX harborage_pauses_user ON harborage_pauses (tenant, user, opened_at);
CREATE INDEX harborage_pauses_open ON harborage_pauses (tenant, opened_at, run) WHERE status = 'open';
CREATE INDEX harborage_pauses_due ON harborage_pauses (deadline) WHERE status = 'open' AND deadline IS NOT NULL;

CREATE TABLE harborage_patches (
  session INTEGER NOT NULL,
  patch_id TEXT NOT NULL,
  decision TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  decided_at INTEGER,
  PRIMARY KEY (session, patch_id)
) STRICT, WITHOUT ROWID;

-- Events in steps of 4,096; the numbers in between belong to deltas, which are not stored. Inside a session the order
-- of `sequence` is that of `place`, so the index on the session alone is an index on (session, sequence).
CREATE TABLE harborage_events (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  session INTEGER NOT NULL,
  place INTEGER NOT NULL,
  run TEXT NOT NULL,
  type TEXT NOT NULL,
  at INTEGER NOT NULL,
  crc INTEGER NOT NULL,
  data BLOB NOT NULL
) STRICT;

CREATE INDEX harborage_events_session ON harborage_events (session);

-- `beat` is a counter: a worker whose beat stands still for a lease is frozen. It also holds a lock on a file of its own
-- beside the database, which ends with its process.
CREATE TABLE harborage_workers (
  num INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  beat INTEGER NOT NULL
) STRICT;

-- Records by slot, for those who keep what this package knows nothing of; a blank run is a slot of its own.
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
