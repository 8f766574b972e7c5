"""Runs of an archive, looked up when the ledger has forgotten them."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pledger import RetryPolicy, activity, workflow
from pledger.cli import main
from pledger.client import Client, IdReusePolicy, WorkflowHandle
from pledger.errors import ApplicationError, UsageError, WorkflowNotFoundError
from pledger.ops.archive import Archive, archived
from pledger.ops.archived import find_archived
from tests.engine.harness import Ledger, until

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=2))
async def charge(order: str) -> str:
    if activity.info().attempt == 1:
        raise ApplicationError("the card reader is busy", type="Busy")
    return f"charged {order} " + "and so on " * 300


@workflow.defn
class Order:
    @workflow.run
    async def run(self, order: str) -> str:
        charged = await charge(order)
        if order == "waits":
            await workflow.wait_condition(lambda: False)
        return charged

    @workflow.signal
    def go(self, who: str) -> None: ...


async def export(client: Client, file: Path, *handles: WorkflowHandle[Any]) -> None:
    with Archive(file) as archive:
        for handle in handles:
            row = await client.internals.store.find_run("default", handle.workflow_id, handle.run_id)
            assert row is not None
            archive.write(await archived(client, row))


@pytest.mark.parametrize("name", ["runs.jsonl", "runs.jsonl.gz"])
async def test_what_is_told_of_an_archived_run_is_what_the_ledger_told(
    ledger: Ledger, name: str, tmp_path: Path
) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order, charge):
        other = await client.start_workflow(Order, "A1", id="order")
        done = await client.start_workflow(Order, "Ä2", id="order-Ä2")
        await other.result()
        await done.result()
        known = await done.describe()
        await export(client, tmp_path / name, other, done)
    found = find_archived(tmp_path / name, "order-Ä2", now=NOW)
    assert (found.summary, found.state, found.last_event) == (known.summary, known.state, known.last_event)
    assert found.history.transitions == known.history.transitions
    [attempt], [recorded] = found.attempts, known.attempts
    assert (attempt.attempt, attempt.outcome, attempt.worker) == (1, "failed", recorded.worker)
    assert done.run_id is not None
    assert find_archived(tmp_path / name, done.run_id, now=NOW).summary == known.summary
    assert find_archived(tmp_path / name, "order-Ä2", done.run_id, now=NOW).summary == known.summary
    assert find_archived(tmp_path / name, "order", now=NOW).summary.run_id == other.run_id
    with pytest.raises(WorkflowNotFoundError, match=r"no workflow 'orde' among the 2 runs of .*runs\.jsonl"):
        find_archived(tmp_path / name, "orde", now=NOW)
    with pytest.raises(WorkflowNotFoundError, match="no workflow 'order' with run id 01J9X among"):
        find_archived(tmp_path / name, "order", "01J9X", now=NOW)


async def test_of_several_runs_of_an_id_the_last_one_counts(ledger: Ledger, tmp_path: Path) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order, charge):
        first = await client.start_workflow(Order, "A1", id="order")
        await first.result()
        second = await client.start_workflow(Order, "A2", id="order", id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE)
        await second.result()
        await export(client, tmp_path / "runs.jsonl", second, first)
    assert find_archived(tmp_path / "runs.jsonl", "order", now=NOW).summary.run_id == second.run_id
    assert find_archived(tmp_path / "runs.jsonl", "order", first.run_id, now=NOW).summary.run_id == first.run_id


def test_the_commands_show_what_is_in_an_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")

    async def prepare() -> None:
        async with ledger.connect() as client:
            async with ledger.worker(client, Order, charge):
                late = await client.start_workflow(Order, "A1", id="late")
                await late.result()
                waits = await client.start_workflow(Order, "waits", id="waits")

                async def is_waiting() -> bool:
                    return (await waits.describe()).last_event >= 3

                await until(is_waiting)
            ended = await client.start_workflow(Order, "A2", id="ended")
            await ended.signal("go", "Ada")
            await ended.terminate()
            await export(client, Path("runs.jsonl"), late, waits, ended)

    asyncio.run(prepare())

    def told(*words: str, code: int = 0) -> str:
        assert main([*words, "--archive", "runs.jsonl"]) == code
        return capsys.readouterr().out

    text = told("show", "late")
    assert "runs.jsonl" in text
    assert "Busy: the card reader is busy" in text
    assert "worker" not in text
    assert "pledger show late --archive runs.jsonl --json" in text
    assert "Undelivered: signal go('Ada')" in told("show", "ended").replace('"', "'")
    open_text = told("show", "waits")
    assert "It was open when it was exported; what it waited for then is not in an archive" in open_text
    assert "deadline" in open_text
    document = json.loads(told("show", "late", "--json"))
    assert document["run"]["status"] == "completed"
    assert document["timeline"][1]["attempts"][0]["failure"]["message"] == "the card reader is busy"
    assert "ActivityCompleted" in told("history", "late")
    assert json.loads(told("history", "late", "--json"))["run"]["workflow_id"] == "late"
    assert main(["show", "missing", "--archive", "runs.jsonl"]) == 3
    assert "among the 3 runs of runs.jsonl" in capsys.readouterr().err


def test_a_file_that_is_no_archive_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "list.jsonl").write_text('{}\n{"id": "order"}\n')
    with pytest.raises(UsageError, match=r"list\.jsonl, line 2: this is no exported history"):
        find_archived(tmp_path / "list.jsonl", "order", now=NOW)
    with pytest.raises(UsageError, match=r"none\.jsonl cannot be read after line 0"):
        find_archived(tmp_path / "none.jsonl", "order", now=NOW)
