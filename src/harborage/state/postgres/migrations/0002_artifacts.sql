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
