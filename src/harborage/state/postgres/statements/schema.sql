-- How a database is brought to the tables that this package works with.

-- name: prepare_connection
select
  set_config('default_transaction_isolation', 'read committed', false),
  -- A process that is frozen in the middle of a transaction must not keep its locks from those who carry on.
  set_config('idle_in_transaction_session_timeout', '10s', false),
  set_config(
    'synchronous_commit',
    case current_setting('synchronous_commit') when 'off' then 'on' else current_setting('synchronous_commit') end,
    false
  );

-- name: schema
select current_schema();

-- name: has_migrations
select to_regclass('harborage_migrations') is not null;

-- name: lock_migrations
select pg_advisory_xact_lock(7236834177829376357);

-- name: create_migrations
create table if not exists harborage_migrations (
  number integer primary key,
  name text not null,
  checksum text not null,
  applied_at timestamptz not null default clock_timestamp()
);

-- name: applied_migrations
select number, checksum from harborage_migrations;

-- name: keep_migration
insert into harborage_migrations (number, name, checksum) values ($1, $2, $3);
