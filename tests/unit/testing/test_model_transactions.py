"""Transactions of activities in a simulation: their rows, and what a model of a store does not do."""

from __future__ import annotations

import contextlib

import pytest

from pledger import RetryPolicy, activity, workflow
from pledger.errors import ActivityError
from pledger.testing import Simulation

ONCE = RetryPolicy(maximum_attempts=1)


@activity.defn(transaction="shop", retry_policy=ONCE)
async def book(order: str) -> str:
    connection = activity.connection()
    await connection.execute("CREATE TABLE IF NOT EXISTS booked (name TEXT)")
    await connection.execute("INSERT INTO booked VALUES (?)", (order,))
    if order == "refused":
        raise ValueError(order)
    return order


@activity.defn(transaction="shop", retry_policy=ONCE)
def book_plainly(order: str) -> str:
    connection = activity.connection()
    connection.execute("CREATE TABLE IF NOT EXISTS booked (name TEXT)")
    connection.execute("INSERT INTO booked VALUES (?)", (order,))
    return order


@activity.defn(transaction="shop", retry_policy=ONCE)
async def count() -> str:
    await activity.connection().execute("SELECT count(*) FROM booked")
    return "counted"


@workflow.defn
async def trip() -> str:
    await book("o-1")
    await book_plainly("o-2")
    with contextlib.suppress(ActivityError):
        await book("refused")
    try:
        return await count()
    except ActivityError as error:
        return str(error.__cause__)


def simulated(store: str) -> tuple[Simulation, str]:
    sim = Simulation(1, workflows=[trip], activities=[book, book_plainly, count], store=store)
    program = sim.start(trip, id="trip-1")
    sim.run_until_idle()
    sim.check()
    return sim, program.journal.outcomes[0].value


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
def test_rows_are_there_with_the_result_and_else_not(store: str) -> None:
    sim, _ = simulated(store)
    assert sim.rows("booked") == [("o-1",), ("o-2",)]
    assert sim.rows("unknown") == []


@pytest.mark.parametrize("store", ["memory", "postgres"])
def test_a_model_runs_no_sql(store: str) -> None:
    _, told = simulated(store)
    assert "cannot do 'SELECT count(*) FROM booked'" in told
    assert "Use Simulation(store='sqlite')" in told


def test_a_simulated_disk_has_a_database() -> None:
    _, told = simulated("sqlite")
    assert told == "counted"
