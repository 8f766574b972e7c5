"""`user_code.py` passes mypy --strict as it stands, with no configuration of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

CODE = Path(__file__).parent / "user_code.py"


def test_code_of_users_needs_no_annotations_for_pledger(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.cache is not None
    cache = pytestconfig.cache.mkdir("mypy")
    report, errors, status = api.run(["--strict", "--config-file=", f"--cache-dir={cache}", str(CODE)])
    assert (report.splitlines()[:-1], errors, status) == ([], "", 0)
