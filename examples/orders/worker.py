"""One worker process of the example: it serves the ledger that the environment names, until SIGTERM.

ORDERS_LEDGER=sqlite:///orders.db ORDERS_OUTSIDE=outside.db python -m examples.orders.worker
"""

import asyncio
import os

from examples.orders.workflow import STEPS, FulfilOrder
from pledger import Worker, connect

#: Names the ledger's URL.
LEDGER_VARIABLE = "ORDERS_LEDGER"


async def main() -> None:
    async with connect(os.environ[LEDGER_VARIABLE]) as client:
        await Worker(client, workflows=[FulfilOrder], activities=STEPS).run()


if __name__ == "__main__":
    asyncio.run(main())
