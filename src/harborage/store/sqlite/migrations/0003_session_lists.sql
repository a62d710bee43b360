-- What lists of sessions ask of each session: whether something in it waits for an answer, and whether a run failed.
CREATE INDEX harborage_pauses_session_open ON harborage_pauses (session) WHERE status = 'open';
CREATE INDEX harborage_runs_session_bad ON harborage_runs (session, status) WHERE status > 3;
