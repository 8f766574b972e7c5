"""Every query finds its rows by an index, so that its cost does not grow with what sleeps in the ledger."""

from __future__ import annotations

import re

import pytest

from pledger.engine.port.filters import EVERY, AllOf, AnyOf, Filter, Match, Order
from pledger.store.sqlfiles import load_queries
from pledger.store.sqlite import SqliteStore
from pledger.store.sqlite.filters import count_sql, list_sql

SUBJECTS = (
    *("ledger", "labels", "mailbox", "tasks", "queues", "sessions", "requests", "pauses", "retention"),
    "streams",
)
QUERIES = [(subject, name) for subject in SUBJECTS for name in load_queries("pledger.store.sqlite", subject)]

#: Tables that hold a handful of rows (worker processes, wake-ups until they are told), and what is no table: what has
#: expired, of which each range has an index.
SMALL = re.compile(
    r"SCAN (pledger_clock|pledger_session|session|wake|held|pledger_wake|pledger_leftover|CONSTANT ROW|json_each|type"
    r"|clock|kinds|run_type|task_type|used|asked|hop|queued|expired|pause|pledger_pause|\()"
)


def plan(store: SqliteStore, sql: str) -> list[str]:
    connection = store._database.writer.connection
    bindings = (None,) * max(map(int, re.findall(r"\?(\d+)", sql)), default=sql.count("?"))
    return [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]


@pytest.mark.parametrize(("subject", "name"), QUERIES)
def test_no_query_scans_a_table(store: SqliteStore, subject: str, name: str) -> None:
    scans = [
        line for line in plan(store, load_queries("pledger.store.sqlite", subject)[name]) if line.startswith("SCAN")
    ]
    assert [line for line in scans if not SMALL.match(line)] == []


@pytest.mark.parametrize(
    ("subject", "name", "index"),
    [
        ("sessions", "claimable_runs", "pledger_run_due"),
        ("sessions", "claimable_runs", "pledger_run_blocked"),
        ("sessions", "look", "pledger_run_due"),
        ("sessions", "look", "pledger_task_due"),
        ("sessions", "look", "pledger_task_expiry"),
        ("sessions", "look", "pledger_run_blocked"),
        ("sessions", "orphan_runs", "pledger_run_owned"),
        ("sessions", "orphan_tasks", "pledger_task_owned"),
        ("tasks", "claimable_tasks", "pledger_task_due"),
        ("queues", "heads_of_type", "pledger_task_due"),
        ("queues", "drop_full_buckets", "pledger_bucket_full"),
        ("tasks", "expired_tasks", "pledger_task_expiry"),
        ("tasks", "expired_tasks", "pledger_task_outside"),
        ("tasks", "hand_out_slots", "pledger_slot_by_task"),
        ("sessions", "look", "pledger_task_outside"),
        ("mailbox", "read_inbox", "pledger_message_unsettled"),
        ("ledger", "settle_messages", "pledger_message_unsettled"),
        ("ledger", "due_if_mail", "pledger_message_unsettled"),
        ("ledger", "read_history", "pledger_history_by_run"),
        ("ledger", "find_newest_run", "pledger_chain_by_id"),
        ("mail", "open_requests", "pledger_request_open"),
        ("mail", "waiting_messages", "pledger_message_unsettled"),
        ("retention", "drop_histories", "pledger_history_by_run"),
        ("retention", "drop_attempts", "pledger_attempt_by_run"),
        ("streams", "read_page", "pledger_published_by_position"),
        ("streams", "published_number", "pledger_published_by_attempt"),
        ("streams", "next_forgotten", "pledger_stream_forgotten"),
        ("retention", "drop_questions", "pledger_request_open"),
        ("retention", "forgettable_runs", "pledger_run_by_chain"),
    ],
)
def test_the_index_that_was_made_for_it(store: SqliteStore, subject: str, name: str, index: str) -> None:
    assert any(
        f"INDEX {index} " in f"{line} " for line in plan(store, load_queries("pledger.store.sqlite", subject)[name])
    )


@pytest.mark.parametrize(
    ("subject", "name", "range_"),
    [
        ("sessions", "claimable_runs", "due (namespace=? AND task_queue=? AND workflow_type=? AND due_ms<?)"),
        ("sessions", "claimable_runs", "blocked (namespace=? AND task_queue=? AND workflow_type=?)"),
        ("sessions", "look", "due (namespace=? AND task_queue=? AND workflow_type=? AND due_ms>?)"),
        ("sessions", "look", "blocked (namespace=? AND task_queue=? AND workflow_type=?)"),
        ("sessions", "look", "expiry (namespace=? AND expires_ms<?)"),
        ("tasks", "claimable_tasks", "due (namespace=? AND task_queue=? AND activity_type=? AND due_ms<?)"),
        ("tasks", "expired_tasks", "expiry (namespace=? AND expires_ms<?)"),
        ("retention", "finished_types", "finished (namespace=? AND workflow_type>?)"),
        ("queues", "lanes_of_type", "lane (namespace=? AND task_queue=? AND activity_type=? AND lane>?)"),
        ("queues", "heads_of_lane", "lane (namespace=? AND task_queue=? AND activity_type=? AND lane=?)"),
        ("queues", "heads_of_type", "due (namespace=? AND task_queue=? AND activity_type=? AND due_ms<?)"),
        ("sessions", "look", "lane (namespace=? AND task_queue=?)"),
    ],
)
def test_a_worker_passes_no_row_of_another_namespace_or_queue(
    store: SqliteStore, subject: str, name: str, range_: str
) -> None:
    assert any(line.endswith(range_) for line in plan(store, load_queries("pledger.store.sqlite", subject)[name]))


RUNNING = Match("status", None, (("=", "running"),))
EARLY = Match("started_ms", None, (("<", 1),))
NAMED = "pledger_attribute_value (namespace=? AND kind=? AND name=?"
NEWEST = (Order("started_ms", descending=True),)
OLDEST = (Order("started_ms"),)
#: What lists go by, and the index that leads to it.
LISTS = [
    (EVERY, NEWEST, "pledger_run_started (namespace=?)"),
    (RUNNING, NEWEST, "pledger_run_open (namespace=?)"),
    (RUNNING, OLDEST, "pledger_run_open (namespace=?)"),
    (AllOf((RUNNING, EARLY)), NEWEST, "pledger_run_open (namespace=? AND started_ms<?)"),
    (Match("status", None, (("in", ("failed", "timed_out")),)), NEWEST, "pledger_run_ended_badly (namespace=?)"),
    (Match("started_ms", None, ((">", 1),)), NEWEST, "pledger_run_started (namespace=? AND started_ms>?)"),
    (AllOf((EARLY, AnyOf((RUNNING, RUNNING)))), NEWEST, "pledger_run_started (namespace=? AND started_ms<?)"),
    (Match("workflow_id", None, (("=", "order-1"),)), NEWEST, "pledger_chain_by_id (namespace=? AND workflow_id=?)"),
    (Match("amount", "int", ((">", 1), ("<", 9))), NEWEST, f"{NAMED} AND words=? AND whole>? AND whole<?)"),
    (Match("region", "keyword", (("=", "eu"),)), NEWEST, f"{NAMED} AND words=?)"),
    (AllOf((RUNNING, Match("score", "float", (("<", 1.5),)))), NEWEST, f"{NAMED} AND words=? AND whole=? AND real<?)"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "order", "index"), LISTS)
@pytest.mark.parametrize("what", ["list", "count"])
def test_a_list_is_led_to_its_runs(
    store: SqliteStore, what: str, where: Filter, order: tuple[Order, ...], index: str
) -> None:
    sql, _ = list_sql("default", where, 10, order) if what == "list" else count_sql("default", where)
    lines = plan(store, sql)
    assert any(line.endswith(index) for line in lines), lines
    assert [line for line in lines if line.startswith("SCAN") and not SMALL.match(line)] == []
    if "pledger_run_" in index:
        # In the order of the index: a page of a list is as cheap as it is short.
        assert not [line for line in lines if "TEMP B-TREE" in line], lines


def test_an_inbox_is_counted_in_its_index_alone(store: SqliteStore) -> None:
    assert plan(store, load_queries("pledger.store.sqlite", "mailbox")["is_full"]) == [
        "SEARCH pledger_message USING COVERING INDEX pledger_message_unsettled (chain_key=?)"
    ]


def test_open_runs_are_counted_in_indices_alone(store: SqliteStore) -> None:
    """But for those that are blocked, ready, or in the memory of a worker. What sleeps costs entries of indices."""
    lines = plan(store, load_queries("pledger.store.sqlite", "ledger")["count_open"])
    found = [line for line in lines if " pledger_run " in line]
    assert found == [
        "SEARCH pledger_run USING INDEX pledger_run_blocked (namespace=?)",
        "SEARCH pledger_run USING INDEX pledger_run_due (namespace=?)",
        "SEARCH pledger_run USING COVERING INDEX pledger_run_free (namespace=?)",
    ]
    assert "SEARCH run USING INDEX pledger_run_owned (owner=?)" in lines


def test_what_is_to_be_forgotten_is_one_range_of_an_index_in_order(store: SqliteStore) -> None:
    lines = plan(store, load_queries("pledger.store.sqlite", "retention")["finished_chains"])
    range_ = "pledger_run_finished (namespace=? AND workflow_type=? AND closed_ms>? AND closed_ms<?)"
    assert lines[0].endswith(range_)
    assert not [line for line in lines if "TEMP B-TREE" in line]


def test_the_oldest_of_a_lane_come_in_order_without_sorting(store: SqliteStore) -> None:
    """Else each look at a backlog would go through all of it."""
    sql = load_queries("pledger.store.sqlite", "queues")["heads_of_lane"]
    assert not [line for line in plan(store, sql) if "TEMP B-TREE" in line]


@pytest.mark.parametrize("name", ["read_history", "read_last_transitions", "find_newest_run", "read_inbox"])
def test_rows_come_in_order_without_sorting(store: SqliteStore, name: str) -> None:
    sql = (load_queries("pledger.store.sqlite", "ledger") | load_queries("pledger.store.sqlite", "mailbox"))[name]
    assert not [line for line in plan(store, sql) if "TEMP B-TREE" in line]


def test_a_step_of_an_owned_run_opens_no_index_but_the_one_of_due_runs(store: SqliteStore) -> None:
    """due_ms is a column of that one; an owned row is never in it, so it is not written either."""
    connection = store._database.writer.connection
    sql = load_queries("pledger.store.sqlite", "ledger")["append"]
    opened = {row[3] for row in connection.execute(f"EXPLAIN {sql}", (None,) * 6) if row[1] == "OpenWrite"}
    names = connection.execute("SELECT rootpage, name FROM sqlite_schema").fetchall()
    assert {name for rootpage, name in names if rootpage in opened} == {"pledger_run", "pledger_run_due"}
