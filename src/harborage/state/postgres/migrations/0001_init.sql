-- The tables of Harborage. They stand in the first schema of the search path, so that several may share a database.

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

-- One row for each run. `number` is the order of their making and the name other tables know it by; `sent` and `taken`
-- are numbers of controls; `change` names the last change, so that one whose answer was lost can be found again.
-- `ready_at` says when nobody's run may be claimed; a blocked one has to be asked for.
create table harborage_runs (
  number bigint generated always as identity primary key,
  run_id text collate "C" not null unique,
  tenant_id text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  who_run_id text collate "C" not null,
  goal text not null,
  agent text collate "C" not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  stand text collate "C" not null,
  reason text not null,
  wake_at timestamptz,
  waits_for text collate "C" not null,
  is_woken boolean not null default false,
  owner text collate "C" not null default '',
  fence bigint not null default 0,
  entries integer not null default 0,
  sent bigint not null default 0,
  taken bigint not null default 0,
  change bigint not null,
  ready_at timestamptz generated always as (
    case
      when stand = 'ready' then timestamptz '-infinity'
      when stand = 'parked' and (is_woken or sent > taken) then timestamptz '-infinity'
      when stand = 'parked' then wake_at
      when stand = 'blocked' then timestamptz 'infinity'
    end
  ) stored
) with (fillfactor = 70); -- room for the next version of a row on its own page: most changes then touch no index

create index harborage_runs_ready on harborage_runs (ready_at, number) where owner = '';
create index harborage_runs_owned on harborage_runs (owner) where owner <> '';
create index harborage_runs_waiting on harborage_runs (waits_for) where waits_for <> '';
create index harborage_runs_session on harborage_runs (tenant_id, user_id, session_id, number);

-- What runs recorded, from position 1 on without a gap; `crc` is the CRC-32 of the data.
create table harborage_entries (
  run bigint not null,
  position integer not null,
  crc bigint not null,
  data bytea not null,
  primary key (run, position)
);

-- Large values by their SHA-256 in hex, and the runs that name them.
create table harborage_bodies (
  digest text collate "C" primary key,
  data bytea not null
);

create table harborage_run_bodies (
  run bigint not null,
  digest text collate "C" not null references harborage_bodies,
  primary key (run, digest)
);

create index harborage_run_bodies_digest on harborage_run_bodies (digest);

-- What was sent to runs. Numbers are given out under the lock of a row, so that they become visible in their order.
create table harborage_controls (
  run bigint not null,
  number bigint not null,
  event_id text collate "C" not null,
  data bytea not null,
  primary key (run, number),
  constraint harborage_controls_event unique (run, event_id)
);

create table harborage_counters (
  name text collate "C" primary key,
  last bigint not null
);

insert into harborage_counters (name, last) values ('controls', 0);

-- Who lives, by the clock of the database.
create table harborage_workers (
  worker text collate "C" primary key,
  expires_at timestamptz not null
);

-- One line of events for each session.
create table harborage_events (
  tenant_id text collate "C" not null,
  user_id text collate "C" not null,
  session_id text collate "C" not null,
  sequence bigint not null,
  data bytea not null,
  primary key (tenant_id, user_id, session_id, sequence)
);
