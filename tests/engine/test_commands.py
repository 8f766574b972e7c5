"""Every command of the CLI says and does the same on SQLite and on PostgreSQL.

In this process, against a worker on a loop of its own: what only a process of the command's own can show is in
`acceptance/test_cli.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from pledger import Limit, RetryBudget, activity, workflow
from pledger.cli import main
from tests.commands import commands
from tests.engine.conftest import lasting, place
from tests.engine.harness import PATIENCE_S, Ledger, worker_process

Run: TypeAlias = Callable[..., Any]

#: But those that use no ledger, and the one that is a process.
COMMANDS = set(commands()) - {"check", "worker"}


@activity.defn(limits=[Limit("courier", concurrency=3)], retry_budget=RetryBudget("courier-api"))
async def book(order: str) -> str:
    return f"{order} is booked"


@activity.defn
async def ship(order: str) -> str:
    TOKENS.append(activity.completion_token())
    activity.raise_complete_async()


@workflow.defn
async def parcel(order: str) -> str:
    return await ship(order)


#: What `ship` has handed out; the worker is in this process.
TOKENS: list[str] = []


@workflow.defn
class Approval:
    def __init__(self) -> None:
        self.by = ""

    @workflow.run
    async def run(self, order: str) -> str:
        workflow.publish("steps", "asked")
        await workflow.wait_condition(lambda: self.by)
        workflow.publish("steps", f"{self.by} has approved it")
        return await book(order)

    @workflow.signal
    def approve(self, by: str) -> None:
        self.by = by

    @workflow.update
    def ask(self, by: str) -> str:
        return f"{by} is asked"

    @workflow.query
    def approver(self) -> str:
        return self.by


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    with place(request.param, tmp_path) as url:
        yield from lasting(url)


@pytest.fixture
def run(ledger: Ledger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command to its end, which must be this exit code; the JSON that it tells. All of them have to be used."""
    monkeypatch.setenv("PLEDGER_URL", ledger.url)
    used: set[str] = set()

    def run(*words: str, code: int = 0) -> Any:
        two = " ".join(words[:2])
        used.add(two if two in COMMANDS else words[0])
        capsys.readouterr()
        ended = main([*words, "--json"])
        told = capsys.readouterr()
        assert ended == code, f"pledger {words} ended with {ended}\n{told.out}{told.err}"
        return json.loads(told.out or told.err)

    run.used = used  # type: ignore[attr-defined] # what it has been asked for
    return run


def test_every_command_on_both_stores(ledger: Ledger, run: Run, tmp_path: Path) -> None:
    with worker_process(ledger, Approval, parcel, book, ship):
        begin_and_look(run)
        hold_up_and_let_go(run)
        run("signal", "order-1", "approve", '"ada"')
        assert run("start", "Approval", '"o1"', "--id", "order-1", "--wait")["result"] == "o1 is booked"
        assert run("follow", "order-1", "--topic", "steps", "--from", "1")["value"] == "ada has approved it"
        end_and_replay(run, tmp_path)
        go_back_and_on(run)
        take_away(ledger, run, tmp_path)
        complete_from_outside(run)
    assert run.used == COMMANDS  # type: ignore[attr-defined]


def begin_and_look(run: Run) -> None:
    assert run("start", "Approval", '"o1"', "--id", "order-1")["is_new"]
    assert not run("start", "Approval", '"o1"', "--id", "order-1")["is_new"]
    assert run("query", "order-1", "approver") == ""
    assert run("update", "order-1", "ask", '"ada"', "--update-id", "u1")["result"] == "ada is asked"
    assert run("update", "order-1", "ask", '"ada"', "--update-id", "u1", "--accepted")["accepted"]
    run("update", "order-1", "ask", '"bob"', "--update-id", "u1", code=7)
    assert run("show", "order-1")["run"]["status"] == "running"
    assert [each["workflow_id"] for each in run("list")["runs"]] == ["order-1"]
    assert run("list", "status = 'completed'")["runs"] == []
    assert run("doctor")["ok"]
    assert run("audit")["problems"] == []
    run("show", "order-2", code=3)


def hold_up_and_let_go(run: Run) -> None:
    run("pause", "run", "order-1", "--reason", "a look at it")
    assert [each["kind"] for each in run("paused")["pauses"]] == ["run"]
    run("resume", "run", "order-1")
    assert run("paused")["pauses"] == []
    run("limit", "set", "courier", "--concurrency", "1")
    [limit] = run("limit", "list")["limits"]
    assert (limit["name"], limit["concurrency"], limit["overridden"]) == ("courier", 1, True)
    run("limit", "reset", "courier")
    assert [each["concurrency"] for each in run("limit", "list")["limits"]] == [3]
    run("dependency", "pause", "courier-api", "--reason", "they are down")
    assert run("dependency", "show", "courier-api")["phase"] == "paused"
    run("dependency", "resume", "courier-api")
    assert [each["name"] for each in run("dependency", "list")["dependencies"]] == ["courier-api"]
    assert [each["workers"] for each in run("queue", "list")["queues"]] == [1]


def end_and_replay(run: Run, directory: Path) -> None:
    run("start", "Approval", '"o2"', "--id", "order-2")
    assert run("query", "order-2", "approver") == ""  # it has begun: what has not could not be redriven
    run("terminate", "order-2", "--reason", "twice")
    run("start", "Approval", '"o3"', "--id", "order-3")
    run("cancel", "order-3", "--wait")
    statuses = {each["workflow_id"]: each["status"] for each in run("list")["runs"]}
    assert statuses == {"order-1": "completed", "order-2": "terminated", "order-3": "cancelled"}
    history = run("history", "order-1")
    kept = directory / "order-1.json"
    kept.write_text(json.dumps(history), encoding="utf-8")
    assert run("replay", str(kept), "--app", __name__)


def complete_from_outside(run: Run) -> None:
    TOKENS.clear()
    run("start", "parcel", '"o4"', "--id", "parcel-4")
    token = next_token(1)
    assert run("activity", "heartbeat", token, '"on the road"') == {"accepted": True, "cancel_requested": False}
    run("activity", "cancelled", token, code=2)  # nobody has asked for that
    assert run("activity", "fail", token, "lost in the post", "--type", "Lost")["outcome"] == "failed"
    token = next_token(2)
    assert run("token", "rotate", "--keep", "1h")["keep_s"] == 3600
    assert run("activity", "complete", token, '"ada"') == {"accepted": True, "outcome": "completed"}
    run("activity", "complete", token, '"bob"', code=2)
    assert run("start", "parcel", '"o4"', "--id", "parcel-4", "--wait")["result"] == "ada"


def next_token(count: int) -> str:
    until = time.monotonic() + PATIENCE_S
    while len(TOKENS) < count and time.monotonic() < until:
        time.sleep(0.01)  # the worker is on another thread
    return TOKENS[count - 1]


def go_back_and_on(run: Run) -> None:
    planned = run("reset", "order-1", "--event", "1", "--dry-run")
    assert [each["activity_type"] for each in planned["repetitions"]] == ["book"]
    assert (planned["new_run_id"], planned["reapplied"]) == (None, ["ask", "approve"])
    assert run("reset", "order-1", "--event", "1", "--reapply", "signals", "--dry-run")["reapplied"] == ["approve"]
    done = run("reset", "order-1", "--event", "1", "--reason", "a look at it", "--yes")
    assert run("start", "Approval", '"o1"', "--id", "order-1", "--wait")["result"] == "o1 is booked"
    [link] = run("show", "order-1")["resets"]
    assert (link["run_id"], link["base_run_id"], link["reason"]) == (done["new_run_id"], done["run_id"], "a look at it")
    run("redrive", "order-1", "--yes", code=7)
    redriven = run("redrive", "order-2", "--yes")
    assert run("show", "order-2")["resets"][0]["how"] == "redrive"
    run("terminate", redriven["new_run_id"])


def take_away(ledger: Ledger, run: Run, directory: Path) -> None:
    assert run("export", str(directory / "all.jsonl"))
    assert (directory / "all.jsonl").read_text(encoding="utf-8").count("\n") == 5
    if ledger.url.startswith("sqlite"):
        assert run("backup", str(directory / "copy.db"))
    else:
        run("backup", str(directory / "copy.db"), code=2)
    assert run("prune", "--older-than", "0s", "--dry-run")
    assert run("prune", "--older-than", "0s", "--yes")
    assert run("list")["runs"] == []
    ledger.replay_at_end = False
