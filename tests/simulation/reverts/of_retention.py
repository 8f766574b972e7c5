"""Reverts of what retention lets alone, and of what it remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from pledger.engine import sweeper
from pledger.engine.port.records import RunRow
from pledger.engine.port.retention import Finished
from pledger.store.memory import State, retention
from pledger.store.sqlite import retention as sqlite_retention
from pledger.testing import Caller, Faults
from tests.simulation.reverts.revert import DEATHS, Revert, several

SOON = {"retention": timedelta(seconds=2)}


async def start_again_later(caller: Caller) -> None:
    await caller.outcome()
    await asyncio.sleep(20)
    await caller.start()


async def signal_at_the_end(caller: Caller) -> None:
    """The last ones come too late."""
    for n in range(6):
        if not await caller.signal("take", f"text {n}", message_id=f"take-{n}"):
            return


def retention_takes_what_is_open(patch: pytest.MonkeyPatch) -> None:
    def last_runs(state: State) -> list[RunRow]:
        return [replace(run, closed_ms=run.started_ms) for run in state.runs.values() if run.last_event > 0]

    def forget_chains(state: State, chain_keys: Sequence[int], keep_ms: int) -> int:
        for run in retention.chain_runs(state, chain_keys):
            retention._forget_run(state, run)
        return len(chain_keys)

    patch.setattr(retention, "_last_runs", last_runs)
    patch.setattr(retention, "forget_chains", forget_chains)


def retention_takes_what_has_just_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(
        sqlite_retention._SQL,  # type: ignore[arg-type] # a plain dict, which nobody else changes
        "forgettable_runs",
        "SELECT run_key, chain_key, last_event FROM pledger_run WHERE closed_ms IS NOT NULL AND forgotten_ms IS NULL "
        "AND ?1 IS NOT ?2 AND ?3 IS NOT NULL",
    )


def retention_forgets_ids(patch: pytest.MonkeyPatch) -> None:
    rule = retention._forget_run

    def forget(state: State, run: RunRow) -> None:
        rule(state, run)
        state.newest.pop((run.namespace, run.workflow_id), None)

    patch.setattr(retention, "_forget_run", forget)


def retention_forgets_messages(patch: pytest.MonkeyPatch) -> None:
    def forget(state: State, chain_key: int) -> None:
        for message in state.inboxes[chain_key].values():
            state.message_keys.pop((chain_key, message.message_id), None)
        state.inboxes[chain_key] = {}

    patch.setattr(retention, "_forget_messages", forget)


def retention_takes_what_nobody_took(patch: pytest.MonkeyPatch) -> None:
    def in_batches(chains: Sequence[Finished], chains_max: int, events_max: int) -> Iterator[list[Finished]]:
        yield list(chains)

    patch.setattr(sweeper, "in_batches", in_batches)


REVERTS = [
    Revert(
        retention_takes_what_is_open,
        ("retention takes what is finished", "ids outlive retention"),
        cases=several("sleeper", 2),
        options=SOON,
    ),
    Revert(
        retention_takes_what_has_just_ended,
        ("retention takes what is finished",),
        store="sqlite",
        cases=several("sequence", 6),
        options=SOON,
    ),
    Revert(
        retention_forgets_ids,
        ("one start, one run",),
        faults=DEATHS,
        cases=several("sequence", 4, then=start_again_later),
        options=SOON,
    ),
    Revert(
        retention_forgets_messages,
        ("nothing acknowledged is lost",),
        cases=several("collector", 3),
        options=SOON,
    ),
    Revert(
        retention_takes_what_nobody_took,
        ("what nobody took stays",),
        faults=Faults(),
        cases=several("overfull", 6, then=signal_at_the_end),
        options=SOON,
    ),
]
