"""`pledger worker`."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer

from pledger.cli import options, words
from pledger.cli.code import Code, load_code
from pledger.cli.durations import parse_duration
from pledger.cli.exits import Exit
from pledger.cli.ledger import opened
from pledger.cli.logs import set_up_logging
from pledger.worker import Worker

logger = logging.getLogger("pledger.worker")

#: Names listed in the first line of the log.
_NAMES_MAX = 12


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Durability(StrEnum):
    POWER = "power"
    PROCESS = "process"


def worker(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE[:ATTRIBUTE]",
            envvar="PLEDGER_APP",
            help="Where the workflows and activities are: all that a module defines or imports, or what an object of "
            "it lists (a list, or anything with `workflows` and `activities`).",
            show_default=False,
        ),
    ],
    *,
    task_queue: Annotated[
        str, typer.Option("--task-queue", metavar="NAME", help="Only runs and activities of this queue.")
    ] = "default",
    max_concurrent_activities: Annotated[
        int, typer.Option("--max-concurrent-activities", min=1, help="Attempts at a time.")
    ] = 1_000,
    max_activity_threads: Annotated[
        int, typer.Option("--max-activity-threads", min=1, help="Of these, plain (not async) ones.")
    ] = 64,
    max_cached_runs: Annotated[
        int, typer.Option("--max-cached-runs", min=1, help="Runs kept in memory; others come back by replay.")
    ] = 1_000,
    lease: Annotated[
        timedelta,
        typer.Option(
            "--lease",
            parser=parse_duration,
            metavar="DURATION",
            help="Silent for so long, the worker is taken for dead.",
            show_default="5s",
        ),
    ] = timedelta(seconds=5),
    grace: Annotated[
        timedelta,
        typer.Option(
            "--grace",
            parser=parse_duration,
            metavar="DURATION",
            help="How long running activities may go on after SIGTERM.",
            show_default="30s",
        ),
    ] = timedelta(seconds=30),
    verify: Annotated[
        float,
        typer.Option("--verify", min=0.0, max=1.0, help="The share of finished runs that is replayed and compared."),
    ] = 0.01,
    build_id: Annotated[
        str | None,
        typer.Option("--build-id", help="The identity of this code in histories.", show_default="from its sources"),
    ] = None,
    identity: Annotated[
        str | None, typer.Option("--identity", help="What people call this process.", show_default="pid@host")
    ] = None,
    durability: Annotated[
        Durability, typer.Option("--durability", help="What commits survive: power loss, or only the process's death.")
    ] = Durability.POWER,
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
    code = load_code(target)

    async def run() -> None:
        async with opened(url, namespace, may_create=True, durability=durability) as client:
            works = Worker(
                client,
                workflows=list(code.workflows.values()),
                activities=list(code.activities.values()),
                task_queue=task_queue,
                max_concurrent_activities=max_concurrent_activities,
                max_activity_threads=max_activity_threads,
                max_cached_runs=max_cached_runs,
                lease=lease,
                grace=grace,
                build_id=build_id,
                identity=identity,
                verify=verify,
            )
            where = url if namespace == "default" else f"namespace {namespace!r} in {url}"
            logger.info("task queue %r of %s: %s", task_queue, where, _contents(code))
            await works.run()
        logger.info("stopped; every run is handed back")

    asyncio.run(run())
    return Exit.OK


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
