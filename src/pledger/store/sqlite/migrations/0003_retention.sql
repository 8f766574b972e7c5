-- Retention: finished chains lose their history, and keep one row that remembers their id.
--
-- compatible-from: 1
--
-- forgotten_ms: when that happened. The row of such a run has last_event 0, which no closed run has otherwise: that is how
-- every version reads it, through the view of old. head stays, so that an exported history can be told to be this one's.
ALTER TABLE pledger_run ADD COLUMN forgotten_ms INTEGER CHECK (forgotten_ms IS NULL OR closed_ms IS NOT NULL);

-- Leads to what a type has to forget next. Without the segments that another one follows: of a chain its last run counts.
CREATE INDEX pledger_run_finished ON pledger_run (namespace, workflow_type, closed_ms, run_key)
WHERE closed_ms IS NOT NULL AND forgotten_ms IS NULL AND status <> 'continued_as_new';

-- Forgotten runs whose history is so long that it goes piece by piece.
CREATE TABLE pledger_leftover (run_key INTEGER PRIMARY KEY) STRICT;

-- Chores that one worker does for all of a namespace. until_ms: until when it is owner's, or (without one) until when
-- nothing is to be done.
CREATE TABLE pledger_duty (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    owner INTEGER,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;
