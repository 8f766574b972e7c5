"""Ledgers on the server of the test run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import servers
from tests.conformance.harness import run_async_test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_async_test(pyfuncitem)


@pytest.fixture
def url() -> Iterator[str]:
    """Of an empty schema."""
    with servers.schema() as url:
        yield url
