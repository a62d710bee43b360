-- The advisory lock that a worker holds on a connection of its own, null while it holds none. The server lets go of it
-- when the worker's process ends, which others see at once; `expires_at` changes with every sign of life, and one that
-- does not change for as long as a lease, by the clock of whoever looks, is that of a worker that is frozen.
alter table harborage_workers add column lock_key bigint;
