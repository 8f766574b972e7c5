"""Workflows that continue as new, beside their messages and their steps."""

from __future__ import annotations

from typing import Any

from pledger import workflow
from tests.reference.activities import step


@workflow.defn
class Rolling:
    """Takes messages, two in each of its runs, until it has them all. What comes with the second one is its
    successor's."""

    @workflow.init
    def __init__(self, wanted: int, before: list[str]) -> None:
        self.wanted = wanted
        self.got = [*before]
        self.taken = 0

    @workflow.run
    async def run(self, wanted: int, before: list[str]) -> list[str]:
        await workflow.wait_condition(lambda: len(self.got) >= wanted)
        await step(f"collected {wanted}")
        return self.got

    @workflow.signal
    def take(self, text: str) -> None:
        self.got.append(text)
        self.taken += 1
        if self.taken == 2 and len(self.got) < self.wanted:
            workflow.continue_as_new(self.wanted, self.got)

    @workflow.query
    def count(self) -> int:
        return len(self.got)


@workflow.defn
async def relay(names: list[str]) -> str:
    """Each run does one step, and hands on the rest."""
    await step(names[0])
    if len(names) > 1:
        workflow.continue_as_new(names[1:])
    return names[0]


@workflow.defn
async def counting(rounds: int, done: list[str]) -> list[str]:
    """A loop with a checkpoint, which is given a low bound."""
    while rounds:
        done = [*done, await step(f"round {rounds}")]
        rounds -= 1
        workflow.checkpoint(rounds, done)
    return done


WORKFLOWS = [Rolling, relay, counting]
ACTIVITIES: list[Any] = []  # those of the others
