"""Reserve, wait until it is paid, ship."""

from examples.labs.versions.steps import reserve_stock, ship
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
        done = [await reserve_stock(order)]
        await workflow.wait_condition(lambda: self.is_paid)
        return [*done, await ship(order)]
