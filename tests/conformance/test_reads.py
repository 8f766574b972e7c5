"""Reading: pages of a history, lists and counts."""

from __future__ import annotations

from typing import Any

import pytest

from pledger.engine.port.answers import Reply
from pledger.engine.port.filters import EVERY, AllOf, Filter, Match, Not, Order
from pledger.engine.port.operations import Append, Block
from pledger.engine.port.records import RunRow
from pledger.engine.port.verbs import Store
from tests.conformance.harness import NOW, append, open_session, owned_run, ownerless_run, step, write


async def test_a_history_of_100_000_events_comes_in_pages(store: Store) -> None:
    run = await owned_run(store, await open_session(store))
    steps = [
        Append(run.run_key, 1, last, step(last + 1, b"%d" % last), last + 40, None, NOW)
        for last in range(2, 100_002, 40)
    ]
    for at in range(0, len(steps), 500):
        assert set(await store.commit(steps[at : at + 500])) == {Reply.WON}
    pages, after, seen = 0, 0, []
    while page := await store.read_history(run.run_key, after):
        assert len(page) <= 1_000
        seen += page
        pages, after = pages + 1, page[-1].first_event_id
        assert pages <= 3
    assert seen == [step(1), *[operation.transition for operation in steps]]
    assert await store.read_history(run.run_key, 40_002, limit=2) == [
        step(40_003, b"40002"),
        step(40_043, b"40042"),
    ]
    assert await store.read_last_transitions(run.run_key) == [steps[-2].transition, steps[-1].transition]


async def test_a_run_without_history(store: Store) -> None:
    run = await ownerless_run(store)
    assert await store.read_history(run.run_key) == []
    assert await store.read_last_transitions(run.run_key) == []


async def test_bodies_come_back_byte_for_byte(store: Store) -> None:
    body = bytes(range(256)) * 4_000
    run = await owned_run(store, await open_session(store))
    await write(store, append(run, transition=step(3, body)))
    assert (await store.read_history(run.run_key, 2))[0].body == body


def condition(column: str, sign: str, value: Any) -> Filter:
    """`!=` is `not =`: also true where there is no value."""
    if sign == "!=":
        return Not(condition(column, "=", value))
    return Match(column, None, ((sign, value),))  # type: ignore[arg-type]


@pytest.fixture
def runs() -> list[dict[str, Any]]:
    return [
        {"workflow_id": "a", "workflow_type": "fulfil", "started_ms": NOW},
        {"workflow_id": "b", "workflow_type": "refund", "started_ms": NOW + 1},
        {"workflow_id": "c", "workflow_type": "fulfil", "started_ms": NOW + 2},
        {"workflow_id": "d", "workflow_type": "archive", "started_ms": NOW + 3, "task_queue": "gpu"},
    ]


async def listed(store: Store, runs: list[dict[str, Any]]) -> list[RunRow]:
    """a: open; b: completed at +5; c: failed at +6; d: blocked."""
    session = await open_session(store)
    rows = [await owned_run(store, session, **fields) for fields in runs]
    await store.commit(
        [
            append(rows[1], closed="completed", time_ms=NOW + 5),
            append(rows[2], closed="failed", time_ms=NOW + 6),
            Block(rows[3].run_key, rows[3].fence, b"{}", "code-1"),
        ]
    )
    return [await store.read_run(row.run_key) for row in rows]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ([], "dcba"),
        ([("workflow_id", "=", "b")], "b"),
        ([("workflow_id", "!=", "b")], "dca"),
        ([("workflow_id", "<", "b")], "a"),
        ([("workflow_id", "<=", "b")], "ba"),
        ([("workflow_id", ">", "b")], "dc"),
        ([("workflow_id", ">=", "b")], "dcb"),
        ([("workflow_id", "in", ("a", "d", "z"))], "da"),
        ([("workflow_id", "in", ())], ""),
        ([("run_id", "=", "run-of-c")], "c"),
        ([("workflow_type", "=", "fulfil")], "ca"),
        ([("task_queue", "=", "gpu")], "d"),
        ([("status", "=", "running")], "da"),
        ([("status", "in", ("completed", "failed"))], "cb"),
        ([("status", "!=", "running")], "cb"),
        ([("started_ms", ">=", NOW + 1), ("started_ms", "<", NOW + 3)], "cb"),
        ([("started_ms", "in", (NOW, NOW + 3))], "da"),
        ([("closed_ms", "=", NOW + 5)], "b"),
        ([("closed_ms", ">", NOW)], "cb"),
        ([("closed_ms", "<=", NOW + 5)], "b"),
        ([("closed_ms", "!=", NOW + 5)], "dca"),
        ([("closed_ms", "in", (NOW + 5, NOW + 6))], "cb"),
        ([("blocked", "=", 1)], "d"),
        ([("blocked", "=", 0)], "cba"),
        ([("blocked", "!=", 1)], "cba"),
        ([("blocked", "in", (1, 0))], "dcba"),
        ([("workflow_type", "=", "fulfil"), ("status", "=", "failed")], "c"),
        ([("workflow_id", "=", "b' OR '1'='1")], ""),
    ],
)
async def test_lists_and_counts_meet_every_condition(
    store: Store, runs: list[dict[str, Any]], where: list[tuple[str, str, Any]], ids: str
) -> None:
    await listed(store, runs)
    asked = AllOf(tuple(condition(*each) for each in where))
    found = await store.list_runs("default", asked, 10)
    assert "".join(run.workflow_id for run in found) == ids
    assert await store.count_runs("default", asked) == len(ids)


async def test_lists_show_whole_rows_of_one_namespace(store: Store, runs: list[dict[str, Any]]) -> None:
    rows = await listed(store, runs)
    other = await ownerless_run(store, "e", namespace="staging")
    assert await store.list_runs("default", EVERY, 10) == rows[::-1]
    assert await store.list_runs("staging", EVERY, 10) == [other]
    assert await store.count_runs("nowhere", EVERY) == 0


async def test_lists_come_in_pages(store: Store, runs: list[dict[str, Any]]) -> None:
    rows = await listed(store, runs)
    first = await store.list_runs("default", EVERY, 3)
    assert first == rows[:0:-1]
    before = Match("run_key", None, (("<", first[-1].run_key),))
    assert await store.list_runs("default", before, 3) == [rows[0]]


async def test_lists_go_by_what_is_asked(store: Store, runs: list[dict[str, Any]]) -> None:
    rows = await listed(store, runs)

    async def ids(*order: Order) -> str:
        return "".join(row.workflow_id for row in await store.list_runs("default", EVERY, 10, order))

    assert rows[0].status == "running"
    assert await ids(Order("started_ms")) == "abcd"
    assert await ids(Order("closed_ms")) == "bcad"  # those without a value come last
    assert await ids(Order("closed_ms", descending=True)) == "cbda"
    assert await ids(Order("workflow_type"), Order("started_ms", descending=True)) == "dcab"
