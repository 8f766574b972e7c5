"""A rolling deploy of one run, in every order of the store calls of the old worker and the new one that claim, write
and end a session, of the old one's leave and the new one's start: by the production engine.

`PLEDGER_MODEL=full` lets time pass at any one of these moments, too (some minutes).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import pytest

from pledger import activity, workflow
from pledger.engine.activities import Activities
from pledger.engine.intake import Intake
from pledger.store.memory import State, sessions
from pledger.testing import invariants
from tests.simulation.interleaving import Choices, Deploy, WrongOrderError, every_order


@activity.defn
async def step(name: str) -> str:
    return name


def version(body: Callable[[], Awaitable[str]]) -> Callable[[], Any]:
    @workflow.defn(name="deployed")
    async def deployed() -> str:
        return await body()

    return deployed


async def plain() -> str:
    first = await step("first")
    await asyncio.sleep(1)
    return first


async def patched() -> str:
    first = await step("first")
    await asyncio.sleep(1)
    if workflow.patched("one-more"):
        await step("one more")
    return first


async def another_first_step() -> str:
    await step("zeroth")
    return await plain()


async def with_a_bug() -> str:
    first = await step("first")
    raise ValueError(f"a bug after {first}")


#: The old code, the new code, and how the run may end: its status, and the steps that were made.
DEPLOYS: Final[dict[str, tuple[Callable[[], Awaitable[str]], Callable[[], Awaitable[str]], set[tuple[str, int]]]]] = {
    "a patch": (plain, patched, {("completed", 2)}),
    "a step without a patch": (plain, another_first_step, {("completed", 2), ("blocked", 1)}),
    "a bug is mended": (with_a_bug, plain, {("completed", 1)}),
    "a bug is not mended": (with_a_bug, with_a_bug, {("blocked", 1)}),
}
WAITS: Final = 1 if os.environ.get("PLEDGER_MODEL") == "full" else 0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger = logging.getLogger("pledger")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


def orders(name: str, ends: Counter[tuple[str, int]]) -> Iterator[Choices]:
    """Every order of the deploy, each looked at in the end."""
    old, new, _ = DEPLOYS[name]

    def run(choices: Choices) -> None:
        deploy = Deploy(version(old), version(new), [step])
        try:
            deploy.run(choices, WAITS)
            ends[look_at(deploy)] += 1
        except AssertionError as error:
            error.add_note("the order: " + ", ".join(choices.told))
            raise
        finally:
            deploy.dispose()

    return every_order(run)


def look_at(deploy: Deploy) -> tuple[str, int]:
    """How the run ended, once everything about it is found in order."""
    state = deploy.state
    assert [session.identity for session in state.sessions.values()] == ["new"]
    [run] = state.runs.values()
    for activity_ in deploy.world.activities.values():
        assert len(activity_.attempts) == 1, "nobody died, so nothing is done twice"
    for invariant in (
        invariants.every_start_gives_one_run,
        invariants.every_outcome_was_seen_outside,
        invariants.every_history_is_whole,
        invariants.nothing_is_left,
    ):
        assert not invariant(deploy)
    if run.status == "running":
        assert run.owner is None
    else:
        assert not invariants.every_history_replays(deploy)
    return "blocked" if run.status == "running" else run.status, len(deploy.world.activities)


@pytest.mark.parametrize("name", DEPLOYS)
def test_every_order_of_claim_and_drain_ends_well(name: str) -> None:
    ends: Counter[tuple[str, int]] = Counter()
    told = [tuple(choices.told) for choices in orders(name, ends)]
    assert ends.keys() == DEPLOYS[name][2]
    assert len(told) == len(set(told)) > 300
    # The drain crosses the claims of both in either order, and the new one's start.
    for one, other in (
        ("old: claim_runs", "the old one is to leave"),
        ("old: close_session", "new: claim_runs"),
        ("the new one starts", "the old one is to leave"),
    ):
        places = {order.index(one) < order.index(other) for order in told if one in order and other in order}
        assert places == {True, False}, (one, other)


# With a defence taken out ---------------------------------------------------------------------------------------------


def test_a_block_that_knows_its_last_code_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions with one bug hand the run to each other for ever."""
    monkeypatch.setattr(
        sessions,
        "_may_unblock",
        lambda _, run, codes: codes.get(run.workflow_type, run.blocked_code) != run.blocked_code,
    )
    with pytest.raises(WrongOrderError, match="it comes to rest"):
        all(orders("a bug is not mended", Counter()))


def test_a_block_that_leaves_nothing_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Activities, "leave_behind", lambda *_: [])
    with pytest.raises(AssertionError, match="nothing is done twice"):
        all(orders("a bug is mended", Counter()))


def test_claims_that_a_leaving_worker_neither_waits_for_nor_lets_go_of_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Either defence does: who leaves waits for its claims, and the end of its session lets go of what it has."""

    async def stop(self: Intake) -> None:
        self._stopping = True
        self._wake.set()

    def close_session(state: State, session_key: int) -> None:
        del state.sessions[session_key]

    monkeypatch.setattr(Intake, "stop", stop)
    monkeypatch.setattr(sessions, "close_session", close_session)
    with pytest.raises(AssertionError, match="every open run has a waker"):
        all(orders("a patch", Counter()))
