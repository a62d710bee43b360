-- The tables of the store of record in Postgres. They stand in the first schema of the search path, so that several
-- stores may share a database. Times are microseconds since 1970 in UTC; `num` is the small number by which other
-- tables know a row, and is never given twice.

-- `events` counts the events of a session, and so gives each its place. `context` is there once somebody opened it.
create table harborage_sessions (
  num bigint generated always as identity primary key,
  tenant text collate "C" not null,
  "user" text collate "C" not null,
  session text collate "C" not null,
  opened_at bigint not null,
  seen_at bigint not null,
  closed_at bigint,
  close_reason text not null default '',
  events bigint not null default 0,
  context bytea,
  unique (tenant, "user", session)
) with (fillfactor = 80); -- room for the next version of a row on its own page, so that it touches no index

create index harborage_sessions_opened on harborage_sessions (tenant, opened_at, num);
create index harborage_sessions_all on harborage_sessions (opened_at, num);
create index harborage_sessions_open on harborage_sessions (opened_at, num)
  where closed_at is null and context is not null;

-- A run, which is its task. `status` is a number whose order has a meaning: 0 pending, 1 running, 2 paused, 3 complete,
-- 4 failed, 5 cancelled. The indexes of what is live, ready, due, owned or blocked hold few rows however many there are.
-- No index holds what a step changes: `position` and `updated_at`. One that has no entries is a task that no worker
-- executes: it is never woken. `asked` and `outcome` may be large, so they come last and lists leave them out.
create table harborage_runs (
  num bigint generated always as identity primary key,
  run_id text collate "C" not null unique,
  session bigint not null,
  tenant text collate "C" not null,
  "user" text collate "C" not null,
  agent text collate "C" not null,
  parent text collate "C",
  root text collate "C",
  grp text collate "C",
  kind text collate "C" not null,
  priority integer not null,
  status smallint not null,
  reason text not null default '',
  blocked text,
  description text not null,
  about text not null,
  created_at bigint not null,
  updated_at bigint not null,
  wake_at bigint,
  deadline bigint,
  awaits text collate "C",
  position integer not null,
  owner text collate "C",
  fence bigint not null,
  attempts integer not null default 0,
  woken boolean not null,
  unread integer not null default 0,
  seen_control bigint not null default 0,
  children integer not null default 0,
  tree integer not null default 0,
  idem text collate "C",
  fingerprint text collate "C" not null,
  cascades boolean not null,
  notifies boolean not null,
  retains_turn boolean not null,
  acknowledged boolean not null default false,
  tool_count bigint not null default 0,
  tokens bigint not null default 0,
  cost bigint not null default 0,
  asked bytea,
  outcome bytea
) with (fillfactor = 80);

create index harborage_runs_all on harborage_runs (created_at, num);
create index harborage_runs_tenant on harborage_runs (tenant, created_at, num);
create index harborage_runs_user on harborage_runs (tenant, "user", created_at, num);
create index harborage_runs_session on harborage_runs (session, created_at, num);
create index harborage_runs_agent on harborage_runs (tenant, agent, created_at, num);
create index harborage_runs_live on harborage_runs (tenant, status, created_at, num) where status < 3;
create index harborage_runs_bad on harborage_runs (tenant, "user", status, created_at, num) where status > 3;
create index harborage_runs_failed on harborage_runs (tenant, status, created_at, num) where status > 3;
create index harborage_runs_ready on harborage_runs (priority desc, num)
  where owner is null and woken and blocked is null;
create index harborage_runs_due on harborage_runs (wake_at) where wake_at is not null;
create index harborage_runs_owner on harborage_runs (owner, num) where owner is not null;
create index harborage_runs_inbox on harborage_runs (owner) where unread > 0;
create index harborage_runs_blocked on harborage_runs (num) where blocked is not null;
create index harborage_runs_parent on harborage_runs (parent) where parent is not null;
create index harborage_runs_group on harborage_runs (grp, session) where grp is not null;
create index harborage_runs_awaits on harborage_runs (awaits) where awaits is not null;
create unique index harborage_runs_idem on harborage_runs (session, idem) where idem is not null;

create table harborage_groups (
  num bigint generated always as identity primary key,
  session bigint not null,
  group_id text collate "C" not null,
  owner text collate "C" not null,
  retains_turn boolean not null,
  fails_fast boolean not null,
  description text not null,
  status text collate "C" not null,
  reason text not null default '',
  members integer not null default 0,
  open_members integer not null default 0,
  created_at bigint not null,
  sealed_at bigint,
  ended_at bigint,
  deadline bigint,
  outcome text collate "C" not null default '',
  unique (group_id, session)
) with (fillfactor = 80);

create index harborage_groups_all on harborage_groups (created_at, num);
create index harborage_groups_session on harborage_groups (session, created_at, num);
create index harborage_groups_live on harborage_groups (created_at, num) where status in ('open', 'sealed', 'ending');

-- The entries of all runs; `crc` is the CRC-32 of the data.
create table harborage_journal (
  run bigint not null,
  position integer not null,
  crc bigint not null,
  data bytea not null,
  primary key (run, position)
);

-- Large values by their SHA-256 in hex, and the runs whose entries name them. A body goes with the last of its names:
-- the reference keeps one from being named while it goes.
create table harborage_bodies (
  num bigint generated always as identity primary key,
  digest text collate "C" not null unique,
  data bytea not null
);

create table harborage_run_bodies (
  run bigint not null,
  body bigint not null references harborage_bodies,
  primary key (run, body)
);

create index harborage_run_bodies_body on harborage_run_bodies (body);

-- What was sent to runs. A control that its run has consumed keeps its row, without data: its event id stays known.
-- Numbers are given under the lock of the run's row, so those of one run are seen in their order.
create table harborage_controls (
  num bigint generated always as identity primary key,
  run bigint not null,
  event_id text collate "C" not null,
  type text collate "C" not null,
  sent_at bigint not null,
  consumed integer,
  data bytea not null,
  unique (run, event_id)
);

create index harborage_controls_unread on harborage_controls (run, num) where consumed is null;

create table harborage_pauses (
  num bigint generated always as identity primary key,
  token text collate "C" not null unique,
  run text collate "C" not null,
  session bigint not null,
  tenant text collate "C" not null,
  "user" text collate "C" not null,
  reason text collate "C" not null,
  status text collate "C" not null,
  opened_at bigint not null,
  deadline bigint,
  settled_at bigint,
  settled_by text not null default '',
  data bytea not null,
  answer bytea not null default '',
  answering text collate "C" not null default ''
);

create index harborage_pauses_run on harborage_pauses (run);
create index harborage_pauses_all on harborage_pauses (opened_at, num);
create index harborage_pauses_user on harborage_pauses (tenant, "user", opened_at, num);
create index harborage_pauses_open on harborage_pauses (tenant, opened_at, num) where status = 'open';
create index harborage_pauses_due on harborage_pauses (deadline) where status = 'open' and deadline is not null;

create table harborage_patches (
  session bigint not null,
  patch_id text collate "C" not null,
  decision text collate "C" not null,
  created_at bigint not null,
  decided_at bigint,
  primary key (session, patch_id)
);

-- Events in steps of 4,096; the numbers in between belong to deltas, which are not stored. Numbers are taken under one
-- lock for all writers, which is held until the commit: whoever has seen a number has seen every smaller one.
create sequence harborage_sequence increment by 4096 start with 4096;

create table harborage_events (
  sequence bigint primary key,
  session bigint not null,
  place bigint not null,
  run text collate "C" not null,
  type text collate "C" not null,
  at bigint not null,
  crc bigint not null,
  data bytea not null
);

create index harborage_events_session on harborage_events (session, sequence);

-- `beat` is a counter: a worker whose beat stands still for a lease is frozen. One that `is_locking` also holds an
-- advisory lock named after it, on a connection of its own, which ends with its process.
create table harborage_workers (
  num bigint generated always as identity primary key,
  name text collate "C" not null unique,
  beat bigint not null,
  is_locking boolean not null
) with (fillfactor = 50);

-- The last batch of each process that writes, and what came of it: a batch that is sent once more, because its answer
-- was lost, is answered from here.
create table harborage_writers (
  name text collate "C" primary key,
  batch bigint not null,
  answer jsonb not null,
  seen_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- One record for each slot; a blank run is a slot of its own.
create table harborage_records (
  tenant_id text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  run_id text collate "C" not null,
  kind text collate "C" not null,
  event_id text collate "C" not null,
  data bytea not null,
  version bigint not null,
  updated_at timestamptz not null,
  primary key (tenant_id, user_id, session_id, run_id, kind),
  constraint harborage_records_event unique (tenant_id, user_id, session_id, event_id)
);

-- Artifacts by scope and id. Names are UTF-8 bytes, so that every name that a scope may have can be kept; `entry` is
-- what is known of the artifact, as JSON.
create table harborage_artifacts (
  tenant_id bytea not null,
  user_id bytea not null,
  session_id bytea not null,
  task_id bytea not null,
  id bytea not null,
  sha256 text collate "C" not null,
  entry bytea not null,
  data bytea not null,
  primary key (tenant_id, user_id, session_id, task_id, id)
);
