"""All planted bugs."""

from __future__ import annotations

from tests.simulation.reverts import (
    of_a_disk,
    of_a_server,
    of_attempts,
    of_audits,
    of_chains,
    of_codecs,
    of_dependencies,
    of_families,
    of_held_rows,
    of_labels,
    of_pauses,
    of_pieces,
    of_queues,
    of_resets,
    of_retention,
    of_runs,
    of_the_store,
    of_tokens,
    of_transactions,
    of_wide_transitions,
)

EVERY = [
    *of_the_store.REVERTS,
    *of_attempts.REVERTS,
    *of_audits.REVERTS,
    *of_runs.REVERTS,
    *of_pauses.REVERTS,
    *of_queues.REVERTS,
    *of_dependencies.REVERTS,
    *of_held_rows.REVERTS,
    *of_a_disk.REVERTS,
    *of_a_server.REVERTS,
    *of_retention.REVERTS,
    *of_transactions.REVERTS,
    *of_wide_transitions.REVERTS,
    *of_pieces.REVERTS,
    *of_tokens.REVERTS,
    *of_chains.REVERTS,
    *of_families.REVERTS,
    *of_resets.REVERTS,
    *of_labels.REVERTS,
    *of_codecs.REVERTS,
]
