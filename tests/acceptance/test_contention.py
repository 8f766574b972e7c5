"""Eight processes with sixteen threads each on one file, and copies taken of it meanwhile: nobody sees a lock, nothing
that was acknowledged is missing, and every copy is a ledger that goes on. `tests.acceptance.contention` says how."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.acceptance.contention import contend

ROOT = Path(__file__).parents[2]


def test_many_processes_and_threads_on_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    figures = asyncio.run(contend(tmp_path, processes=8, threads=16, orders=1))
    assert figures["runs"] == 8 * 14
    assert figures["copies"] >= 2
