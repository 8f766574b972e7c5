"""`pledger worker`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from pledger import errors
from pledger.cli import options, words
from pledger.cli.code import Code, load_code
from pledger.cli.durations import parse_duration
from pledger.cli.exits import Exit
from pledger.cli.ledger import opened, shown
from pledger.cli.limits import parse_limit
from pledger.cli.logs import set_up_logging
from pledger.client import Client
from pledger.engine.secrets import resolver_of
from pledger.history import payloads
from pledger.worker import Worker

if TYPE_CHECKING:
    from pledger.metrics import Metrics

logger = logging.getLogger("pledger.worker")

#: Names listed in the first line of the log.
_NAMES_MAX: Final = 12


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Durability(StrEnum):
    POWER = "power"
    PROCESS = "process"


def _duration(flag: str, default: str, text: str) -> Any:
    return typer.Option(flag, parser=parse_duration, metavar="DURATION", help=text, show_default=default)


Target: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="MODULE[:ATTRIBUTE]",
        envvar="PLEDGER_APP",
        help="Where the workflows and activities are: all that a module defines or imports, or what an object of "
        "it lists (a list, or anything with `workflows` and `activities`).",
        show_default=False,
    ),
]
TaskQueue: TypeAlias = Annotated[
    str, typer.Option("--task-queue", metavar="NAME", help="Only runs and activities of this queue.")
]
Activities: TypeAlias = Annotated[int, typer.Option("--max-concurrent-activities", min=1, help="Attempts at a time.")]
Threads: TypeAlias = Annotated[
    int, typer.Option("--max-activity-threads", min=1, help="Of these, plain (not async) ones.")
]
Transactions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--transactions",
        metavar="NAME[=URL]",
        help="A database of activities with transaction=NAME: the ledger's own, with URL as another user of it. May be "
        "given more than once.",
        show_default=False,
    ),
]
TransactionsMax: TypeAlias = Annotated[
    int, typer.Option("--max-transactions", min=1, help="Activities with a transaction at a time.")
]
CachedRuns: TypeAlias = Annotated[
    int, typer.Option("--max-cached-runs", min=1, help="Runs kept in memory; others come back by replay.")
]
HistoryEvents: TypeAlias = Annotated[
    int, typer.Option("--max-history-events", min=1, help="A run with so many events is parked, its state intact.")
]
HistoryBytes: TypeAlias = Annotated[
    int, typer.Option("--max-history-bytes", min=1, help="A run with so many events is parked, its state intact.")
]
Lease: TypeAlias = Annotated[timedelta, _duration("--lease", "5s", "Silent for so long, the worker is taken for dead.")]
Grace: TypeAlias = Annotated[
    timedelta, _duration("--grace", "30s", "How long running activities may go on after SIGTERM.")
]
DeadlockTimeout: TypeAlias = Annotated[
    timedelta,
    _duration(
        "--deadlock-timeout", "30s", "Workflow code that has not waited for so long is interrupted; 0: it never is."
    ),
]
Verify: TypeAlias = Annotated[
    float, typer.Option("--verify", min=0.0, max=1.0, help="The share of finished runs that is replayed and compared.")
]
Retention: TypeAlias = Annotated[
    timedelta,
    typer.Option(
        "--retention",
        parser=lambda text: timedelta.max if text == "forever" else parse_duration(text),
        metavar="DURATION",
        help="How long finished runs are kept whose workflow says nothing else, or `forever`.",
        show_default="30d",
    ),
]
Secrets: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--secrets",
        metavar="WHERE",
        help="Where secrets come from: env:PREFIX, file:FOLDER or command:WORDS; may be given more than once.",
        show_default=False,
    ),
]
QueueLimits: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--queue-limits",
        metavar="NAME=NUMBERS",
        help="A limit of all activities of the queue, over all its workers: api=10 (at a time), api=50/s, "
        "api=10,200/m; may be given more than once. Each worker of the queue has to state it.",
        show_default=False,
    ),
]
BuildId: TypeAlias = Annotated[
    str | None,
    typer.Option("--build-id", help="The identity of this code in histories.", show_default="from its sources"),
]
Identity: TypeAlias = Annotated[
    str | None, typer.Option("--identity", help="What people call this process.", show_default="pid@host")
]
MetricsPort: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65535,
        metavar="PORT",
        help="Serve metrics for Prometheus at http://HOST:PORT/metrics; 9464 is usual, 0 is any that is free.",
        show_default="none",
    ),
]
MetricsHost: TypeAlias = Annotated[
    str,
    typer.Option("--metrics-host", metavar="HOST", help="The address that it listens at; 0.0.0.0 is all of them."),
]
Paused: TypeAlias = Annotated[
    bool,
    typer.Option("--paused", help="Pause the namespace before anything is taken, unless it is: see `pledger resume`."),
]
Durable: TypeAlias = Annotated[
    Durability, typer.Option("--durability", help="What commits survive: power loss, or only the process's death.")
]


def worker(
    target: Target,
    *,
    task_queue: TaskQueue = "default",
    max_concurrent_activities: Activities = 1_000,
    max_activity_threads: Threads = 64,
    transactions: Transactions = None,
    max_transactions: TransactionsMax = 1,
    max_cached_runs: CachedRuns = 1_000,
    max_history_events: HistoryEvents = 500_000,
    max_history_bytes: HistoryBytes = 100_000_000,
    payload_bytes_max: options.PayloadBytesMax = payloads.PAYLOAD_BYTES_MAX,
    lease: Lease = timedelta(seconds=5),
    grace: Grace = timedelta(seconds=30),
    deadlock_timeout: DeadlockTimeout = timedelta(seconds=30),
    verify: Verify = 0.01,
    retention: Retention = timedelta(days=30),
    secrets: Secrets = None,
    queue_limits: QueueLimits = None,
    build_id: BuildId = None,
    identity: Identity = None,
    paused: Paused = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    durability: Durable = Durability.POWER,
    log_level: Annotated[LogLevel, typer.Option("--log-level")] = LogLevel.INFO,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Run workflows and activities.

    Until SIGTERM or Ctrl-C; then running activities may end within the grace period, and a second one stops at once.
    Any number of workers may share a ledger. With --json, the log is one JSON object a line on stdout.
    """
    set_up_logging(log_level, as_json=as_json)
    settings: dict[str, Any] = {
        "task_queue": task_queue,
        "max_concurrent_activities": max_concurrent_activities,
        "max_activity_threads": max_activity_threads,
        "transactions": _by_name(transactions or []),
        "max_transactions": max_transactions,
        "max_cached_runs": max_cached_runs,
        "max_history_events": max_history_events,
        "max_history_bytes": max_history_bytes,
        "lease": lease,
        "grace": grace,
        "deadlock_timeout": deadlock_timeout or None,
        "verify": verify,
        "retention": retention,
        "secrets": [resolver_of(each) for each in secrets or ()],
        "queue_limits": [parse_limit(each) for each in queue_limits or ()],
        "build_id": build_id,
        "identity": identity,
        "paused": paused,
    }
    code = load_code(target)
    where = shown(url) if namespace == "default" else f"namespace {namespace!r} in {shown(url)}"
    with _served(metrics_port, metrics_host) as metrics:
        ledger = opened(
            url,
            namespace,
            may_create=True,
            durability=durability,
            payload_bytes_max=payload_bytes_max,
            metrics=metrics,
        )
        asyncio.run(_work(code, ledger, where, settings))
    return Exit.OK


@contextlib.contextmanager
def _served(port: int | None, host: str) -> Iterator[Metrics | None]:
    """The metrics of the process, while they are served; None where nobody asked for them."""
    if port is None:
        yield None
        return
    try:
        from pledger.metrics import Metrics  # noqa: PLC0415 - an extra, loaded by those alone who use it
    except ImportError as error:
        raise errors.UsageError(
            f"--metrics-port needs prometheus-client, which cannot be imported ({error}): "
            "pip install 'pledger[metrics]'"
        ) from error
    metrics = Metrics()
    with metrics.serve(port, host) as found:
        logger.info("metrics are served at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, found)
        yield metrics


def _by_name(given: list[str]) -> dict[str, str | None]:
    pairs = [each.partition("=") for each in given]
    return {name: url or None for name, _, url in pairs}


async def _work(code: Code, ledger: AbstractAsyncContextManager[Client], where: str, settings: dict[str, Any]) -> None:
    """Until it is told to stop. settings: those of `Worker`."""
    workflows, activities = list(code.workflows.values()), list(code.activities.values())
    async with ledger as client:
        works = Worker(client, workflows=workflows, activities=activities, **settings)
        logger.info("task queue %r of %s: %s", settings["task_queue"], where, _contents(code))
        await works.run()
    logger.info("stopped; every run is handed back")


def _contents(code: Code) -> str:
    parts = [
        f"{words.count(len(names), kind, plural)} ({', '.join(sorted(names)[:_NAMES_MAX])}"
        f"{', …' if len(names) > _NAMES_MAX else ''})"
        for kind, plural, names in (
            ("workflow", "workflows", code.workflows),
            ("activity", "activities", code.activities),
        )
        if names
    ]
    return ", ".join(parts)
