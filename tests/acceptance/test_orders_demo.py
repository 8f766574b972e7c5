"""The demo, small: real worker processes, real kills, and the reconciliation holds."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_orders_survive_killed_workers(tmp_path: Path) -> None:
    options = ["--orders", "60", "--workers", "2", "--kills", "3", "--seed", "1", "--directory", str(tmp_path)]
    command = [sys.executable, "-m", "examples.orders.demo", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    workers = (tmp_path / "workers.log").read_text(encoding="utf-8")
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}\n{workers}"
    assert "wrong" not in ended.stdout
