-- What the caller of a run marked it with, as `harborage.store.tags` writes it; NULL for nothing.
ALTER TABLE harborage_runs ADD COLUMN tags TEXT;
