-- What lists of sessions ask of each session: whether something in it waits for an answer, and whether a run failed.
create index harborage_pauses_session_open on harborage_pauses (session) where status = 'open';
create index harborage_runs_session_bad on harborage_runs (session, status) where status > 3;
