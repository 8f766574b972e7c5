"""An entity: one run for each customer, for years. It takes messages, one after another, and remembers.

    python -m examples.patterns.entity

Its workflow id is the name of the customer, so there is one of it, and nobody else changes its state. It would have a
history without end; `workflow.checkpoint` has a successor go on when that has grown long. The mailbox belongs to the
chain of its runs and not to one of them, so whoever sends need not know: nothing is lost, doubled or overtaken.
"""

import asyncio
import sys
from collections import deque
from dataclasses import dataclass
from typing import Any

from pledger import Client, Worker, activity, connect, workflow
from pledger.client import WorkflowHandle

#: Points for a gift.
GIFT_AT = 100

#: After so many purchases somebody looks whether they have arrived.
SOME = 20


@dataclass
class Account:
    """All that a successor has to know. points: since the last gift."""

    points: int = 0
    purchases: int = 0
    gifts: int = 0


@activity.defn
async def send_gift(customer: str, number: int) -> None: ...


@workflow.defn
class Customer:
    @workflow.init
    def __init__(self, account: Account) -> None:
        self.account = account
        self.inbox: deque[int] = deque()
        self.has_left = False

    @workflow.run
    async def run(self, account: Account) -> Account:
        while True:
            await workflow.wait_condition(lambda: bool(self.inbox) or self.has_left, name="a purchase")
            while self.inbox:  # to the last: a successor is given the account, and not what was taken in
                await self.credit(self.inbox.popleft())
            if self.has_left:
                return account
            workflow.checkpoint(account)

    async def credit(self, points: int) -> None:
        account = self.account
        account.purchases += 1
        account.points += points
        if account.points >= GIFT_AT:
            account.points -= GIFT_AT
            account.gifts += 1
            await send_gift(workflow.info().workflow_id, account.gifts)

    @workflow.signal
    def buy(self, points: int) -> None:
        self.inbox.append(points)

    @workflow.signal
    def leave(self) -> None:
        self.has_left = True

    @workflow.query
    def balance(self) -> Account:
        return self.account


async def buy(client: Client, name: str, points: int, purchase_id: str) -> WorkflowHandle[Any]:
    """Tell the customer, who is made by the first purchase. By its id a purchase is known throughout the chain: told of
    twice, it counts once."""
    return await client.start_workflow(
        Customer,
        Account(),
        id=f"customer-{name}",
        start_signal=Customer.buy,
        start_signal_args=[points],
        start_signal_id=purchase_id,
    )


WORKFLOWS = [Customer]
ACTIVITIES = [send_gift]


async def main(url: str) -> None:
    async with (
        connect(url) as client,
        # So that it rolls over in the first second, and not in some years.
        Worker(client, workflows=WORKFLOWS, activities=ACTIVITIES, max_history_events=100),
    ):
        ada = await buy(client, "ada", 10, "purchase-1")
        for number in range(1, 41):
            for _ in range(2):
                await buy(client, "ada", 10, f"purchase-{number}")
            while number == SOME and (await ada.query(Customer.balance)).purchases < SOME:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await ada.signal(Customer.leave)
        print(await ada.result())
        runs = [run async for run in client.list("workflow_id = 'customer-ada'")]
        print("one run" if len(runs) == 1 else "a chain of runs, each with a short history")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
