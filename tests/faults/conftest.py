"""On every store, as the cases: `ledger` where no time passes, `virtual` where it does."""

from __future__ import annotations

from tests.cases.conftest import ledger, port_ledger, pytest_pyfunc_call, virtual

__all__ = ["ledger", "port_ledger", "pytest_pyfunc_call", "virtual"]
