"""How many round trips a verb takes."""

from __future__ import annotations

import pytest
from psycopg._pipeline_base import BasePipeline

from pledger.store.postgres import open_postgres
from tests.conformance.harness import append, open_session, owned_run, signal, write


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time that a pipeline waits for the server's answers."""
    waited: list[str] = []
    ask = BasePipeline._enqueue_sync

    def asks(self: BasePipeline) -> None:
        waited.append("sync")
        ask(self)

    monkeypatch.setattr(BasePipeline, "_enqueue_sync", asks)
    return waited


async def test_statements_that_go_out_together_take_one(url: str, trips: list[str]) -> None:
    """By itself psycopg would make a second one at the end of each pipeline."""
    store = await open_postgres(url)
    run = await owned_run(store, await open_session(store))
    trips.clear()
    await write(store, signal(run))  # lock and read; write and commit
    assert len(trips) == 2
    trips.clear()
    await owned_run(store, run.owner or 0, "another")
    assert len(trips) == 1
    trips.clear()
    [mail] = await store.read_mail([run.run_key])
    assert ([each.message_id for each in mail.messages], len(trips)) == (["m-1"], 1)
    trips.clear()
    [stored] = await store.read_stored_runs([run.run_key], 10)
    assert (len(stored.transitions), len(stored.messages), len(trips)) == (1, 1, 1)
    trips.clear()
    await write(store, append(run, closed="completed"))
    assert len(trips) == 1
    await store.close()
