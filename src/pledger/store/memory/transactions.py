"""A ledger in memory has no database that a user's tables could lie in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from pledger.engine.port.operations import StartRun
from pledger.errors import UsageError


class MemoryTransactions:
    async def join(self, connection: object, operation: StartRun) -> NoReturn:
        raise _refusal(f"workflow {operation.workflow_id!r} cannot be started in the transaction of {connection!r}")

    def transaction(self, url: str | None = None, *, open_max_s: float | None = None) -> NoReturn:  # noqa: ARG002 - the port's
        raise _refusal("there is no connection to hand out")

    def blocking_transaction(self, url: str | None = None, *, open_max_s: float | None = None) -> NoReturn:  # noqa: ARG002 - the port's
        raise _refusal("there is no connection to hand out")

    async def prepare_transactions(self, urls: Iterable[str | None], count: int) -> NoReturn:  # noqa: ARG002 - the port's
        raise _refusal("there is no transaction to be had")


def _refusal(what: str) -> UsageError:
    return UsageError(
        f"{what}: this ledger is in memory, and no database holds it together with tables of yours. Use sqlite:///... "
        "or postgresql://...; in a test of a workflow, give a plain function in place of the activity"
    )
