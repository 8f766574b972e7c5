"""Fan-out and fan-in: one step for each part, all at the same time; what they bring is put together in order.

    python -m examples.patterns.fan_out

How many parts there are is known when the run is under way. The steps are spread over all workers of their queue; a
worker that dies has lost its own, which are done again elsewhere, and no others.
"""

import asyncio
import sys

from pledger import Worker, activity, connect, workflow

LIBRARY = {
    "Genesis": ["in the beginning", "and the earth was without form", "and there was light"],
    "Nothing": [],
}


@activity.defn
async def pages_of(book: str) -> list[str]:
    return LIBRARY[book]


@activity.defn
async def count_words(page: str) -> int:
    return len(page.split())


@workflow.defn
async def words_of(book: str) -> list[int]:
    """The words on each page, and of all of them at the end."""
    pages = await pages_of(book)
    counts = await asyncio.gather(*(count_words(page) for page in pages))
    return [*counts, sum(counts)]


WORKFLOWS = [words_of]
ACTIVITIES = [pages_of, count_words]


async def main(url: str) -> None:
    async with connect(url) as client, Worker(client, workflows=WORKFLOWS, activities=ACTIVITIES):
        for book in LIBRARY:
            *pages, total = await client.execute_workflow(words_of, book, id=f"words-{book}")
            print(f"{book}: {len(pages)} pages of {pages} words, {total} in all")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
