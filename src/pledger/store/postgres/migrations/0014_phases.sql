-- Phases and named waits that runs are in, and by when they should be over: lists ask who must act.
--
-- compatible-from: 1
--
-- Old code leaves a phase here that it has ended; a run that is closed is in none.
CREATE TABLE pledger.phase (
    run_key bigint NOT NULL,
    event_id bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    owner text COLLATE "C",
    deadline_ms bigint NOT NULL,
    PRIMARY KEY (run_key, event_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
