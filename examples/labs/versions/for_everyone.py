"""A new first step, for everyone: runs that are past their first step have done another one there."""

from examples.labs.versions.steps import check_address, reserve_stock, ship
from pledger import workflow


@workflow.defn(name="fulfil")
class Fulfil:
    def __init__(self) -> None:
        self.is_paid = False

    @workflow.signal
    def paid(self) -> None:
        self.is_paid = True

    @workflow.run
    async def run(self, order: str) -> list[str]:
        done = [await check_address(order)]
        done.append(await reserve_stock(order))
        await workflow.wait_condition(lambda: self.is_paid)
        return [*done, await ship(order)]
