"""Real processes on a PostgreSQL server, killed before and after each kind of thing that they write."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests import servers
from tests.crashes.fleet import points
from tests.crashes.test_crash_points import PATIENCE_S, ROOT


def sweep(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with servers.schema() as url:
        command = [sys.executable, "-m", "tests.crashes.fleet", url, str(folder), *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def test_killed_before_and_after_each_kind_of_write(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    done = sweep(tmp_path)
    assert done.returncode == 0, done.stderr
    kills = json.loads(done.stdout)
    assert sum(kills.values()) == len(points()) >= 34
    record_property("killed", {"cases": 1, "kills": sum(kills.values()), "second": 0})


def test_messages_that_stay_in_the_inbox_are_found(tmp_path: Path) -> None:
    done = sweep(tmp_path, "unconsumed")
    assert done.returncode != 0
    # A run that takes one message for two ends too early for its life, or in another way than it must.
    assert "ended with wait status" in done.stderr or "is not what it must be" in done.stderr
