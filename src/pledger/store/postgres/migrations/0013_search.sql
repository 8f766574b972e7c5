-- Search attributes and memos, and indices by which lists find their runs.
--
-- compatible-from: 1
--
-- All of it says again what histories say: old code leaves it as it is.

-- answers_for: who, a person or a team. deadline_ms: when the run times out. Old code leaves both NULL.
ALTER TABLE pledger.run ADD COLUMN answers_for text COLLATE "C", ADD COLUMN deadline_ms bigint;

-- A row for each value of each search attribute: in one of the three columns, by its kind.
CREATE TABLE pledger.attribute (
    run_key bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    position integer NOT NULL,
    words text COLLATE "C",
    whole bigint,
    real double precision,
    PRIMARY KEY (run_key, name, position)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX attribute_value ON pledger.attribute (namespace, kind, name, words, whole, real, run_key);

-- memo: JSON object.
CREATE TABLE pledger.memo (run_key bigint PRIMARY KEY, memo bytea NOT NULL)
WITH (autovacuum_vacuum_scale_factor = 0.05);

-- Lists go by the time of the start. No step of an owned run changes a column of these. Their conditions are of the
-- status, which no statement but those of lists asks for: the planner has no reason to take one for anything else.
CREATE INDEX run_started ON pledger.run (namespace, started_ms, run_key);
CREATE INDEX run_open ON pledger.run (namespace, started_ms, run_key) WHERE status = 'running';
CREATE INDEX run_ended_badly ON pledger.run (namespace, started_ms, run_key)
WHERE status IN ('cancelled', 'compensated', 'failed', 'terminated', 'timed_out');
