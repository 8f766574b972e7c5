-- Parents and children, and what one run sends to another.

-- name: resolve_addressees
-- Of the chain that has the run $3, or of the newest one, the last run; by its place among those that are asked for.
SELECT asked.place::int, run.run_key
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS asked (namespace, workflow_id, run_id, place)
CROSS JOIN LATERAL (
    SELECT chain.chain_key FROM pledger.chain AS chain
    WHERE chain.namespace = asked.namespace AND chain.workflow_id = asked.workflow_id
        AND (asked.run_id IS NULL OR EXISTS (
            SELECT FROM pledger.run AS part WHERE part.chain_key = chain.chain_key AND part.run_id = asked.run_id
            OFFSET 0
        ))
    ORDER BY chain.generation DESC LIMIT 1
) AS chain
CROSS JOIN LATERAL (
    SELECT last.run_key FROM pledger.run AS last WHERE last.chain_key = chain.chain_key
    ORDER BY last.segment DESC LIMIT 1
) AS run;

-- name: resolve_parents
-- Of the runs $1 those that are children: by which event of which run. None of that ever changes.
SELECT run.run_key, child.parent_key, child.event_id, parent.run_id
FROM unnest($1::bigint[]) AS asked (run_key)
CROSS JOIN LATERAL (
    SELECT found.run_key, found.chain_key FROM pledger.run AS found WHERE found.run_key = asked.run_key OFFSET 0
) AS run
JOIN pledger.child AS child USING (chain_key) JOIN pledger.run AS parent ON parent.run_key = child.parent_key;

-- name: insert_children
INSERT INTO pledger.child (chain_key, parent_key, event_id, policy)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]);

-- name: insert_partings
-- Of runs that end those that have children which are not to outlive them.
INSERT INTO pledger.parting (namespace, run_key)
SELECT run.namespace, run.run_key FROM unnest($1::bigint[]) AS ended (run_key)
CROSS JOIN LATERAL (
    SELECT found.namespace, found.run_key FROM pledger.run AS found WHERE found.run_key = ended.run_key OFFSET 0
) AS run
WHERE EXISTS (
    SELECT FROM pledger.child AS child WHERE child.parent_key = run.run_key AND child.policy <> 'abandon' OFFSET 0
)
ON CONFLICT DO NOTHING;

-- name: read_parent
SELECT row.* FROM pledger.child AS child JOIN pledger.run_row AS row ON row.run_key = child.parent_key
WHERE child.chain_key = $1;

-- name: read_children
-- The newest run of each.
SELECT child.event_id, child.policy, row.*
FROM pledger.child AS child
CROSS JOIN LATERAL (
    SELECT run.run_key FROM pledger.run AS run WHERE run.chain_key = child.chain_key ORDER BY run.segment DESC LIMIT 1
) AS newest
JOIN pledger.run_row AS row ON row.run_key = newest.run_key
WHERE child.parent_key = $1 AND child.event_id > $3
ORDER BY child.event_id LIMIT $2;

-- name: next_parting
SELECT row.* FROM pledger.run_row AS row WHERE row.run_key = (
    SELECT parting.run_key FROM pledger.parting AS parting WHERE parting.namespace = $1
    ORDER BY parting.parting_key LIMIT 1
);

-- name: dependants
SELECT child.event_id, child.policy, row.*
FROM pledger.child AS child JOIN pledger.run_row AS row USING (chain_key)
WHERE child.parent_key = $1 AND child.policy <> 'abandon' AND row.closed_ms IS NULL
ORDER BY child.event_id LIMIT $2;

-- name: seen_to
UPDATE pledger.child SET policy = 'abandon' WHERE chain_key = ANY($1::bigint[]);

-- name: drop_parting
-- Once nobody is left.
DELETE FROM pledger.parting WHERE run_key = $1 AND NOT EXISTS (
    SELECT FROM pledger.child AS child JOIN pledger.run AS run USING (chain_key)
    WHERE child.parent_key = $1 AND child.policy <> 'abandon' AND run.closed_ms IS NULL
);
