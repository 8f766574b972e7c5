"""The port: what the engine needs of a database, in domain verbs grouped by subject. `pledger.store` implements it.

Writes that concern one run are *operations*, gathered by the committer and handed over as one batch: the store writes
the batch in one durable transaction and answers each operation on its own. A lost fence, a taken workflow id or a
duplicate message is an ordinary answer and never harms its neighbours in the batch.

Rules that every store keeps (`tests/conformance` checks each of them):

- An answer is given after the commit is durable, never before.
- An append wins only if the run is open, its fence and its last event are the expected ones; otherwise nothing of the
  operation is written and the answer is LOST. One that is there already (repeated, since its answer was lost) has WON.
- Terminal states absorb: nothing changes a closed run.
- A run is owned exactly while a session holds it; every change of owner raises the fence.
- Namespaces are apart: a workflow id, and a task queue's name, mean nothing outside of theirs.
- Reads see committed data only.
- Operations of one batch are answered in their order; only what a start finds of its workflow id may be as of before
  the batch, since whoever asks for it has had no answer to the others yet.
- An operation is refused on its own with an exception of `pledger.errors` in place of its answer only when it is itself
  at fault; if the whole batch could not be written, the future fails and nothing of it is written.

Keys (`run_key`, `chain_key`, `session_key`, `message_key`, ...) are the store's own numbers, positive, never reused.
All times are milliseconds since 1970 UTC by the store's clock, durations are milliseconds.

The verbs are in `verbs`; `records` has the rows that they give, `operations` what a batch consists of, `answers` what
comes back for each.
"""
