"""Real processes, killed between every pair of statements of transactions that the user and the ledger share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pledger.store.postgres.address import parse_url
from tests import servers
from tests.crashes.test_crash_points import PATIENCE_S, ROOT


def sweep(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.crashes.transactions", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def kills(done: subprocess.CompletedProcess[str], record_property: Callable[[str, object], None]) -> dict[str, int]:
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    assert found.keys() == {"start", "step", "thread"}
    record_property("killed", {"cases": len(found), "kills": sum(found.values()), "second": 0})
    return found


def test_killed_at_every_statement_on_sqlite(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    found = kills(sweep(f"sqlite:///{tmp_path}/ledger.db"), record_property)
    # BEGIN, two statements of the user's, what the ledger writes, COMMIT; and once all is done.
    assert min(found.values()) >= 8


def test_killed_at_every_statement_on_postgresql(record_property: Callable[[str, object], None]) -> None:
    with servers.schema() as url:
        table = f"{parse_url(url).schema}_sold"
        try:
            found = kills(sweep(url, table), record_property)
        finally:
            servers.admin(f"DROP TABLE IF EXISTS {table}")
    # Before, once sent, and after: each of BEGIN, the limits, two of the user's, what the ledger writes, COMMIT.
    assert min(found.values()) >= 20


def test_a_record_apart_from_the_effect_is_found(tmp_path: Path) -> None:
    done = sweep(f"sqlite:///{tmp_path}/ledger.db", "apart")
    assert done.returncode != 0
    assert "the two sides differ" in done.stderr
