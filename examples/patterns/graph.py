"""A graph that is data: what is to be done, and what it needs first, is found out on the way.

    python -m examples.patterns.graph

No part of the graph is in the code. A package says what it needs when it is looked at; what it needs is built first,
once, whoever needs it, and everything whose needs are met at the same time. A cycle is a failure that names it.
"""

import asyncio
import sys

from pledger import Worker, activity, connect, errors, workflow

#: What each package needs. It lies elsewhere: in a repository, in a table, in what a customer has drawn.
REPOSITORY = {
    "shop": ["web", "payments"],
    "web": ["base"],
    "payments": ["base", "crypto"],
    "crypto": ["base"],
    "base": [],
    "hen": ["egg"],
    "egg": ["hen"],
}


@activity.defn
async def needs_of(package: str) -> list[str]:
    return REPOSITORY[package]


@activity.defn
async def build(package: str, needs: list[str]) -> str:
    return f"{package}({', '.join(needs)})" if needs else package


@workflow.defn
class Build:
    """needs: what is known of the graph so far. tasks: one for each package that somebody has asked for."""

    def __init__(self) -> None:
        self.needs: dict[str, list[str]] = {}
        self.tasks: dict[str, asyncio.Task[str]] = {}

    @workflow.run
    async def run(self, package: str) -> str:
        return await self.built(package)

    def built(self, package: str) -> asyncio.Task[str]:
        if package not in self.tasks:
            self.tasks[package] = asyncio.create_task(self.build(package))
        return self.tasks[package]

    async def build(self, package: str) -> str:
        self.needs[package] = await needs_of(package)
        for need in self.needs[package]:
            if path := self.path(need, package):
                raise errors.ApplicationError(" needs ".join([package, *path]), type="Cycle", non_retryable=True)
        return await build(package, await asyncio.gather(*map(self.built, self.needs[package])))

    def path(self, begin: str, end: str) -> list[str]:
        """From one to the other, as far as needs are known by now; empty if there is no way."""
        came_from = {begin: ""}
        found = [begin]
        for package in found:
            for need in self.needs.get(package, []):
                if need not in came_from:
                    came_from[need] = package
                    found.append(need)
        way = [end] if end in came_from else []
        while way and way[0] != begin:
            way.insert(0, came_from[way[0]])
        return way


WORKFLOWS = [Build]
ACTIVITIES = [needs_of, build]


async def main(url: str) -> None:
    async with connect(url) as client, Worker(client, workflows=WORKFLOWS, activities=ACTIVITIES):
        handle = await client.start_workflow(Build, "shop", id="build-shop")
        print(await handle.result())
        steps = [event.attributes.get("activity_type") for event in (await handle.history()).events]
        print(f"{steps.count('build')} packages were built, each once")
        try:
            await client.execute_workflow(Build, "hen", id="build-hen")
        except errors.WorkflowFailedError as failed:
            print(failed.__cause__)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
