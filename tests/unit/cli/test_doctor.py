from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pledger.cli.doctor import Crowd, crowd_checks, pause_check
from pledger.cli.ledger_checks import Check, ledger_checks
from pledger.client import PauseSummary
from tests.unit.cli.runs import at, worker


@pytest.fixture
def ledger(tmp_path: Path) -> dict[str, Any]:
    """A ledger in order, as the store describes it."""
    path = tmp_path / "pledger.db"
    os.close(os.open(path, os.O_CREAT, 0o600))
    return {
        "kind": "sqlite",
        "path": str(path),
        "file_system": "ext4",
        "durability": "power",
        "synchronous": "FULL",
        "journal_mode": "wal",
        "schema_version": 1,
        "schema_version_known": 1,
        "sqlite_version": "3.51.3",
        "size_bytes": 118_784,
        "wal_bytes": 0,
    }


def check(ledger: dict[str, Any], name: str) -> Check:
    return next(each for each in ledger_checks(ledger) if each.name == name)


def test_a_ledger_in_order(ledger: dict[str, Any]) -> None:
    checks = [*ledger_checks(ledger)]
    assert {each.state for each in checks if each.name != "size"} == {"ok"}  # the disk here may be nearly full
    assert all(not each.action for each in checks if each.state == "ok")


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("3.40.1", "fail"),
        ("3.44.5", "fail"),
        ("3.44.6", "ok"),
        ("3.45.0", "fail"),
        ("3.50.6", "fail"),
        ("3.50.7", "ok"),
        ("3.51.2", "fail"),
        ("3.51.3", "ok"),
        ("3.54.1", "ok"),
        ("4.0.0", "ok"),
    ],
)
def test_sqlite_with_the_wal_reset_bug_fails(ledger: dict[str, Any], version: str, state: str) -> None:
    found = check({**ledger, "sqlite_version": version}, "sqlite")
    assert found.state == state
    assert bool(found.action) == (state == "fail")


@pytest.mark.parametrize(
    ("changed", "name", "state"),
    [
        ({"durability": "process", "synchronous": "NORMAL"}, "durability", "warn"),
        ({"journal_mode": "delete"}, "journal", "fail"),
        ({"wal_bytes": 300 * 1024 * 1024}, "journal", "warn"),
        ({"file_system": "tmpfs"}, "file system", "warn"),
        ({"file_system": ""}, "file system", "ok"),
    ],
)
def test_what_is_wrong_says_what_to_do(ledger: dict[str, Any], changed: dict[str, Any], name: str, state: str) -> None:
    found = check({**ledger, **changed}, name)
    assert found.state == state
    assert bool(found.action) == (state != "ok")


def test_a_file_that_others_may_read(ledger: dict[str, Any]) -> None:
    log = Path(ledger["path"] + "-wal")
    log.touch(0o600)
    log.chmod(0o640)
    found = check(ledger, "file mode")
    assert found.state == "warn"
    assert found.action == f"chmod 600 {log}"


def test_workers_and_runs_in_order() -> None:
    checks = {each.name: each for each in crowd_checks(Crowd((worker(),), open_runs=3, blocked_runs=0, unserved=0))}
    assert checks["workers"] == Check("workers", "ok", "1 live (task queue default)")
    assert checks["runs"] == Check("runs", "ok", "3 open, none blocked")


def test_a_ledger_without_runs_needs_no_worker() -> None:
    assert {each.state for each in crowd_checks(Crowd((), open_runs=0, blocked_runs=0, unserved=0))} == {"ok"}


def test_runs_that_nobody_serves() -> None:
    [workers, _] = crowd_checks(Crowd((worker(live=False),), open_runs=2, blocked_runs=0, unserved=2))
    assert workers.state == "warn"
    assert workers.found == "0 live, and 2 open runs whose task queue none of them serves"
    assert "pledger worker" in workers.action


def test_workers_that_died() -> None:
    crowd = Crowd((worker(), worker("9@host", live=False)), open_runs=2, blocked_runs=0, unserved=0)
    workers, _ = crowd_checks(crowd)
    assert (workers.state, workers.found) == ("warn", "1 live (task queue default), and 1 that died")


def test_blocked_runs() -> None:
    _, runs = crowd_checks(Crowd((worker(),), open_runs=5, blocked_runs=2, unserved=0))
    assert (runs.state, runs.found) == ("warn", "5 open, 2 of them blocked")
    assert 'pledger list "blocked = true"' in runs.action


@pytest.fixture
def served() -> dict[str, Any]:
    """A ledger on a server, in order, as its store describes it."""
    return {
        "kind": "postgresql",
        "url": "postgresql://db.example/shop?schema=pledger",
        "durability": "power",
        "synchronous_commit": "on",
        "schema": "pledger",
        "schema_version": 1,
        "schema_version_known": 1,
        "server_version": "18.6",
        "database_bytes": 9_000_000,
        "connections": 3,
        "connections_max": 4,
        "listeners": 1,
        "listeners_max": 1,
        "process_connections": 4,
        "runs_in_doubt": 0,
        "loss_declared_ms": None,
        "server_connections": 40,
        "server_connections_max": 97,
    }


def test_a_ledger_on_a_server_in_order(served: dict[str, Any]) -> None:
    checks = [*ledger_checks(served)]
    assert {each.state for each in checks} == {"ok"}
    assert [each.found for each in checks][:2] == ["postgresql://db.example/shop?schema=pledger", "PostgreSQL 18.6"]
    assert check(served, "size").found == "8.6 MiB, the whole database"


def test_a_schema_of_a_newer_pledger_that_this_one_can_live_with_warns(
    served: dict[str, Any], ledger: dict[str, Any]
) -> None:
    for newer in ({**served, "schema_version": 2}, {**ledger, "schema_version": 2}):
        found = check(newer, "schema")
        assert found.state == "warn"
        assert "version 2: of a newer Pledger, which this one, of version 1, can live with" in found.found
        assert "pip install --upgrade pledger" in found.action


def test_a_ledger_that_went_back_warns_while_runs_are_in_doubt(served: dict[str, Any]) -> None:
    found = check({**served, "runs_in_doubt": 3, "loss_declared_ms": 1_700_000_000_000}, "loss")
    assert found.state == "warn"
    assert "at 2023-11-14 22:13:20 UTC; 3 open runs may have gone on" in found.found
    assert "unknown" in found.action


def test_a_server_with_no_room_for_another_process_warns(served: dict[str, Any]) -> None:
    assert (
        check(served, "connections").found
        == "40 of the server's 97 are taken; a client with its workers takes 5 at most"
    )
    found = check({**served, "server_connections": 93}, "connections")
    assert found.state == "warn"
    assert "max_connections" in found.action


def test_a_server_that_may_forget_warns(served: dict[str, Any]) -> None:
    found = check({**served, "synchronous_commit": "off"}, "durability")
    assert found.state == "warn"
    assert "synchronous_commit=on" in found.action


def test_a_pause_warns() -> None:
    assert pause_check(()).state == "ok"
    pauses = [PauseSummary("queue", name, "", "ada@ops", at(0)) for name in ("gpu", "eu")]
    found = pause_check(pauses)
    assert (found.state, found.found) == ("warn", "queue gpu by ada@ops and 1 more")
