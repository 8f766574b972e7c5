"""Workflows of golden histories whose steps the ledger does more for: they write to tables of their own in the
transaction that records their result, and get secrets. As in `workflows`, what they ask for may not change."""

from __future__ import annotations

import asyncio
from typing import Any

from pledger import Secret, activity, workflow
from pledger.errors import ActivityError
from tests.histories.workflows import THRICE


class Vault:
    """Where the key of the bank is."""

    def resolve(self, name: str) -> str | None:
        return "open sesame" if name == "bank-key" else None


@activity.defn(transaction="shop")
async def sell(name: str) -> str:
    await activity.connection().execute("INSERT INTO sold VALUES (?)", (name,))
    return f"sold {name}"


@activity.defn(transaction="shop", retry_policy=THRICE)
def sell_out(name: str) -> str:
    activity.connection().execute("INSERT INTO sold VALUES (?)", (name,))
    raise ConnectionError(f"{name} is sold out")


@activity.defn(secrets=["bank-key"])
async def pay(key: Secret) -> int:
    return len(key.value)


@activity.defn(secrets=["bank-key"], retry_policy=THRICE)
async def pay_in_vain(key: Secret) -> None:
    raise ConnectionError(f"the bank does not take {key.value!r}")


@workflow.defn
async def steps_in_transactions(names: list[str]) -> list[str]:
    """One after the other, at once, and one that never stays."""
    sold = [await sell(names[0]), *await asyncio.gather(*map(sell, names[1:]))]
    try:
        await sell_out("lamp")
    except ActivityError as error:
        sold.append(str(error.__cause__))
    return sold


@workflow.defn
async def secrets_by_reference(key: Secret) -> list[str]:
    """Its value is in no argument, and in no failure that tells it."""
    told = [f"{await pay(key)} characters of {key}"]
    try:
        await pay_in_vain(key)
    except ActivityError as error:
        told.append(str(error.__cause__))
    return told


ACTIVITIES: list[Any] = [sell, sell_out, pay, pay_in_vain]
