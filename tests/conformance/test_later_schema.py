"""This code on the schema of a later one: a sample of the suite, once more.

In a rolling deploy the first process of a newer version migrates the ledger while the others go on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.harness import Ledger
from tests.conformance.later import LATER

# The sample: imported tests are collected here as well, and use the fixture below.
from tests.conformance.test_append import *  # noqa: F403
from tests.conformance.test_claims import *  # noqa: F403
from tests.conformance.test_mailbox import *  # noqa: F403
from tests.conformance.test_tasks import *  # noqa: F403


@pytest.fixture(params=LATER)
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    return LATER[request.param](tmp_path)
