-- What runs publish, by topic.
-- compatible-from: 1

-- A stream of a chain. next_position: of the value to come. weight: of all values that ever were in it.
-- forgotten: retention has taken it; what is left of it goes piece by piece.
CREATE TABLE pledger_stream (
    stream_key INTEGER PRIMARY KEY AUTOINCREMENT,
    chain_key INTEGER NOT NULL,
    topic TEXT NOT NULL,
    next_position INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    published_ms INTEGER NOT NULL,
    forgotten INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX pledger_stream_by_topic ON pledger_stream (chain_key, topic);
CREATE INDEX pledger_stream_forgotten ON pledger_stream (chain_key, topic) WHERE forgotten;

-- Its values. weight_before: of all values before it. run_key, event_id, attempt: who has published it (see
-- engine.port.streams.StreamValue), and number: as its how-manieth value, from 1.
CREATE TABLE pledger_published (
    published_key INTEGER PRIMARY KEY,
    stream_key INTEGER NOT NULL REFERENCES pledger_stream (stream_key),
    position INTEGER NOT NULL CHECK (position >= 0),
    weight_before INTEGER NOT NULL,
    run_key INTEGER NOT NULL,
    event_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    published_ms INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX pledger_published_by_position ON pledger_published (stream_key, position);
-- Each value of an attempt once, however often it is written.
CREATE UNIQUE INDEX pledger_published_by_attempt ON pledger_published (run_key, event_id, attempt, number)
WHERE attempt > 0;

-- By a trigger, so that retention by code that knows of no streams takes them too.
CREATE TRIGGER pledger_run_forgets_streams AFTER UPDATE OF forgotten_ms ON pledger_run
WHEN old.forgotten_ms IS NULL AND new.forgotten_ms IS NOT NULL
BEGIN
    UPDATE pledger_stream SET forgotten = 1 WHERE chain_key = new.chain_key AND NOT forgotten;
END;
