-- Pieces of large values, and which runs use them.

-- name: keep_pieces
-- One that is there already is written over by itself: that locks its row, so that nobody removes it before this
-- transaction has said who uses it.
WITH given AS (
    SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS given (run_key, name, body)
),
kept AS (
    INSERT INTO pledger.piece AS piece (name, body)
    SELECT DISTINCT ON (name) name, body FROM given ORDER BY name
    ON CONFLICT (name) DO UPDATE SET name = excluded.name
    RETURNING piece.piece_key, piece.name
)
INSERT INTO pledger.piece_use (run_key, piece_key)
SELECT DISTINCT given.run_key, kept.piece_key FROM given JOIN kept USING (name)
ON CONFLICT DO NOTHING;

-- name: read_pieces
SELECT name, body FROM pledger.piece WHERE name = ANY($1::bytea[]);
