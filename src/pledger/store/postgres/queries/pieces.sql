-- Pieces of large values, and which runs use them.

-- name: keep_pieces
-- One that is there already is written over by itself: that locks its row, so that nobody removes it before this
-- transaction has said who uses it.
INSERT INTO pledger.piece AS piece (name, body)
SELECT DISTINCT ON (name) name, body FROM unnest($1::bytea[], $2::bytea[]) AS given (name, body) ORDER BY name
ON CONFLICT (name) DO UPDATE SET name = excluded.name;

-- name: use_pieces
-- After that: which runs use them.
INSERT INTO pledger.piece_use (run_key, piece_key)
SELECT DISTINCT given.run_key, piece.piece_key
FROM unnest($1::bigint[], $2::bytea[]) AS given (run_key, name) JOIN pledger.piece AS piece USING (name)
ON CONFLICT DO NOTHING;

-- name: read_pieces
SELECT name, body FROM pledger.piece WHERE name = ANY($1::bytea[]);
