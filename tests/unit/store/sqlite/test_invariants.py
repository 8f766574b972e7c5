"""What the schema itself refuses, should the code ever be wrong."""

from __future__ import annotations

import apsw
import pytest

from pledger.store.sqlite import SqliteStore
from tests.conformance.harness import append, open_session, owned_run, ownerless_run, signal, task, write


@pytest.mark.parametrize(
    "change",
    [
        "status = 'sleeping'",
        "status = 'completed'",
        "closed_ms = 5",
        "status = 'completed', closed_ms = 5, due_ms = NULL",  # still owned
        "status = 'completed', closed_ms = 5, owner = NULL, due_ms = 1",
        "blocked = x'00', blocked_code = 'c'",  # still owned
        "owner = NULL, blocked = x'00'",
        "owner = NULL, blocked_code = 'c'",
        "head = x'00'",
        "last_event = -1",
        "fence = 'one'",
    ],
)
async def test_runs(store: SqliteStore, change: str) -> None:
    await owned_run(store, await open_session(store))
    with pytest.raises(apsw.ConstraintError):
        store._database.writer.connection.execute(f"UPDATE pledger_run SET {change}")


@pytest.mark.parametrize(
    "change",
    ["state = 'started'", "state = 'done'", "owner = 1", "outcome = x'00'", "attempt = 0", "state = 'paused'"],
)
async def test_tasks(store: SqliteStore, change: str) -> None:
    run = await owned_run(store, await open_session(store))
    await write(store, append(run, tasks=[task(run, 3)]))
    with pytest.raises(apsw.ConstraintError):
        store._database.writer.connection.execute(f"UPDATE pledger_task SET {change}")


@pytest.mark.parametrize("change", ["verdict = 'read'", "event_id = 3", "keep_id = 2"])
async def test_messages(store: SqliteStore, change: str) -> None:
    await write(store, signal(await owned_run(store, await open_session(store))))
    with pytest.raises(apsw.ConstraintError):
        store._database.writer.connection.execute(f"UPDATE pledger_message SET {change}")


async def test_one_chain_of_each_generation_and_one_run_of_each_segment(store: SqliteStore) -> None:
    await ownerless_run(store)
    execute = store._database.writer.connection.execute
    with pytest.raises(apsw.ConstraintError):
        execute("INSERT INTO pledger_chain SELECT NULL, namespace, workflow_id, generation FROM pledger_chain")
    columns = "run_id, workflow_type, task_queue, input_digest, started_ms, fence"
    with pytest.raises(apsw.ConstraintError):
        execute(f"INSERT INTO pledger_run (chain_key, {columns}) SELECT chain_key, {columns} FROM pledger_run")
