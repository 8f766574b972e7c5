"""One worker process of the example: it serves the ledger that the environment names, until SIGTERM.

ORDERS_LEDGER=sqlite:///orders.db ORDERS_OUTSIDE=outside.db python -m examples.orders.worker
"""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from typing import Final

from examples.orders.workflow import STEPS, FulfilOrder
from pledger import Worker, connect
from pledger.errors import StoreUnavailableError

#: Names the ledger's URL.
LEDGER_VARIABLE = "ORDERS_LEDGER"


#: The exit code of a worker that was started while its ledger's server was away: whoever started it does so again.
AWAY: Final = 75  # EX_TEMPFAIL of sysexits.h


async def main() -> None:
    async with AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(connect(os.environ[LEDGER_VARIABLE]))
        except StoreUnavailableError as error:
            print(error, file=sys.stderr)
            sys.exit(AWAY)
        await Worker(client, workflows=[FulfilOrder], activities=STEPS).run()


if __name__ == "__main__":
    asyncio.run(main())
