-- Parents and children, and what one run sends to another.

-- name: insert_child
INSERT INTO pledger_child (chain_key, parent_key, event_id, policy) VALUES (?, ?, ?, ?);

-- name: who_sends
SELECT chain_key FROM pledger_run WHERE run_key = ?;

-- name: find_addressee
-- Of the chain that has the run ?3, or of the newest one, the last run.
SELECT run.run_key, run.chain_key, run.status FROM pledger_run AS run WHERE run.chain_key = (
    SELECT chain.chain_key FROM pledger_chain AS chain
    WHERE chain.namespace = ?1 AND chain.workflow_id = ?2 AND (?3 IS NULL OR EXISTS (
        SELECT 1 FROM pledger_run AS part WHERE part.chain_key = chain.chain_key AND part.run_id = ?3
    ))
    ORDER BY chain.generation DESC LIMIT 1
)
ORDER BY run.segment DESC LIMIT 1;

-- name: find_parent
-- Of the run ?1: who has to be told of its end, while that is open.
SELECT parent.run_key, parent.chain_key, parent.run_id, child.event_id
FROM pledger_run AS run CROSS JOIN pledger_child AS child USING (chain_key)
CROSS JOIN pledger_run AS parent ON parent.run_key = child.parent_key
WHERE run.run_key = ?1 AND parent.closed_ms IS NULL;

-- name: insert_parting
INSERT INTO pledger_parting (namespace, run_key)
SELECT run.namespace, run.run_key FROM pledger_run AS run
WHERE run.run_key = ?1
    AND EXISTS (SELECT 1 FROM pledger_child AS child WHERE child.parent_key = ?1 AND child.policy <> 'abandon')
ON CONFLICT DO NOTHING;

-- name: read_parent
SELECT row.* FROM pledger_child AS child JOIN pledger_run_row AS row ON row.run_key = child.parent_key
WHERE child.chain_key = ?;

-- name: read_children
-- The newest run of each.
SELECT child.event_id, child.policy, row.*
FROM pledger_child AS child CROSS JOIN pledger_run_row AS row ON row.run_key = (
    SELECT run.run_key FROM pledger_run AS run WHERE run.chain_key = child.chain_key ORDER BY run.segment DESC LIMIT 1
)
WHERE child.parent_key = ?1 AND child.event_id > ?3
ORDER BY child.event_id LIMIT ?2;

-- name: next_parting
SELECT run_key FROM pledger_parting WHERE namespace = ? ORDER BY parting_key LIMIT 1;

-- name: dependants
SELECT child.event_id, child.policy, row.*
FROM pledger_child AS child CROSS JOIN pledger_run_row AS row USING (chain_key)
WHERE child.parent_key = ?1 AND child.policy <> 'abandon' AND row.closed_ms IS NULL
ORDER BY child.event_id LIMIT ?2;

-- name: seen_to
UPDATE pledger_child SET policy = 'abandon' WHERE chain_key IN (SELECT value FROM json_each(?));

-- name: drop_parting
-- Once nobody is left.
DELETE FROM pledger_parting WHERE run_key = ?1 AND NOT EXISTS (
    SELECT 1 FROM pledger_child AS child CROSS JOIN pledger_run AS run USING (chain_key)
    WHERE child.parent_key = ?1 AND child.policy <> 'abandon' AND run.closed_ms IS NULL
);
