"""Every statement finds its rows by an index, so that its cost does not grow with what sleeps in the ledger."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pledger.engine.port.filters import EVERY, AllOf, AnyOf, Filter, Match, Order
from pledger.store.postgres import links, open_postgres
from pledger.store.postgres.filters import count_sql, list_sql
from pledger.store.postgres.statements import load_statements
from tests import servers

#: Tables that hold a handful of rows: worker processes, wake-ups until they are told, a mark for each handle, questions
#: that wait for their answer, what is paused, what retention has still to clear away, keys; and some after a fail-over
#: that lost something.
SMALL = {"session", "wake", "mark", "limit_rule", "request", "pause", "leftover", "loss", "token_key"}
#: What a ledger that went back does once, to all of its open runs.
OF_ALL = {"note_losses", "fence_runs", "lose_tasks", "jump_streams"}
NAMES = sorted(load_statements("pledger").keys() - OF_ALL)


class Plans:
    def __init__(self, connection: psycopg.Connection, schema: str) -> None:
        self.connection = connection
        self.schema = schema

    def of(self, name: str) -> str:
        """As if no table were small: a sequential scan is what is left where no index serves."""
        statements = load_statements(self.schema)
        with self.connection.transaction():
            if name == "queue_heads":
                self.connection.execute(statements["now_in_order"], [None])
            explained = f"EXPLAIN (GENERIC_PLAN, COSTS OFF) {statements[name]}"
            rows = self.connection.execute(explained, prepare=False).fetchall()
        return "\n".join(line for (line,) in rows)


@contextmanager
def ledger() -> Iterator[Plans]:
    async def make(url: str) -> str:
        store = await open_postgres(url)
        await store.close()
        return store.address.schema

    with servers.schema() as url:
        schema = asyncio.run(make(url))
        connecting = psycopg.connect(servers.url(), autocommit=True, cursor_factory=psycopg.RawCursor)
        with connecting as connection:
            for name, value in links.settings(durable=True).items():
                connection.execute(f"SET {name} = '{value}'")
            yield Plans(connection, schema)


@pytest.fixture(scope="module")
def plans() -> Iterator[Plans]:
    with ledger() as found:
        yield found


@pytest.fixture(scope="module")
def grown() -> Iterator[Plans]:
    """With a backlog that has just come: nothing has been analysed."""
    with ledger() as found:
        found.connection.execute(f"ALTER TABLE {found.schema}.task SET (autovacuum_enabled = off)")
        found.connection.execute(
            f"INSERT INTO {found.schema}.task (run_key, event_id, namespace, task_queue, activity_type, state, "
            "attempt, due_ms, command, scheduled_ms, lost, cancel_requested, lane, weight, ready_ms) "
            "SELECT 1, number, 'default', 'default', 'charge', 'queued', 1, 253402300799000, repeat('-', 100)::bytea, "
            "0, false, false, 'a lane', 1, 0 FROM generate_series(1, 1000) AS number"
        )
        yield found


@pytest.mark.parametrize("name", NAMES)
def test_no_statement_scans_a_table(plans: Plans, name: str) -> None:
    scanned = re.findall(r"Seq Scan on (\w+)", plans.of(name))
    assert [table for table in scanned if table not in SMALL] == []


@pytest.mark.parametrize("name", NAMES)
def test_no_statement_reads_an_index_from_end_to_end(plans: Plans, name: str) -> None:
    found = re.findall(
        r"Index (?:Only )?Scan using \w+ on (\w+).*\n(?! *(?:Index|Recheck) Cond)", plans.of(name) + "\n"
    )
    assert [table for table in found if table not in SMALL] == []


@pytest.mark.parametrize("name", [name for name in NAMES if name != "give_slots_back"])  # it is rare, and of few
def test_no_batch_takes_the_square_of_its_length(plans: Plans, name: str) -> None:
    """As it does where its rows are joined with what the statement has made of them before, or with a whole table."""
    joined = re.findall(r"Join Filter: (.*)", plans.of(name))
    assert [filter_ for filter_ in joined if "pause" not in filter_] == []  # there is a handful of them


def test_the_oldest_of_a_lane_come_in_order_without_sorting(plans: Plans, grown: Plans) -> None:
    """Else each look at a backlog would go through all of it: one that has just come too, of which the server knows
    nothing."""
    assert "Sort" not in plans.of("queue_heads")
    assert "Sort" not in grown.of("queue_heads")


def test_statements_after_the_heads_of_a_queue_may_sort_again(grown: Plans) -> None:
    statements = load_statements(grown.schema)
    with grown.connection.transaction():
        grown.connection.execute(statements["now_in_order"], [None])
        heads = ["default", "default", ["charge"], [""], 500, 0, 5, []]
        assert len(grown.connection.execute(statements["queue_heads"], heads).fetchall()) == 5
        assert grown.connection.execute("SHOW enable_sort").fetchall() == [("on",)]


@pytest.mark.parametrize("name", ["claim_runs", "claim_tasks", "look", "queue_heads"])
def test_what_is_due_is_met_in_order_and_no_further_than_the_first_that_will_do(plans: Plans, name: str) -> None:
    """What is paused is looked up for each row. Joined with a backlog or with what sleeps, all of it would be read."""
    plan = plans.of(name)
    for index in ("run_due", "task_due", "task_lane"):
        for found in re.finditer(rf"^( *)->  .*Index (?:Only )?Scan using {index} on ", plan, re.MULTILINE):
            above = _above(plan, found.start(), len(found[1]))
            assert above in {"Limit", "LockRows", "Result"}, f"{above} over {found[0]}"


def _above(plan: str, end: int, indent: int) -> str:
    """The node that the one at the end of the text is part of."""
    for line in reversed(plan[:end].splitlines()):
        node = re.match(r"( *)(?:->  )?(\w+)", line)
        if node and len(node[1]) < indent and ("->" in line or not node[1]):
            return node[2]
    raise AssertionError("it is the root")


@pytest.mark.parametrize(
    ("name", "index", "condition"),
    [
        ("claim_runs", "run_due", r"\(namespace = .*task_queue = .*workflow_type = .*due_ms <= "),
        ("claim_runs", "run_blocked", r"\(namespace = .*task_queue = .*workflow_type = "),
        ("claim_tasks", "task_due", r"\(namespace = .*task_queue = .*activity_type = .*due_ms <= "),
        ("queue_heads", "task_lane", r"\(namespace = .*task_queue = .*activity_type = .*lane > "),
        ("queue_heads", "task_lane", r"\(namespace = .*task_queue = .*activity_type = .*lane = "),
        ("queue_heads", "task_due", r"\(namespace = .*task_queue = .*activity_type = .*due_ms <= "),
        ("look", "task_lane", r"\(namespace = .*task_queue = "),
        ("slots", "slot_pkey", r"\(namespace = .*limit_name = .*limit_key = "),
        ("turns", "turn_pkey", r"\(namespace = .*task_queue = .*priority = .*share = "),
        ("lock_buckets", "bucket_pkey", r"\(namespace = .*limit_name = .*limit_key = "),
        ("expired_tasks", "task_expiry", r"\(namespace = .*expires_ms <= "),
        ("look", "run_due", r"\(namespace = .*task_queue = .*workflow_type = "),
        ("look", "task_due", r"\(namespace = .*task_queue = .*activity_type = "),
        ("look", "task_expiry", r"\(namespace = "),
        ("look", "run_blocked", r"\(namespace = .*task_queue = .*workflow_type = "),
        ("read_inbox", "message_unsettled", r"\(chain_key = "),
        ("waiting_messages", "message_unsettled", r"\(chain_key = "),
        ("waiting_outcomes", "task_pkey", r"\(run_key = ANY"),
        ("tasks_of_runs", "task_pkey", r"\(run_key = ANY"),
        ("histories_of_runs", "history_pkey", r"\(run_key = "),
        ("open_requests", "request_open", r"\(run_key = ANY"),
        ("orphan_runs", "run_owned", r"\(owner = ANY"),
        ("orphan_tasks", "task_owned", r"\(owner = ANY"),
        ("finished_types", "run_finished", r"\(namespace = "),
        ("finished_chains", "run_finished", r"\(namespace = .*workflow_type = .*closed_ms < .*closed_ms, run_key\) > "),
        ("forget_chains", "run_by_chain", r"\(chain_key = ANY"),
        ("forget_chains", "history_pkey", r"\(run_key = ANY"),
        ("forget_chains", "attempt_by_run", r"\(run_key = ANY"),
        ("forget_chains", "message_by_id", r"\(chain_key = ANY"),
        ("find_newest_run", "chain_by_id", r"\(namespace = .*workflow_id = "),
    ],
)
def test_a_worker_passes_no_row_that_is_not_for_it(plans: Plans, name: str, index: str, condition: str) -> None:
    plan = plans.of(name)
    uses = re.findall(rf"Index (?:Only )?Scan (?:Backward )?(?:using|on) {index}\b[^\n]*\n\s*Index Cond: (.*)", plan)
    assert any(re.search(condition, each) for each in uses), plan


RUNNING = Match("status", None, (("=", "running"),))
EARLY = Match("started_ms", None, (("<", 1),))
NAMED = r"namespace = .*kind = .*name = "
NEWEST = (Order("started_ms", descending=True),)
#: What lists go by, the index that leads to it, and whether that has the order too.
LISTS = [
    (EVERY, NEWEST, "run_started", r"\(namespace = ", True),
    (RUNNING, NEWEST, "run_open", r"\(namespace = ", True),
    (RUNNING, (Order("started_ms"),), "run_open", r"\(namespace = ", True),
    (AllOf((RUNNING, EARLY)), NEWEST, "run_open", r"\(namespace = .*started_ms < ", True),
    (Match("status", None, (("in", ("failed", "timed_out")),)), NEWEST, "run_ended_badly", r"\(namespace = ", True),
    (AllOf((EARLY, AnyOf((RUNNING, RUNNING)))), NEWEST, "run_started", r"\(namespace = .*started_ms < ", True),
    (Match("workflow_id", None, (("=", "order-1"),)), NEWEST, "chain_by_id", r"namespace = .*workflow_id = ", False),
    (Match("amount", "int", ((">", 1), ("<", 9))), NEWEST, "attribute_value", rf"{NAMED}.*whole > .*whole < ", False),
    (Match("region", "keyword", (("=", "eu"),)), NEWEST, "attribute_value", rf"{NAMED}.*words = ", False),
    (
        AllOf((RUNNING, Match("score", "float", (("<", 1.5),)))),
        NEWEST,
        "attribute_value",
        rf"{NAMED}.*real\"? < ",
        False,
    ),
]


@pytest.mark.parametrize(("where", "order", "index", "condition", "in_order"), LISTS)
@pytest.mark.parametrize("what", ["list", "count"])
def test_a_list_is_led_to_its_runs(
    plans: Plans, what: str, where: Filter, order: tuple[Order, ...], index: str, condition: str, in_order: bool
) -> None:
    schema = plans.schema
    sql, _ = list_sql(schema, "default", where, 10, order) if what == "list" else count_sql(schema, "default", where)
    rows = plans.connection.execute(f"EXPLAIN (GENERIC_PLAN, COSTS OFF) {sql}", prepare=False).fetchall()
    plan = "\n".join(line for (line,) in rows)
    assert "Seq Scan" not in plan
    uses = re.findall(rf"(?:Scan using|Scan Backward using|Scan on) {index}\b[^\n]*\n\s*Index Cond: (.*)", plan)
    assert any(re.search(condition, each) for each in uses), plan
    if in_order and what == "list":
        assert "Sort" not in plan  # a page is as cheap as it is short


def test_every_foreign_key_has_an_index(plans: Plans) -> None:
    """Without one, every look from the other side goes through the whole table."""
    keys = plans.connection.execute(
        "SELECT conrelid, conkey, conname FROM pg_constraint "
        "WHERE contype = 'f' AND connamespace = $1::text::regnamespace",
        [plans.schema],
    ).fetchall()
    assert keys
    for table, key, name in keys:
        indices = plans.connection.execute(
            "SELECT indkey::text FROM pg_index WHERE indrelid = $1 AND indpred IS NULL", [table]
        ).fetchall()
        leading = [[int(each) for each in columns.split()][: len(key)] for (columns,) in indices]
        assert list(key) in leading, name
