-- Large values in pieces, kept once by what is in them.
-- compatible-from: 1

-- name: made from the content; body: the content, as it is kept.
CREATE TABLE pledger_piece (
    piece_key INTEGER PRIMARY KEY,
    name BLOB NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX pledger_piece_by_name ON pledger_piece (name);

-- Which runs refer to which pieces.
CREATE TABLE pledger_piece_use (
    run_key INTEGER NOT NULL,
    piece_key INTEGER NOT NULL,
    PRIMARY KEY (run_key, piece_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX pledger_piece_use_by_piece ON pledger_piece_use (piece_key);

-- By triggers, so that retention by code that knows of no pieces removes them too.
CREATE TRIGGER pledger_run_forgets_pieces AFTER UPDATE OF forgotten_ms ON pledger_run
WHEN old.forgotten_ms IS NULL AND new.forgotten_ms IS NOT NULL
BEGIN
    DELETE FROM pledger_piece_use WHERE run_key = new.run_key;
END;
CREATE TRIGGER pledger_piece_is_unused AFTER DELETE ON pledger_piece_use
BEGIN
    DELETE FROM pledger_piece WHERE piece_key = old.piece_key AND NOT EXISTS (
        SELECT 1 FROM pledger_piece_use AS other WHERE other.piece_key = old.piece_key
    );
END;
