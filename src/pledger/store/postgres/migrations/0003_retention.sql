-- Retention: finished chains lose their history, and keep one row that remembers their id.
--
-- compatible-from: 1
--
-- forgotten_ms: when that happened. The row of such a run has last_event 0, which no closed run has otherwise: that is how
-- every version reads it, through the view of old. head stays, so that an exported history can be told to be this one's.
ALTER TABLE pledger.run ADD COLUMN forgotten_ms bigint;

-- Leads to what a type has to forget next. Without the segments that another one follows: of a chain its last run counts.
-- No step of an owned run changes a column of it.
CREATE INDEX run_finished ON pledger.run (namespace, workflow_type, closed_ms, run_key)
WHERE closed_ms IS NOT NULL AND forgotten_ms IS NULL AND status <> 'continued_as_new';

-- Forgotten runs whose history is so long that it goes piece by piece.
CREATE TABLE pledger.leftover (run_key bigint PRIMARY KEY);

-- Chores that one worker does for all of a namespace. until_ms: until when it is owner's, or (without one) until when
-- nothing is to be done.
CREATE TABLE pledger.duty (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    owner bigint,
    until_ms bigint NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- What retention removes makes room for what comes next, before the tables have grown by a fifth.
ALTER TABLE pledger.history SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE pledger.attempt SET (autovacuum_vacuum_scale_factor = 0.05);
