"""The demo, small: real worker processes, real kills, restarts of a real server, and the reconciliation holds."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("further", [[], ["--store", "postgres", "--restarts", "2"]], ids=["sqlite", "postgres"])
def test_orders_survive_killed_workers(tmp_path: Path, further: list[str]) -> None:
    """On a server, that is restarted too: once in peace, once as in a crash."""
    options = [
        "--orders",
        "60",
        "--workers",
        "2",
        "--kills",
        "3",
        "--seed",
        "1",
        "--directory",
        str(tmp_path),
        *further,
    ]
    command = [sys.executable, "-m", "examples.orders.demo", *options, *further]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    workers = (tmp_path / "workers.log").read_text(encoding="utf-8")
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}\n{workers}"
    assert "wrong" not in ended.stdout
