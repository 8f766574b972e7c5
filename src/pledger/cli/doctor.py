"""`pledger doctor`: is this ledger in order, and what is to be done where it is not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from pledger import errors
from pledger.cli import options, words
from pledger.cli.exits import Exit, NoLedgerError
from pledger.cli.ledger import opened
from pledger.cli.ledger_checks import Check, ledger_checks
from pledger.cli.output import Output, Styled
from pledger.client import Client, PauseSummary, WorkerSummary
from pledger.version import __version__

_STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@dataclass(frozen=True, slots=True)
class Crowd:
    """Workers and runs. unserved: open runs of task queues that no live worker serves."""

    workers: tuple[WorkerSummary, ...]
    open_runs: int
    blocked_runs: int
    unserved: int


def doctor(
    *,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Check the ledger and this installation. Each line is ok, warn or fail, with what to do next.

    The exit code is 1 when a check fails. Nothing is changed.
    """
    output = Output(as_json=as_json)
    checks = [_pledger(), *asyncio.run(_examine(url, namespace))]
    if as_json:
        output.document(
            {"ok": all(each.state != "fail" for each in checks), "checks": [asdict(each) for each in checks]}
        )
    else:
        _show(output, checks)
    return Exit.BAD_NEWS if any(each.state == "fail" for each in checks) else Exit.OK


async def _examine(url: str, namespace: str) -> list[Check]:
    try:
        async with opened(url, namespace) as client:
            ledger = await client.ledger()
            crowd = await _crowd(client)
            pauses = await client.pauses()
    except NoLedgerError:
        raise
    except errors.StoreError as error:
        return [Check("ledger", "fail", str(error), "mend this first: everything else needs the ledger")]
    return [*ledger_checks(ledger), *crowd_checks(crowd), pause_check(pauses)]


async def _crowd(client: Client) -> Crowd:
    workers = await client.workers()
    open_runs = await client.count("status = 'running'")
    served = 0
    for queue in {each.task_queue for each in workers if each.live}:
        quoted = queue.replace("'", "''")
        served += await client.count(f"status = 'running' and task_queue = '{quoted}'")
    blocked = await client.count("blocked = true")
    return Crowd(workers, open_runs, blocked, open_runs - served)


# Checks ---------------------------------------------------------------------------------------------------------------


def _pledger() -> Check:
    python = ".".join(str(each) for each in sys.version_info[:3])
    return Check("pledger", "ok", f"{__version__} on Python {python}")


def crowd_checks(crowd: Crowd) -> Iterator[Check]:
    """About workers and runs."""
    live = [each for each in crowd.workers if each.live]
    gone = len(crowd.workers) - len(live)
    queues = ", ".join(sorted({each.task_queue for each in live}))
    found = f"{len(live):,} live" + (f" (task queue {queues})" if live else "")
    if crowd.unserved:
        yield Check(
            "workers",
            "warn",
            f"{found}, and {words.count(crowd.unserved, 'open run')} whose task queue none of them serves",
            "start one: pledger worker your_module --task-queue NAME",
        )
    elif gone:
        yield Check(
            "workers",
            "warn",
            f"{found}, and {gone} that died",
            "nothing, if others are live: they take over within a lease period; else start one",
        )
    else:
        yield Check("workers", "ok", found)
    if crowd.blocked_runs:
        yield Check(
            "runs",
            "warn",
            f"{crowd.open_runs:,} open, {crowd.blocked_runs:,} of them blocked",
            'see which: pledger list "blocked = true"; and why: pledger show WORKFLOW_ID',
        )
    else:
        yield Check("runs", "ok", f"{crowd.open_runs:,} open, none blocked")


def pause_check(pauses: Sequence[PauseSummary]) -> Check:
    if not pauses:
        return Check("pauses", "ok", "nothing is paused")
    oldest = pauses[0]
    found = f"{oldest.kind} {words.printable(oldest.name)} by {words.printable(oldest.paused_by)}"
    more = f" and {len(pauses) - 1:,} more" if len(pauses) > 1 else ""
    return Check("pauses", "warn", f"{found}{more}", "see them: pledger paused; to go on: pledger resume")


def _show(output: Output, checks: list[Check]) -> None:
    rows = [
        (
            each.name,
            Styled(each.state, _STYLES[each.state]),
            f"{each.found} → {each.action}" if each.action else each.found,
        )
        for each in checks
    ]
    output.table(("CHECK", "STATE", "FOUND"), rows)
