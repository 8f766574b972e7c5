"""The values in docs/defaults.md are those of the code."""

import inspect
import re
from datetime import timedelta
from pathlib import Path

from pledger import RetryPolicy, Worker, client, completions, metrics
from pledger.engine import (
    auditor,
    blocks,
    budgets,
    committer,
    completing,
    growth,
    heartbeats,
    keyring,
    partings,
    processes,
    session,
    sweeper,
    wakers,
)
from pledger.engine.limits import Limits
from pledger.engine.port.operations import CANCELS_MAX, INBOX_MAX
from pledger.engine.port.streams import WEIGHT_MAX
from pledger.engine.search import meaning, text
from pledger.engine.watchdog import Watchdog
from pledger.history import attributes, failures, payloads, publishing
from pledger.history.budget import CircuitBreaker, RetryBudget
from pledger.history.names import ID_CHARACTERS_MAX
from pledger.history.placement import DEFAULT_PRIORITY
from pledger.history.times import DURATION_MAX
from pledger.machine import context, family
from pledger.machine.definitions import DEFAULT_START_TO_CLOSE, StepOptions
from pledger.metrics import ledger, scraping
from pledger.store import postgres
from pledger.store.memory import tasks as memory_tasks
from pledger.store.postgres import commit, handed_out, handle, links, quota
from pledger.store.sqlite import guest, lane, store, tasks, writer

PAGE = Path(__file__).parents[2] / "docs" / "defaults.md"

_UNITS = {
    "ms": 0.001,
    "s": 1,
    "min": 60,
    "KiB": 1024,
    "%": 0.01,
    "days": 86_400,
}


def rows() -> dict[str, str]:
    """The second column of every table on the page by its first."""
    found = re.findall(r"^\| ([^|]+?) \| ([^|]*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name.strip("`"): value for name, value in found if not name.startswith("---")}


def number(value: str) -> float:
    """The number at the beginning, in seconds, bytes or as it is."""
    match = re.match(r"([\d,.]+)(?: (\S+))?", value)
    assert match, value
    return float(match[1].replace(",", "")) * _UNITS.get(match[2], 1)


def seconds(duration: object) -> float:
    assert isinstance(duration, timedelta)
    return duration.total_seconds()


def expected() -> dict[str, float]:
    worker = {name: each.default for name, each in inspect.signature(Worker).parameters.items()}
    policy, budget, breaker = RetryPolicy(), RetryBudget("api"), CircuitBreaker()
    assert budget.breaker == breaker
    assert policy.maximum_interval is None, "the page says: a hundred times the initial interval"
    assert memory_tasks.ATTEMPTS_MAX == tasks.ATTEMPTS_MAX
    return {
        "start_to_close_timeout": seconds(DEFAULT_START_TO_CLOSE),
        "maximum_attempts": policy.maximum_attempts,
        "initial_interval": seconds(policy.initial_interval),
        "backoff_coefficient": policy.backoff_coefficient,
        "maximum_interval": 100,
        "jitter": policy.jitter,
        "ratio": budget.ratio,
        "minimum_per_second": budget.minimum_per_second,
        "window": seconds(budget.window),
        "failure_ratio": breaker.failure_ratio,
        "minimum_calls": breaker.minimum_calls,
        "pause": seconds(breaker.pause),
        "maximum_pause": seconds(breaker.maximum_pause),
        "what a worker knows counts for": budgets.FRESH_S,
        "between two reports of a worker": budgets.REPORT_S,
        "one payload": payloads.PAYLOAD_BYTES_MAX,
        "nesting of a value": payloads.NESTING_MAX,
        "digits of an integer": payloads.INT_DIGITS_MAX,
        "a duration": seconds(DURATION_MAX),
        "an id or a name": ID_CHARACTERS_MAX,
        "text of a failure": failures.TEXT_MAX,
        "causes of a failure": failures.CAUSES_MAX,
        "pending activities of one run": context.PENDING_ACTIVITIES_MAX,
        "open children of one run": family.PENDING_CHILDREN_MAX,
        "children of an ended run that are seen to together": partings.TOGETHER,
        "events of one history": worker["max_history_events"],
        "bytes of one history": worker["max_history_bytes"],
        "a successor is suggested from": growth.SUGGESTED,
        "commands of one transition": Limits().commands_max,
        "search attributes of one run": attributes.ATTRIBUTES_MAX,
        "keywords of one list": attributes.LIST_MAX,
        "a keyword": attributes.KEYWORD_BYTES_MAX,
        "a text that is searched": attributes.TEXT_BYTES_MAX,
        "characters of a filter": text.CHARACTERS_MAX,
        "overdue": meaning.OVERDUE_MS / 1000,
        "messages waiting for one run": INBOX_MAX,
        "values of one stream": WEIGHT_MAX,
        "values published without a wait": publishing.VALUES_MAX,
        "bytes published without a wait": publishing.BYTES_MAX,
        "topics of one run, and of one attempt": publishing.TOPICS_MAX,
        "requests to cancel beyond them": CANCELS_MAX,
        "claims without progress": blocks.CLAIMS_MAX,
        "attempt log of one activity": tasks.ATTEMPTS_MAX,
        "wait for an attempt to be handed out": completing.HAND_OUT_S,
        "refused tokens of one activity": completing.REFUSALS_MAX,
        "earlier keys of tokens": seconds(completions.TOKEN_KEEP),
        "a new key is in use within": keyring.KEYS_AGE_S,
        "priority": DEFAULT_PRIORITY,
        "max_concurrent_activities": worker["max_concurrent_activities"],
        "max_activity_threads": worker["max_activity_threads"],
        "max_transactions": worker["max_transactions"],
        "max_cached_runs": worker["max_cached_runs"],
        "lease": seconds(worker["lease"]),
        "grace": seconds(worker["grace"]),
        "deadlock_timeout": seconds(worker["deadlock_timeout"]),
        "verify": worker["verify"],
        "retention": seconds(worker["retention"]),
        "most between two looks at a type": sweeper.REST_S[1],
        "least between two looks at a type": sweeper.REST_S[0],
        "chains of one batch": sweeper.CHAINS_MAX,
        "events of one batch": sweeper.EVENTS_MAX,
        "pause between two batches": sweeper.PAUSE_S,
        "between two looks at open runs": auditor.EVERY_S,
        "open runs of one look": auditor.PAGE,
        "transitions of one run that are looked at": auditor.TRANSITIONS_MAX,
        "silence of a worker that has mail": wakers.LATE_MS / 1000,
        "wakes of one run without effect": auditor.WAKES_MAX,
        "query timeout": seconds(client.QUERY_TIMEOUT),
        "heartbeat flush": heartbeats.HEARTBEAT_FLUSH_MS / 1000,
        "process activity, from SIGTERM to SIGKILL": processes.KILL_AFTER_S,
        "look at dead workers' leases": store.SqliteStore.look_every_s,
        "step of the ledger's clock that is reported": session.SKEW_TOLD_S,
        "slowing of the clock between samples": session.DRIFT_MAX,
        "wait for another process's transaction": store.BUSY_TIMEOUT_MS / 1000,
        "your transaction in the ledger's file": guest.OPEN_MAX_S,
        "your transaction on a connection of ours": handed_out.OPEN_MAX_S,
        "operations of one commit": committer.BATCH_MAX,
        "commits leave the event loop above": lane.SLOW_MS / 1000,
        "commits come back to it below": lane.FAST_AGAIN_MS / 1000,
        "a slow disk is tried again on the loop after": lane.PROBE_S,
        "checkpoint": writer.CHECKPOINT_PAGES,
        "port of the metrics": metrics.DEFAULT_PORT,
        "between two looks at the ledger for metrics": seconds(
            inspect.signature(metrics.Metrics).parameters["ledger_every"].default
        ),
        "share of the time that such looks may take": ledger.SHARE_MAX,
        "wait of a scrape for the ledger": ledger.WAIT_S,
        "task queues that metrics tell of": scraping.QUEUES_MAX,
        "queues, types and states of open runs that metrics tell of": scraping.GROUPS_MAX,
        "connections of a client, with all workers on it": quota.CONNECTIONS_MAX,
        "connections that listen, of a client": quota.LISTENERS_MAX,
        "look of a worker without a hint": postgres.PostgresStore.look_every_s,
        "wait for a server that went away": handle.PATIENCE_S,
        "the same when a ledger is opened": handle.OPENING_PATIENCE_S,
        "wait for somebody else's lock": number(links.settings(durable=True)["lock_timeout"]),
        "one statement": links.STATEMENT_TIMEOUT_S,
        "second look after a lost connection": postgres.PostgresStore.outlives_s,
        "rest inside a transaction": number(links.settings(durable=True)["idle_in_transaction_session_timeout"]),
        "a transaction of a worker's": number(links.TRANSACTION_MAX),
        "tries of a transaction that others were in the way of": commit.TRIES,
        "oldest server": links.SERVER_MIN,
    }


def test_every_number_on_the_page_is_that_of_the_code() -> None:
    page = rows()
    assert {name: number(page[name]) for name in expected()} == expected()


def test_every_number_on_the_page_is_checked() -> None:
    numbers = {name for name, value in rows().items() if re.match(r"\d", value)}
    assert numbers - expected().keys() == {"file mode"}  # tests/unit/store/sqlite/test_files.py


def test_what_the_page_says_in_words_is_so() -> None:
    page = rows()
    options = StepOptions().record()
    assert page["schedule_to_close_timeout"] == "none"
    assert options.schedule_to_close_ms is None
    assert page["schedule_to_start_timeout"] == "none"
    assert options.schedule_to_start_ms is None
    assert page["heartbeat_timeout"] == "none"
    assert options.heartbeat_ms is None
    assert page["cancellation_type"] == options.cancellation
    assert page["non_retryable_error_types"] == "none"
    assert RetryPolicy().non_retryable_error_types == ()
    assert page["task_queue"] == inspect.signature(Worker).parameters["task_queue"].default
    assert page["durability"] == inspect.signature(client.connect).parameters["durability"].default


def test_the_prose_of_the_page_is_so() -> None:
    prose = PAGE.read_text(encoding="utf-8")
    assert session.BEATS_PER_LEASE == 3
    assert "Renewed three times in that time" in prose
    assert inspect.signature(Watchdog).parameters["warn_s"].default == 2.0
    assert "reported with its stack after 2 s" in prose
