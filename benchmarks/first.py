"""The process of W8: one workflow on a new ledger.

python -m benchmarks.first URL
"""

import asyncio
import sys

from benchmarks.programs import sequence, step
from pledger import Worker, connect


async def main(url: str) -> None:
    async with connect(url) as client, Worker(client, workflows=[sequence], activities=[step]):
        print(await client.execute_workflow(sequence, 1, id="first"), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
