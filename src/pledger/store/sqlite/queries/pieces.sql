-- Pieces of large values, and which runs use them.

-- name: keep_piece
INSERT INTO pledger_piece (name, body) VALUES (?, ?) ON CONFLICT (name) DO NOTHING;

-- name: use_piece
INSERT INTO pledger_piece_use (run_key, piece_key)
SELECT ?1, piece_key FROM pledger_piece WHERE name = ?2 ON CONFLICT DO NOTHING;

-- name: read_pieces
SELECT piece.name, piece.body FROM json_each(?) AS asked
CROSS JOIN pledger_piece AS piece ON piece.name = unhex(asked.value);
