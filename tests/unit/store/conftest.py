"""Runs `async def` tests."""

from __future__ import annotations

import pytest

from tests.conformance.harness import run_async_test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_async_test(pyfuncitem)
